//! Clients that break off, stall, send garbage or ask for nonsense harm neither the server nor other clients.
use crate::by_hand::{infer_with, prepare};
use crate::common::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tacit_backends::toy::PANIC;
use tacit_client::wire::{MAX_REQUEST_BYTES, REPLY, REQUEST, Reply, Request, recv_reply, send};
use tacit_client::{ClientConfig, ClientError, Connection};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Hello, NetError, Tag, handshake};
use tacit_store::{StoreError, keys};

fn still_serves(server: &Running) {
    check_answer(&mut server.client("bob", "one"), 1);
}

#[test]
fn survives_garbage_and_silence_before_tls() {
    let server = Running::impatient();
    let mut garbage = TcpStream::connect(&server.address).unwrap();
    garbage.write_all(&[0x5a; 5000]).unwrap();
    let silent = TcpStream::connect(&server.address).unwrap();
    drop(TcpStream::connect(&server.address).unwrap());
    still_serves(&server);
    server.settle();
    drop(silent);
}

#[test]
fn strangers_take_no_client_slot() {
    let server = Running::start(|c| c.max_connections = 1);
    let strangers: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut client = server.client("alice", "one");
    check_answer(&mut client, 1);
    // Alice has the only place of clients.
    let error = Connection::connect(registry(), server.config("bob")).err().unwrap();
    assert!(matches!(&error, ClientError::Ended { reason, .. } if reason.contains("all places are taken")), "{error}");
    assert!(error.to_string().contains(&server.address), "{error}");
    drop(strangers);
}

#[test]
fn refuses_client_of_another_ca() {
    let server = Running::start(|_| {});
    let other = server.dir.join("other");
    keys::init(&other, &[], &["mallory".into()]).unwrap();
    let connect = || {
        let config = ClientConfig::new(&server.address, keys::load_client(&other, "mallory").unwrap());
        Connection::connect(registry(), config).err().unwrap()
    };
    let error = connect();
    assert!(matches!(error, ClientError::Net(NetError::Tls(_))), "the client refuses the server first: {error}");
    // A client that trusts the server but has a foreign certificate.
    std::fs::copy(server.dir.join("keys/ca.pem"), other.join("ca.pem")).unwrap();
    // The end of the connection may overtake the alert of the server.
    check_contains(&connect().to_string(), &[&server.address, "certificate"]);
    still_serves(&server);
}

#[test]
fn names_other_protocol_version() {
    let server = Running::impatient();
    let mut channel = Channel::new(Box::new(server.tls("alice")));
    let error = handshake(&mut channel, &Hello { version: 77, ..Hello::without_model() }).unwrap_err();
    assert!(matches!(error, NetError::VersionMismatch { ours: 77, .. }), "{error}");
    still_serves(&server);
}

#[test]
fn refuses_requests_in_wrong_order() {
    let server = Running::start(|_| {});
    let id = MaterialId::numbered(1);
    let mut channel = server.greeted("alice");
    for request in [Request::Setup, Request::Prepare { id, folder: Some(FolderId([1; 16])), of: None }, infer_with(id)]
    {
        check_refused(&ask(&mut channel, &request), "no model is open");
    }
    let mut channel = server.opened("alice", "one");
    let again = Request::Open { model: "two".into(), backend: "toy".into(), device: DEVICE };
    for (request, reason) in
        [(again, "open already"), (prepare(1), "setup comes first"), (infer_with(id), "does not exist")]
    {
        check_refused(&ask(&mut channel, &request), reason);
    }
    set_up(&mut channel);
    check_refused(&ask(&mut channel, &Request::Setup), "nothing to set up");
    let config = ClientConfig { store: None, ..server.config("alice") };
    let mut client = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    assert!(matches!(client.prepare(), Err(ClientError::Usage(_))), "no store was configured");
    assert!(client.infer(&X).is_ok());
}

