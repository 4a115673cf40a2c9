//! Every request, answered with every well-formed reply. A wrong one is named, with the request; it costs no
//! material, and the connection is as usable as before.
use crate::common::expected;
use crate::peer::*;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::toy::Toy;
use tacit_backends::{Backend, Registry, Trust};
use tacit_client::wire::{Ask, ModelInfo, Offer, REPLY, Reply, Request, Terms, Upload, public_digest};
use tacit_client::{Client, ClientError, Connection};
use tacit_ids::MaterialId;
use tacit_net::{Hello, Tag};

/// A name that a terminal would obey, and what is made of it.
const ESCAPE: [&str; 2] = ["\u{1b}]0;a\u{202e}b\n", "\u{fffd}]0;a\u{fffd}b "];

fn replies() -> Vec<Reply> {
    let text = || ESCAPE[0].to_owned();
    let offer = Offer { backend: text(), public: [0; 32] };
    vec![
        Reply::Welcome,
        Reply::Models(vec![ModelInfo { name: text(), backends: vec![offer] }]),
        Reply::Model { bytes: u64::MAX },
        Reply::Noted { notice_ignored: None },
        Reply::Go,
        done(),
        Reply::Ids(vec![]),
        Reply::Reconciled { folder: None, ids: vec![MaterialId([3; 16])] },
        Reply::Halves(vec![]),
        Reply::Refused { reason: text(), again_s: Some(u64::MAX) },
        Reply::Batch { inputs: 0 },
        Reply::Uploads(vec![]),
        Reply::Deleted { uploads: u32::MAX },
    ]
}

/// All replies but one.
fn all_but(right: &str) -> Vec<Reply> {
    replies().into_iter().filter(|reply| kind(reply) != right).collect()
}

/// Whether the reply was the right one; else the error must name it, and the request.
fn judged<T>(outcome: Result<T, ClientError>, right: &str, reply: &Reply, during: &str) -> bool {
    let Err(error) = outcome else {
        assert_eq!(kind(reply), right, "taken for the answer to {during}");
        return true;
    };
    let (text, kind) = (error.to_string(), kind(reply));
    assert_eq!(tacit_foreign::plain(&text), text);
    match (&error, reply) {
        (ClientError::Refused { request, reason, again }, Reply::Refused { .. }) => {
            assert_eq!((*request, reason.as_str(), *again), (during, ESCAPE[1], Some(Duration::from_secs(u64::MAX))));
        }
        (ClientError::Unexpected { what: "reply", detail }, _) => {
            assert!(detail.starts_with(&kind) && detail.ends_with(&format!(" to {during}")), "{text}");
            assert_ne!(kind, right, "{text}");
        }
        _ => panic!("{reply:?} to {during}: {text}"),
    }
    false
}

/// Answers requests with these replies, each after a sign that the server waits.
fn in_turn(peer: &mut Peer, replies: &[Reply]) -> io::Result<()> {
    for reply in replies {
        peer.request()?;
        peer.reply(&Reply::Waiting { queued: u32::MAX })?;
        peer.reply(reply)?;
    }
    Ok(())
}

/// Calls once for each reply; exactly one is the right one.
fn call(during: &str, right: &str, mut call: impl FnMut() -> Result<(), ClientError>) {
    let rights = replies().iter().filter(|reply| judged(call(), right, reply, during)).count();
    assert_eq!(rights, 1, "{during}");
}

#[test]
fn rejects_wrong_replies_without_model() {
    let server = Server::start(|_, peer| {
        peer.greet()?;
        peer.request()?;
        peer.reply(&Reply::Reconciled { folder: Some(HERE), ids: vec![] })?;
        in_turn(peer, &vec![replies(); 5].concat())
    });
    let (dir, id) = (tempfile::tempdir().unwrap(), MaterialId([1; 16]));
    let mut connection = Connection::connect(registry(), config(&server, Some(dir.path()))).unwrap();
    let upload = Upload { name: [1; 32], plan: [2; 32], bytes: 1, is_whole: false, created: 0, used: 0, offered: None };
    call("the list of models", "Models", || connection.models().map(drop));
    call("the list of keys", "Uploads", || connection.uploads().map(drop));
    call("the list of material", "Halves", || connection.material().map(drop));
    call("the destruction of material", "Ids", || connection.discard(&[id]).map(drop));
    call("the deletion of keys", "Deleted", || connection.delete_uploads(std::slice::from_ref(&upload)).map(drop));
}

