//! Clients that break off, stall, send garbage or ask for nonsense leave the server and the others unharmed.
use crate::common::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use tacit_backends::toy::PANIC;
use tacit_client::wire::{MAX_REQUEST_BYTES, REPLY, REQUEST, Reply, Request, recv_reply, send};
use tacit_client::{ClientConfig, ClientError, Connection};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Hello, NetError, Tag, handshake};
use tacit_store::{Party, Store, StoreError, keys};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn still_serves(server: &Running, dir: &Path) {
    let mut client = server.client(dir, "bob", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn garbage_and_silence_before_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    let mut garbage = TcpStream::connect(&server.address).unwrap();
    garbage.write_all(&[0x5a; 5000]).unwrap();
    let silent = TcpStream::connect(&server.address).unwrap();
    let dropped = TcpStream::connect(&server.address).unwrap();
    drop(dropped);
    still_serves(&server, dir.path());
    server.settle();
    drop(silent);
}

#[test]
fn strangers_take_no_clients_place() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.max_connections = 1);
    let strangers: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    // The one place is hers.
    let error = Connection::connect(registry(), server.config(dir.path(), "bob")).err().unwrap();
    assert!(matches!(&error, ClientError::Ended { reason, .. } if reason.contains("all places are taken")), "{error}");
    assert!(error.to_string().contains(&server.address), "{error}");
    drop(strangers);
}

#[test]
fn a_client_of_another_ca_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let other = dir.path().join("other");
    keys::init(&other, &[], &["mallory".into()]).unwrap();
    let config = ClientConfig::new(&server.address, keys::load_client(&other, "mallory").unwrap());
    let error = Connection::connect(registry(), config).err().unwrap();
    assert!(matches!(error, ClientError::Net(NetError::Tls(_))), "the client refuses the server first: {error}");
    // A client that trusts the server but has a foreign certificate.
    std::fs::copy(dir.path().join("keys/ca.pem"), other.join("ca.pem")).unwrap();
    let config = ClientConfig::new(&server.address, keys::load_client(&other, "mallory").unwrap());
    let error = Connection::connect(registry(), config).err().unwrap().to_string();
    // The alert that says so may be overtaken by the end of the connection.
    assert!(error.contains(&server.address), "{error}");
    assert!(error.contains("certificate"), "{error}");
    still_serves(&server, dir.path());
}

#[test]
fn other_versions_are_named_at_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    let mut channel = Channel::new(Box::new(server.tls(dir.path(), "alice")));
    let error = handshake(&mut channel, &Hello { version: 77, ..Hello::opening() }).unwrap_err();
    assert!(matches!(error, NetError::VersionMismatch { ours: 77, .. }), "{error}");
    still_serves(&server, dir.path());
}

#[test]
fn wrong_order_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let refused = |reply: Reply| match reply {
        Reply::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let id = MaterialId::numbered(1);
    let mut channel = server.greeted(dir.path(), "alice");
    for request in [
        Request::Setup,
        Request::Prepare { id, folder: Some(FolderId([1; 16])), of: None },
        Request::Infer { id: Some(id), of: None },
    ] {
        assert!(refused(ask(&mut channel, &request)).contains("no model is open"));
    }
    let mut channel = server.opened(dir.path(), "alice", "one");
    let again = Request::Open { model: "two".into(), backend: "toy".into(), device: DEVICE };
    assert!(refused(ask(&mut channel, &again)).contains("open already"));
    assert!(refused(ask(&mut channel, &Request::Prepare { id, folder: None, of: None })).contains("setup comes first"));
    assert!(refused(ask(&mut channel, &Request::Infer { id: Some(id), of: None })).contains("does not exist"));
    set_up(&mut channel);
    assert!(refused(ask(&mut channel, &Request::Setup)).contains("nothing to set up"));
    let mut config = server.config(dir.path(), "alice");
    config.store = None;
    let mut client = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    assert!(matches!(client.prepare(), Err(ClientError::Usage(_))), "no store was configured");
    assert!(client.infer(&X).is_ok());
}

#[test]
fn garbage_at_every_step_ends_that_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    for bytes in [vec![0xff; 40], vec![], vec![200; 60_000], vec![0; MAX_REQUEST_BYTES + 1], vec![0; 3 << 20]] {
        let mut channel = server.greeted(dir.path(), "alice");
        // The server may close before it has taken all of it.
        let _ = channel.send(REQUEST, &bytes).and_then(|()| channel.flush());
        assert!(channel.recv_max(REPLY, 1000).is_err(), "the server closes");
    }
    let mut channel = server.greeted(dir.path(), "alice");
    channel.send(Tag::new(0x0777, "no request"), &[0]).unwrap();
    assert!(channel.recv_max(REPLY, 1000).is_err(), "the server closes");
    for len in [1, 9, 10, 11, 500] {
        // Raw bytes instead of the hello.
        let mut raw = server.tls(dir.path(), "alice");
        raw.write_all(&vec![0xa5; len]).unwrap();
        let mut received = Vec::new();
        // The server's own hello may come first; then it closes, by its timeout at the latest.
        let end = raw.read_to_end(&mut received).map_err(|e| e.kind());
        assert!(received.len() < 200, "{end:?}");
        assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
    still_serves(&server, dir.path());
    server.settle();
}