#[test]
fn garbage_ends_its_connection_only() {
    let server = Running::impatient();
    for bytes in [vec![0xff; 40], vec![], vec![200; 60_000], vec![0; MAX_REQUEST_BYTES + 1], vec![0; 3 << 20]] {
        let mut channel = server.greeted("alice");
        // The server may close before it has taken all of it.
        let _ = channel.send(REQUEST, &bytes).and_then(|()| channel.flush());
        assert!(channel.recv_max(REPLY, 1000).is_err(), "the server closes");
    }
    let mut channel = server.greeted("alice");
    channel.send(Tag::new(0x0777, "no request"), &[0]).unwrap();
    assert!(channel.recv_max(REPLY, 1000).is_err(), "the server closes");
    for len in [1, 9, 10, 11, 500] {
        // Raw bytes instead of the hello.
        let mut raw = server.tls("alice");
        raw.write_all(&vec![0xa5; len]).unwrap();
        let mut received = Vec::new();
        // The server may send its hello before it closes the connection.
        let end = raw.read_to_end(&mut received).map_err(|e| e.kind());
        assert!(received.len() < 200, "{end:?}");
        assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
    still_serves(&server);
    server.settle();
}

#[test]
fn closes_clients_that_stall_or_leave_in_a_job() {
    let server = Running::impatient();
    // Alice answers neither the comparison of plans nor a setup nor an offline phase.
    let mut unanswered = server.greeted("alice");
    public_part(&mut unanswered, "one");
    let mut in_setup = server.opened("alice", "one");
    assert_eq!(ask(&mut in_setup, &Request::Setup), Reply::Go);
    let mut in_offline = server.ready_channel("alice");
    let id = MaterialId::numbered(5);
    assert_eq!(ask(&mut in_offline, &Request::Prepare { id, folder: Some(FolderId([1; 16])), of: None }), Reply::Go);
    still_serves(&server);
    drop(in_offline);
    server.settle();
    still_serves(&server);
    let mut client = server.client("alice", "one");
    assert!(client.stored_at_server().unwrap().is_empty());
    drop((unanswered, in_setup));
}

#[test]
fn failed_job_frees_memory_place() {
    let server = Running::start(|c| {
        c.memory_per_client = 1;
        c.memory_wait = Duration::ZERO;
    });
    let mut witness = server.ready_channel("alice");
    let mut failing = server.ready_channel("alice");
    assert_eq!(ask(&mut failing, &prepare(1)), Reply::Go);
    check_refused(&ask(&mut witness, &prepare(2)), "held in memory");
    drop(failing);
    wait_until("the failed job ends", || server.handle.connections() == 1);
    assert_eq!(ask(&mut witness, &prepare(2)), Reply::Go);
}

#[test]
fn burns_material_before_first_online_byte() {
    let server = Running::start(|_| {});
    let mut client = server.client("alice", "one");
    let (id, binding) = (client.prepare().unwrap().id, client.binding());
    drop(client);
    let mut channel = server.opened("alice", "one");
    assert_eq!(ask(&mut channel, &infer_with(id)), Reply::Go);
    // No byte of the phase has been sent.
    assert!(matches!(server_store(&server.dir).claim(id, binding), Err(StoreError::Burnt(burnt)) if burnt == id));
    drop(channel);
    wait_until("the connection ends", || server.handle.connections() == 0);
    check_refused(&ask(&mut server.opened("alice", "one"), &infer_with(id)), "used already");
}

#[test]
fn material_in_memory_ends_with_last_connection() {
    let server = Running::start(|_| {});
    let id = MaterialId::numbered(3);
    let mut maker = server.ready_channel("alice");
    assert_eq!(ask(&mut maker, &prepare(3)), Reply::Go);
    maker.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    maker.flush().unwrap();
    assert!(matches!(recv_reply(&mut maker).unwrap(), Reply::Done { material_bytes: 9, .. }));
    let mut foreign = server.opened("bob", "one");
    let mut check = |text| check_refused(&ask(&mut foreign, &infer_with(id)), text);
    check("another client");
    // A second connection of Alice keeps the material.
    let second = server.opened("alice", "one");
    drop(maker);
    wait_until("the maker is gone", || server.handle.connections() == 2);
    check("another client");
    drop(second);
    wait_until("alice is gone", || server.handle.connections() == 1);
    check("does not exist");
}

#[test]
fn panic_ends_its_job_only() {
    let server = Running::impatient();
    let mut bystander = server.client("alice", "one");
    bystander.infer(&X).unwrap();
    let mut client = server.client("alice", "one");
    let error = client.infer(&[PANIC, 0.0, 0.0, 0.0]).unwrap_err();
    assert!(error.to_string().contains("closed") || error.to_string().contains("toy output"), "{error}");
    let second_error = client.infer(&X).unwrap_err();
    assert!(second_error.to_string().contains("already failed"), "{second_error}");
    wait_until("its connection ends", || server.handle.connections() == 1);
    check_answer(&mut bystander, 1);
}

#[test]
fn closes_client_that_reads_nothing() {
    let server = Running::impatient();
    let mut deaf = server.greeted("alice");
    // The server ends the loop when no buffer takes more answers.
    while send(&mut deaf, REQUEST, &Request::List).is_ok() && server.handle.connections() == 1 {}
    still_serves(&server);
    server.settle();
}

#[test]
fn closes_unfinished_request() {
    let server = Running::start(|c| c.stall_timeout = PATIENCE);
    let (_raw, _) = server.trickle("alice");
    // The idle timeout of ten minutes does not apply.
    server.settle();
}
