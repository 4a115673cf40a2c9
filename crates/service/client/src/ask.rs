//! Sending a request and receiving its answer.
use crate::ClientError;
use crate::error::server_of;
use crate::wire::{
    MAX_REPLY_BYTES, REPLY, REQUEST, Reply, Request, decode, gather, misplaced, recv_reply, reply_instead, send,
};
use std::time::{Duration, Instant};
use tacit_backends::BackendError;
use tacit_net::{Channel, NetError};

/// Asks for the one reply that fits a pattern; any other is an error.
macro_rules! expect_reply {
    ($channel:expr, $request:expr, $wanted:pat => $value:expr) => {{
        let request = &$request;
        match crate::ask::ask($channel, request)? {
            $wanted => $value,
            other => return Err(crate::wire::misplaced(request.name(), &other).into()),
        }
    }};
}
pub(crate) use expect_reply;

/// Sends a request and waits for the answer; a refusal is an error.
pub(crate) fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, ClientError> {
    ask_telling(channel, request, &|_| ())
}

/// As [`ask`]; calls `waits` with the number of jobs queued at the server until the request starts.
fn ask_telling(channel: &mut Channel, request: &Request, waits: &dyn Fn(u32)) -> Result<Reply, ClientError> {
    send(channel, REQUEST, request).map_err(|e| lost(channel, e.into(), request.name()))?;
    answer_to(channel, request, waits)
}

/// Describes an error `during` a request; a goodbye of the server has precedence.
pub(crate) fn lost(channel: &mut Channel, error: ClientError, during: &'static str) -> ClientError {
    let (ClientError::Net(net) | ClientError::Backend(BackendError::Net(net))) = &error else {
        return error.of(channel, during);
    };
    let sending = matches!(net, NetError::Io { .. }) && net.is_gone();
    let last = if sending { channel.last_words(REPLY, MAX_REPLY_BYTES) } else { None };
    match last.map(|bytes| decode(&bytes, "reply")) {
        Some(Ok(Reply::Goodbye { reason })) => ClientError::Ended { server: server_of(channel), reason },
        _ => error.of(channel, during),
    }
}

fn answer_to(channel: &mut Channel, request: &Request, waits: &dyn Fn(u32)) -> Result<Reply, ClientError> {
    // Stock is made when the server is idle, so a refill may wait without limit.
    let patience = (!matches!(request, Request::Refill { .. })).then(|| channel.patience());
    wait_for(channel, request.name(), patience, waits)
}

pub(crate) fn answered(channel: &mut Channel, request: &'static str) -> Result<Reply, ClientError> {
    let patience = Some(channel.patience());
    wait_for(channel, request, patience, &|_| ())
}

/// Waits for the answer to `request`, for at most `patience` while the server only reports that it
/// waits.
fn wait_for(
    channel: &mut Channel,
    request: &'static str,
    patience: Option<Duration>,
    waits: &dyn Fn(u32),
) -> Result<Reply, ClientError> {
    let began = Instant::now();
    loop {
        match recv_reply(channel).map_err(|e| ClientError::from(e).of(channel, request))? {
            Reply::Waiting { queued } => {
                waits(queued);
                if let Some(patience) = patience.filter(|patience| began.elapsed() > *patience) {
                    return Err(ClientError::Waited { server: server_of(channel), request, patience, queued });
                }
            }
            Reply::Refused { reason, again_s } => {
                return Err(ClientError::Refused { request, reason, again: again_s.map(Duration::from_secs) });
            }
            Reply::Goodbye { reason } => return Err(ClientError::Ended { server: server_of(channel), reason }),
            reply => return Ok(reply),
        }
    }
}

/// Describes why a phase failed; uses the server's reason if it has ended the connection.
pub(crate) fn broken_off(channel: &mut Channel, error: ClientError, phase: &'static str) -> ClientError {
    match reply_instead(channel) {
        Some(Reply::Goodbye { reason }) => ClientError::Ended { server: server_of(channel), reason },
        _ => lost(channel, error, phase),
    }
}

/// Requests a phase. If the server refuses, withdraws the input: the server can free its place and
/// its material.
pub(crate) fn ask_for(channel: &mut Channel, request: &Request, waits: &dyn Fn(u32)) -> Result<Reply, ClientError> {
    let reply = ask_telling(channel, request, waits);
    took_back(channel, request, reply)
}

