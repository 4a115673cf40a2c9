//! Announced inputs, batches, many inputs, and a call that another thread ends.
use crate::common::expected;
use crate::peer::*;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use tacit_client::wire::{Reply, Request};
use tacit_client::{Client, ClientError, Connection, infer_many};
use tacit_graph::Units;

fn open(server: &Server) -> Client {
    Connection::connect(registry(), config(server, None)).unwrap().open("tiny", Some("toy")).unwrap()
}

/// A shop that lies, see [`Server::lying`].
fn shop(other: impl Fn(usize, &mut Peer, &Request) -> io::Result<bool> + Send + Sync + 'static) -> (Server, Shared) {
    let shop = Shared::default();
    (Server::lying(&shop, other), shop)
}

fn refused() -> Reply {
    Reply::Refused { reason: "it has no room".into(), again_s: None }
}

#[test]
fn announced_input_is_answered_or_error_named() {
    // Columns: the server's reply to the notice, to the preparation, to the inference (`None`: the
    // honest reply); the error that the client reports (empty: it succeeds).
    let ignored = Reply::Noted { notice_ignored: Some("it is\u{1b} too late".into()) };
    for (notice_reply, preparation_reply, inference_reply, expected_error) in [
        (Some(refused()), None, None, "the server refused the notice: it has no room"),
        (Some(Reply::Go), None, None, "unexpected reply from the server: Go to the notice"),
        (None, Some(refused()), None, "the server refused the preparation of material: it has no room"),
        (None, Some(done()), None, "unexpected reply from the server: Done"),
        (None, None, Some(Reply::Ids(vec![])), "unexpected reply from the server: Ids([]) to the inference"),
        (None, None, Some(refused()), "the server refused the inference"),
        (None, None, Some(ignored), ""),
        (None, None, None, ""),
    ] {
        let (server, shop) = shop(move |number, peer, request| {
            let reply = match (request, number) {
                (Request::Announce(_), _) => &notice_reply,
                (Request::Prepare { .. }, 1) => &preparation_reply,
                (Request::Ask(ask), _) if ask.notice.is_some() => &inference_reply,
                _ => &None,
            };
            reply.as_ref().map_or(Ok(false), |reply| peer.reply(reply).map(|()| true))
        });
        let mut client = open(&server);
        let asked = client.announce(Some(Duration::MAX));
        let asked = asked.and_then(|announced| client.infer_announced(announced, Units::Network, &X));
        match asked {
            Ok(answer) => {
                assert_eq!((answer.values, expected_error), (expected(1, &X), ""));
                assert_eq!(answer.prepared.map(|made| made.id), Some(shop.lock().used[0].0));
            }
            Err(error) => assert!(
                error.to_string().contains(expected_error) && !expected_error.is_empty(),
                "{error}; {expected_error}"
            ),
        }
        // The client's own connection goes on.
        assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
        assert_eq!(shop.lock().used.len(), 1 + usize::from(expected_error.is_empty()));
    }
}

#[test]
fn refuses_larger_batches_than_asked() {
    let grants = [0, 9, u32::MAX, 3];
    let server = Server::start(move |_, peer| {
        peer.greet()?;
        peer.request()?;
        peer.open(&*net())?;
        for inputs in grants {
            assert_eq!(peer.request()?, Request::Batch { inputs: 8 });
            peer.reply(&Reply::Batch { inputs })?;
        }
        // Fewer than a call needs.
        loop {
            assert_eq!(peer.request()?, Request::Batch { inputs: 4 });
            peer.reply(&Reply::Batch { inputs: 2 })?;
        }
    });
    let mut client =
        Connection::connect(registry(), config(&server, None)).unwrap().open("net", Some("cheetah")).unwrap();
    for inputs in &grants[..3] {
        let error = client.ask_batch(8).unwrap_err().to_string();
        assert!(error.contains(&format!("{inputs} inputs as one, 8 were asked for")), "{error}");
        assert_eq!(client.model().batch(), 1, "as before");
    }
    assert_eq!(client.ask_batch(8).unwrap(), 3);
    assert_eq!(client.model().batch(), 3);
    let error = client.infer_batch(Units::Network, &vec![X.to_vec(); 4]).unwrap_err();
    assert!(error.to_string().contains("and this server take 2"), "{error}");
}

#[test]
fn lost_call_fails_without_waiting_for_material() {
    // The second connection waits for its turn while the first is lost.
    let (waiting_sender, waiting_receiver) = mpsc::channel();
    let (waiting_sender, waiting_receiver) = (Mutex::new(waiting_sender), Mutex::new(waiting_receiver));
    let orders = Mutex::new(0);
    let (server, _) = shop(move |_, peer, request| {
        match request {
            Request::Prepare { .. } => {
                let mut orders = orders.lock().unwrap();
                *orders += 1;
                if *orders == 2 {
                    waiting_sender.lock().unwrap().send(()).unwrap();
                    peer.drain();
                    return Err(over());
                }
            }
            Request::Infer { .. } => {
                waiting_receiver.lock().unwrap().recv().unwrap();
                return Err(over());
            }
            _ => {}
        }
        Ok(false)
    });
    let mut client = open(&server);
    let began = Instant::now();
    let error = infer_many(&mut client, Units::Network, &vec![X.to_vec(); 3], |_, _| Ok(())).unwrap_err();
    assert!(matches!(error, ClientError::Lost { during: "the inference", .. }), "{error}");
    assert!(began.elapsed() < LONG / 2, "it has waited for a server that says nothing");
}

#[test]
fn closer_ends_waiting_call() {
    let (inference_sender, inference_receiver): (Sender<()>, _) = mpsc::channel();
    let inference_sender = Mutex::new(inference_sender);
    let (server, shop) = shop(move |_, peer, request| {
        if let Request::Infer { .. } = request {
            peer.reply(&Reply::Waiting { queued: 1 })?;
            inference_sender.lock().unwrap().send(()).unwrap();
            peer.drain();
            return Err(over());
        }
        Ok(false)
    });
    let mut client = open(&server);
    let closer = client.closer();
    let closing = std::thread::spawn(move || {
        inference_receiver.recv().unwrap();
        closer.close();
    });
    let error = client.infer(&X).unwrap_err();
    closing.join().unwrap();
    assert!(matches!(error, ClientError::Lost { during: "the inference", .. }), "{error}");
    assert!(client.closer().is_closed() && client.closer().has_input());
    assert!(client.infer(&X).is_err());
    assert!(shop.lock().used.is_empty());
}