#[test]
fn rejects_wrong_replies_while_opening() {
    let shop = Shared::default();
    let server = Server::honest(&shop);
    let open = |place, tag, bytes: Vec<u8>| {
        shop.lock().fault = Some((place, Fault::Other(tag, bytes)));
        let connection = Connection::connect(registry(), config(&server, None));
        connection.and_then(|connection| connection.open("tiny", Some("toy"))).err().unwrap()
    };
    for (place, during, right) in [(1, "the greeting", "Welcome"), (2, "the model", "Model")] {
        for reply in all_but(right) {
            match open(place, REPLY, postcard::to_stdvec(&reply).unwrap()) {
                ClientError::Ended { reason, .. } if place == 1 && kind(&reply) == "Refused" => {
                    assert_eq!(reason, ESCAPE[1]);
                }
                other => assert!(!judged(Err::<(), _>(other), "", &reply, during)),
            }
        }
    }
    let large = open(2, REPLY, postcard::to_stdvec(&Reply::Model { bytes: u64::MAX }).unwrap()).to_string();
    assert!(large.contains("18446744073709551615 bytes, the limit is"), "{large}");
    let (plan, public) = (toy().digest(), public_digest(toy().public_bytes()));
    for (place, hello, wanted) in [
        (0, Hello { version: 77, ..Hello::without_model() }, "protocol version mismatch: ours is"),
        (0, Hello::for_model(plan, public), "public part mismatch: ours has digest 0000"),
        (4, Hello { version: 77, ..Hello::for_model(plan, public) }, "protocol version mismatch: ours is"),
        (4, Hello::for_model([7; 32], public), "plan mismatch: ours has digest"),
        (4, Hello::for_model([7; 32], [7; 32]), "public part mismatch: ours has digest"),
    ] {
        let text = open(place, Tag::HELLO, hello.to_bytes()).to_string();
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn chooses_back_end_by_own_registry() {
    let offers = [["seen", "dealt", ESCAPE[0], "toy"], ["seen", "dealt", ESCAPE[0], "seen"]];
    let server = Server::start(move |number, peer| {
        peer.greet()?;
        peer.request()?;
        let offered = offers[number].map(|backend| Offer { backend: backend.into(), public: [0; 32] });
        let names = ["another", ESCAPE[0]].map(|name| ModelInfo { name: name.into(), backends: offered.to_vec() });
        peer.reply(&Reply::Models(names.to_vec()))?;
        peer.request()?;
        peer.open(&*toy())
    });
    let of = |id, trust| Arc::new(Toy { id, trust, plan: 0 }) as Arc<dyn Backend>;
    let toys = [("seen", Trust::ServerSeesInput), ("dealt", Trust::Dealer), ("toy", Trust::TwoParty)];
    let known = Registry::new(toys.into_iter().map(|(id, trust)| of(id, trust)).collect());
    let open = |name| Connection::connect(known.clone(), config(&server, None)).unwrap().open(name, None);
    assert_eq!(open(ESCAPE[1]).unwrap().backend(), "toy");
    let text = open("another").err().unwrap().to_string();
    for part in ["`seen` (the server sees the input)", "`dealt` (trusts a dealer)", &format!("`{}` (this", ESCAPE[1])] {
        assert!(text.contains(part), "{text}");
    }
}

/// A client whose server answers as a server does until the model is open, and then by a script.
fn opened(
    shop: &Shared,
    store: Option<&Path>,
    script: impl Fn(&Shared, &mut Peer) -> io::Result<()> + Send + Sync + 'static,
) -> (Server, Client) {
    let own = shop.clone();
    let server = Server::lying(shop, move |_, peer, request| {
        if matches!(request, Request::Open { .. }) {
            peer.open(&*toy())?;
            return script(&own, peer).and(Err(over()));
        }
        Ok(false)
    });
    let connection = Connection::connect(registry(), config(&server, store)).unwrap();
    let client = connection.open("tiny", Some("toy")).unwrap();
    (server, client)
}

#[test]
fn rejects_wrong_replies_with_model() {
    let both = vec![replies(); 2].concat();
    let (_server, mut client) = opened(&Shared::default(), None, move |_, peer| in_turn(peer, &both));
    call("the list of material", "Ids", || client.stored_at_server().map(drop));
    call("the inference", "Noted", || client.begin_call(2));
}

#[test]
fn rejects_wrong_replies_while_preparing() {
    let (dir, shop) = (tempfile::tempdir().unwrap(), Shared::default());
    let store = folder(dir.path());
    let (_server, mut client) = opened(&shop, Some(dir.path()), |shop, peer| {
        in_turn(peer, &all_but("Go"))?;
        shop.next(peer)?;
        in_turn(peer, &all_but("Go"))?;
        for reply in all_but("Done") {
            let Request::Prepare { id, .. } = peer.request()? else { panic!("no order of material") };
            peer.reply(&Reply::Go)?;
            peer.pad()?;
            peer.reply(&reply)?;
            // A half that the client does not have.
            shop.lock().stored.insert(id, 0);
        }
        loop {
            shop.next(peer)?;
        }
    });
    for reply in all_but("Go") {
        judged(client.setup(), "", &reply, "the setup");
    }
    client.setup().unwrap();
    for reply in [all_but("Go"), all_but("Done")].concat() {
        judged(client.prepare(), "", &reply, "the preparation of material");
        assert_eq!(ready(&store), []);
    }
    let made = client.prepare().unwrap();
    assert_eq!(ready(&store), [made.id]);
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn rejects_wrong_replies_while_inferring() {
    let (dir, shop) = (tempfile::tempdir().unwrap(), Shared::default());
    let store = folder(dir.path());
    // Asks for an input and its online phase: `first` and `second` are the answers.
    fn ask(shop: &Shared, peer: &mut Peer, first: &Reply, second: Option<&Reply>) -> io::Result<()> {
        shop.next(peer)?;
        let Request::Ask(Ask { name, material, terms, .. }) = peer.request()? else { panic!("nothing is asked") };
        let Request::Infer { id, of } = peer.request()? else { panic!("no phase is asked for") };
        assert_eq!((id, of, terms), (material, Some(name), Terms { timeout_ms: Some(5), ..Terms::default() }));
        peer.reply(first)?;
        second.map_or(Ok(()), |second| peer.reply(second))?;
        if let (Reply::Noted { .. }, Some(Reply::Refused { .. })) = (first, second) {
            assert_eq!(peer.request()?, Request::Cancel { name });
            peer.reply(&Reply::Noted { notice_ignored: None })?;
        }
        Ok(())
    }
    const NOTED: Reply = Reply::Noted { notice_ignored: None };
    let (_server, mut client) = opened(&shop, Some(dir.path()), |shop, peer| {
        shop.next(peer)?;
        shop.next(peer)?;
        for reply in all_but("Noted") {
            let refused = matches!(reply, Reply::Refused { .. }).then(|| reply.clone());
            ask(shop, peer, &reply, refused.as_ref())?;
        }
        for reply in all_but("Go") {
            ask(shop, peer, &NOTED, Some(&reply))?;
        }
        for reply in all_but("Done") {
            ask(shop, peer, &NOTED, Some(&Reply::Go))?;
            peer.masked()?;
            peer.output(&[0.0; 2])?;
            peer.reply(&reply)?;
            shop.lock().stored.clear();
            shop.next(peer)?;
        }
        Ok(())
    });
    client.set_terms(Terms { timeout_ms: Some(5), ..Terms::default() });
    let mut id = client.prepare().unwrap().id;
    for reply in [all_but("Noted"), all_but("Go")].concat() {
        judged(client.infer(&X), "", &reply, "the inference");
        assert_eq!(ready(&store), [id], "{reply:?} costs none");
    }
    for reply in all_but("Done") {
        judged(client.infer(&X), "", &reply, "the inference");
        assert_eq!(ready(&store), [], "it was used: {reply:?}");
        id = client.prepare().unwrap().id;
    }
    assert_eq!(ready(&store), [id]);
}