fn took_back(
    channel: &mut Channel,
    request: &Request,
    reply: Result<Reply, ClientError>,
) -> Result<Reply, ClientError> {
    if let (Err(ClientError::Refused { .. }), Some(name)) = (&reply, request.input()) {
        // An error is ignored: the input or the connection may have ended.
        let _ = ask(channel, &Request::Cancel { name });
    }
    reply
}

/// Sends `first` and `second` without waiting in between; returns the answer to the second. Of the
/// first answer only a refusal matters.
pub(crate) fn ask_both(
    channel: &mut Channel,
    first: &Request,
    second: &Request,
    waits: &dyn Fn(u32),
) -> Result<Reply, ClientError> {
    // One write: if the server's goodbye has crossed the first, a second write would fail
    // before the goodbye is read.
    let said = gather(channel, REQUEST, first).and_then(|()| send(channel, REQUEST, second));
    said.map_err(|e| lost(channel, e.into(), first.name()))?;
    match answered(channel, first.name()) {
        Ok(Reply::Noted { .. }) => {
            let reply = answer_to(channel, second, waits);
            took_back(channel, second, reply)
        }
        Ok(other) => Err(misplaced(first.name(), &other).into()),
        Err(refused @ ClientError::Refused { .. }) => match answered(channel, second.name()) {
            Err(ClientError::Refused { .. }) => Err(refused),
            Err(other) => Err(other),
            Ok(other) => Err(misplaced(second.name(), &other).into()),
        },
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tacit_net::{TcpTransport, mem_pair};

    const OFTEN: Duration = Duration::from_millis(20);

    /// A server that says `count` times that it waits, and then starts.
    fn waiting(count: usize, queued: u32) -> (Channel, thread::JoinHandle<()>) {
        let (channel, mut server) = mem_pair();
        let serving = thread::spawn(move || {
            server.recv_max(REQUEST, 1 << 10).unwrap();
            let waited = (0..count).all(|_| {
                thread::sleep(OFTEN);
                send(&mut server, REPLY, &Reply::Waiting { queued }).is_ok()
            });
            if waited {
                send(&mut server, REPLY, &Reply::Go).unwrap();
            }
        });
        (channel, serving)
    }

    #[test]
    fn gives_up_waiting_after_patience() {
        let (mut channel, serving) = waiting(usize::MAX, 7);
        channel.set_patience(10 * OFTEN);
        let told = std::cell::Cell::new(0);
        let request = Request::Infer { id: None, of: None };
        let text = ask_for(&mut channel, &request, &|queued| told.set(queued)).unwrap_err().to_string();
        assert!(text.contains("--patience") && text.contains("the inference") && text.contains("7 jobs"), "{text}");
        assert_eq!(told.get(), 7);
        drop(channel);
        serving.join().unwrap();
    }

    #[test]
    fn refill_waits_beyond_patience() {
        let (mut channel, serving) = waiting(10, 0);
        channel.set_patience(2 * OFTEN);
        let (id, folder) = (tacit_ids::MaterialId([1; 16]), tacit_ids::FolderId([2; 16]));
        let request = Request::Refill { id, folder, held: 0, most: 1 };
        assert_eq!(ask_for(&mut channel, &request, &|_| ()).unwrap(), Reply::Go);
        serving.join().unwrap();
    }

    #[test]
    fn reads_goodbye_after_failed_write() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        let kept = peer.try_clone().unwrap();
        let [mut channel, mut server] =
            [stream, peer].map(|stream| Channel::new(Box::new(TcpTransport::new(stream).unwrap())));
        channel.set_stall_timeout(Duration::from_secs(60)).unwrap();
        send(&mut server, REPLY, &Reply::Goodbye { reason: "it stops".into() }).unwrap();
        drop(server);
        let megabyte = vec![0; 1 << 20];
        let error = (0..).find_map(|_| channel.send(REQUEST, &megabyte).err()).unwrap();
        let error = lost(&mut channel, error.into(), "the setup");
        assert!(matches!(&error, ClientError::Ended { reason, .. } if reason == "it stops"), "{error}");
        drop(kept);
    }
}
