//! Clients that break off, stall, send garbage or ask for nonsense leave the server and the others unharmed.
mod common;
use common::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tacit_net::{Channel, Hello, NO_MODEL, NetError, TcpTransport, handshake};
use tacit_serve::*;
use tacit_store::keys;

const X: [i64; 4] = [1, 2, 3, 4];

/// How long a server waits for those who do nothing here: long enough for those who do something on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

fn still_serves(server: &Running, dir: &std::path::Path) {
    let mut client = server.client(dir, "bob", "one");
    assert_eq!(client.infer_integers(&X).unwrap().integers, expected(1, &X));
}

#[test]
fn garbage_and_silence_before_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.greeting_timeout = PATIENCE);
    let mut garbage = TcpStream::connect(&server.address).unwrap();
    garbage.write_all(&[0x5a; 5000]).unwrap();
    let silent = TcpStream::connect(&server.address).unwrap();
    let gone = TcpStream::connect(&server.address).unwrap();
    drop(gone);
    still_serves(&server, dir.path());
    server.settle();
    drop(silent);
}

#[test]
fn a_client_of_another_ca_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let other = dir.path().join("other");
    keys::init(&other, &[], &["mallory".into()]).unwrap();
    let config = ClientConfig::new(&server.address, Some(keys::load_client(&other, "mallory").unwrap()));
    let error = Lobby::connect(Toy::default(), config).err().unwrap();
    assert!(matches!(error, ServeError::Net(NetError::Tls(_))), "the client refuses the server first: {error}");
    // A client that trusts the server but has a foreign certificate.
    std::fs::copy(dir.path().join("keys/ca.pem"), other.join("ca.pem")).unwrap();
    let config = ClientConfig::new(&server.address, Some(keys::load_client(&other, "mallory").unwrap()));
    assert!(Lobby::connect(Toy::default(), config).is_err());
    still_serves(&server, dir.path());
}

/// A server without TLS, so that tests can speak raw bytes after the handshake.
fn plain(dir: &std::path::Path) -> Running {
    Running::start(dir, |c| {
        c.tls = None;
        c.stall_timeout = PATIENCE;
        c.greeting_timeout = PATIENCE;
        c.idle_timeout = 20 * PATIENCE;
    })
}

fn open_plain(server: &Running) -> Client<Toy> {
    let mut config = ClientConfig::new(&server.address, None);
    config.stall_timeout = Duration::from_secs(10);
    Lobby::connect(Toy::default(), config).unwrap().open("one").unwrap()
}

fn greeted(server: &Running) -> Channel {
    let tcp = TcpTransport::connect(server.address.as_str(), Duration::from_secs(5)).unwrap();
    let mut channel = Channel::new(Box::new(tcp));
    handshake(&mut channel, &Hello::new([0; 32], NO_MODEL)).unwrap();
    channel
}

#[test]
fn other_versions_and_parameters_are_named_at_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = plain(dir.path());
    let error = Lobby::connect(Toy { parameters: 9 }, ClientConfig::new(&server.address, None)).err().unwrap();
    assert!(matches!(error, ServeError::Net(NetError::ParametersMismatch { .. })), "{error}");
    let tcp = TcpTransport::connect(server.address.as_str(), Duration::from_secs(5)).unwrap();
    let hello = Hello { version: 77, ..Hello::new([0; 32], NO_MODEL) };
    let error = handshake(&mut Channel::new(Box::new(tcp)), &hello).unwrap_err();
    assert!(matches!(error, NetError::VersionMismatch { ours: 77, .. }), "{error}");
    assert_eq!(open_plain(&server).infer_integers(&X).unwrap().integers, expected(1, &X));
}

#[test]
fn unknown_models_and_wrong_order_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = plain(dir.path());
    let mut config = ClientConfig::new(&server.address, None);
    config.stall_timeout = Duration::from_secs(10);
    let error = Lobby::connect(Toy::default(), config).unwrap().open("three").err().unwrap();
    assert!(error.to_string().contains("no model `three`; there are: one, two"), "{error}");
    let mut client = open_plain(&server);
    assert!(matches!(client.prepare(), Err(ServeError::Usage(_))), "no store was configured");
    assert!(client.infer_integers(&X).is_ok());
}

#[test]
fn garbage_at_every_step_ends_that_session_only() {
    let dir = tempfile::tempdir().unwrap();
    let server = plain(dir.path());
    let request = tacit_net::Tag::new(0x0101, "request");
    for bytes in [vec![0xff; 40], vec![], vec![200; 60_000]] {
        let mut channel = greeted(&server);
        channel.recv_max(tacit_net::Tag::new(0x0102, "reply"), 1000).unwrap();
        channel.send(request, &bytes).unwrap();
        assert!(channel.recv_max(request, 1000).is_err(), "the server closes");
    }
    let raws = [1, 9, 10, 11, 500].map(|len| {
        // Raw bytes instead of the handshake.
        let mut raw = TcpStream::connect(&server.address).unwrap();
        raw.write_all(&vec![0xa5; len]).unwrap();
        raw.set_read_timeout(Some(20 * PATIENCE)).unwrap();
        raw
    });
    for mut raw in raws {
        let mut all = Vec::new();
        // The server's own hello may come first; then it closes, by its timeout at the latest.
        let end = raw.read_to_end(&mut all).map_err(|e| e.kind());
        assert!(all.len() < 200 && matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
    assert_eq!(open_plain(&server).infer_integers(&X).unwrap().integers, expected(1, &X));
    server.settle();
}

#[test]
fn a_client_that_stalls_inside_a_phase_is_dropped_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let server = plain(dir.path());
    let mut channel = greeted(&server);
    let reply = tacit_net::Tag::new(0x0102, "reply");
    let request = tacit_net::Tag::new(0x0101, "request");
    channel.recv_max(reply, 1000).unwrap();
    channel.send(request, &[1, 3, b'o', b'n', b'e']).unwrap();
    channel.recv_max(reply, 1000).unwrap();
    channel.recv_max(tacit_net::Tag::new(0x0103, "public"), 1 << 20).unwrap();
    // The second handshake is left unanswered.
    let started = Instant::now();
    assert_eq!(open_plain(&server).infer_integers(&X).unwrap().integers, expected(1, &X));
    server.settle();
    assert!(started.elapsed() < 20 * PATIENCE);
    drop(channel);
}

#[test]
fn a_panic_in_one_session_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = plain(dir.path());
    let mut bystander = open_plain(&server);
    bystander.infer_integers(&X).unwrap();
    let mut client = open_plain(&server);
    let error = client.infer_integers(&[PANIC, 0, 0, 0]).unwrap_err();
    assert!(error.to_string().contains("closed") || error.to_string().contains("toy output"), "{error}");
    let again = client.infer_integers(&X).unwrap_err();
    assert!(again.to_string().contains("already failed"), "{again}");
    assert_eq!(bystander.infer_integers(&X).unwrap().integers, expected(1, &X));
}