#[test]
fn clients_that_stall_or_leave_inside_a_job_are_dropped_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    // The comparison of plans is left unanswered.
    let mut unanswered = server.greeted(dir.path(), "alice");
    public_part(&mut unanswered, "one");
    // So is the setup, and an offline phase.
    let mut in_setup = server.opened(dir.path(), "alice", "one");
    assert_eq!(ask(&mut in_setup, &Request::Setup), Reply::Go);
    let mut in_offline = server.opened(dir.path(), "alice", "one");
    set_up(&mut in_offline);
    let id = MaterialId::numbered(5);
    assert_eq!(ask(&mut in_offline, &Request::Prepare { id, folder: Some(FolderId([1; 16])), of: None }), Reply::Go);
    still_serves(&server, dir.path());
    // One leaves in the middle, two stall.
    drop(in_offline);
    server.settle();
    still_serves(&server, dir.path());
    let mut client = server.client(dir.path(), "alice", "one");
    assert!(client.stored_at_server().unwrap().is_empty(), "nothing half-made is listed");
    drop((unanswered, in_setup));
}

#[test]
fn places_in_memory_are_given_back_by_jobs_that_fail() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| {
        c.memory_per_client = 1;
        c.memory_wait = Duration::ZERO;
    });
    let mut witness = server.opened(dir.path(), "alice", "one");
    set_up(&mut witness);
    let prepare = |number| Request::Prepare { id: MaterialId::numbered(number), folder: None, of: None };
    let mut failing = server.opened(dir.path(), "alice", "one");
    set_up(&mut failing);
    assert_eq!(ask(&mut failing, &prepare(1)), Reply::Go);
    // The place is taken from the start of the job on.
    assert!(
        matches!(ask(&mut witness, &prepare(2)), Reply::Refused { reason, .. } if reason.contains("held in memory"))
    );
    drop(failing);
    wait_until("the failed job ends", || server.handle.connections() == 1);
    assert_eq!(ask(&mut witness, &prepare(2)), Reply::Go);
}

#[test]
fn material_is_burnt_before_the_first_byte_of_the_online_phase() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    let (id, binding) = (client.prepare().unwrap().id, client.binding());
    drop(client);
    let mut channel = server.opened(dir.path(), "alice", "one");
    assert_eq!(ask(&mut channel, &Request::Infer { id: Some(id), of: None }), Reply::Go);
    // Nothing of the phase has been sent: it is gone for good nevertheless, whoever asks.
    let store = Store::open(&dir.path().join("server-material"), Party::Server, None).unwrap();
    assert!(matches!(store.claim(id, binding), Err(StoreError::Burnt(burnt)) if burnt == id));
    drop(channel);
    // Until that job is over, the material is that of another input.
    wait_until("it is struck off", || server.handle.connections() == 0);
    let mut channel = server.opened(dir.path(), "alice", "one");
    let reply = ask(&mut channel, &Request::Infer { id: Some(id), of: None });
    assert!(matches!(&reply, Reply::Refused { reason, .. } if reason.contains("used already")), "{reply:?}");
}

#[test]
fn material_in_memory_goes_with_the_clients_last_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let id = MaterialId::numbered(3);
    let mut maker = server.opened(dir.path(), "alice", "one");
    set_up(&mut maker);
    assert_eq!(ask(&mut maker, &Request::Prepare { id, folder: None, of: None }), Reply::Go);
    maker.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    maker.flush().unwrap();
    assert!(matches!(recv_reply(&mut maker).unwrap(), Reply::Done { material_bytes: 9, .. }));
    let mut foreign = server.opened(dir.path(), "bob", "one");
    let reply = ask(&mut foreign, &Request::Infer { id: Some(id), of: None });
    assert!(matches!(reply, Reply::Refused { reason, .. } if reason.contains("another client")));
    // Another connection of hers keeps it; without any it is gone.
    let second = server.opened(dir.path(), "alice", "one");
    drop(maker);
    wait_until("the maker is gone", || server.handle.connections() == 2);
    let reply = ask(&mut foreign, &Request::Infer { id: Some(id), of: None });
    assert!(matches!(reply, Reply::Refused { reason, .. } if reason.contains("another client")));
    drop(second);
    wait_until("she is gone", || server.handle.connections() == 1);
    let reply = ask(&mut foreign, &Request::Infer { id: Some(id), of: None });
    assert!(matches!(reply, Reply::Refused { reason, .. } if reason.contains("does not exist")));
}

#[test]
fn a_panic_in_one_job_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    let mut bystander = server.client(dir.path(), "alice", "one");
    bystander.infer(&X).unwrap();
    let mut client = server.client(dir.path(), "alice", "one");
    let error = client.infer(&[PANIC, 0.0, 0.0, 0.0]).unwrap_err();
    assert!(error.to_string().contains("closed") || error.to_string().contains("toy output"), "{error}");
    let second_error = client.infer(&X).unwrap_err();
    assert!(second_error.to_string().contains("already failed"), "{second_error}");
    wait_until("its connection is struck off", || server.handle.connections() == 1);
    assert_eq!(bystander.infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn a_client_that_reads_nothing_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    let mut deaf = server.greeted(dir.path(), "alice");
    // Answers pile up until no buffer takes more; the server ends that, not this loop.
    while send(&mut deaf, REQUEST, &Request::List).is_ok() && server.handle.connections() == 1 {}
    still_serves(&server, dir.path());
    server.settle();
}

#[test]
fn a_request_that_has_begun_must_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.stall_timeout = PATIENCE);
    let (_raw, _) = server.trickle(dir.path(), "alice");
    // Long before the idle timeout of ten minutes.
    server.settle();
}
