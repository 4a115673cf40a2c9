//! What a client says of servers that are not there, or do not answer.
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use tacit_backends::Registry;
use tacit_client::{ClientConfig, ClientError, Connection};
use tacit_store::keys;

fn error(dir: &Path, address: &str, tune: impl FnOnce(&mut ClientConfig)) -> ClientError {
    if !dir.join("keys").exists() {
        keys::init(&dir.join("keys"), &[], &["alice".into()]).unwrap();
    }
    let mut config = ClientConfig::new(address, keys::load_client(&dir.join("keys"), "alice").unwrap());
    // Does not count while connecting.
    config.stall_timeout = Duration::from_secs(3600);
    tune(&mut config);
    Connection::connect(Registry::standard(), config).err().unwrap()
}

#[test]
fn gives_up_unanswering_server() {
    let dir = tempfile::tempdir().unwrap();
    // The system takes the connection, and nobody says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let error = error(dir.path(), &address, |c| c.connect_timeout = Duration::from_millis(500));
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&address) && text.contains("did not answer within 0.5 s"), "{text}");
}

#[test]
fn recognizes_other_servers() {
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering =
        std::thread::spawn(move || other.accept().unwrap().0.write_all(b"220 mail.example ESMTP\r\n").unwrap());
    let text = error(dir.path(), &address, |_| {}).to_string();
    answering.join().unwrap();
    assert!(text.contains(&address) && text.contains("tacit server"), "{text}");
}

#[test]
fn checks_address_and_threads_first() {
    let dir = tempfile::tempdir().unwrap();
    let text = error(dir.path(), "server.example", |_| {}).to_string();
    assert!(text.contains("the port is missing") && text.contains("server.example:7878"), "{text}");
    for threads in [0, 100_000] {
        let text = error(dir.path(), "127.0.0.1:1", |c| c.threads = threads).to_string();
        assert!(text.contains("from 1 to 1024"), "{text}");
    }
    let text = error(dir.path(), "127.0.0.1:1", |_| {}).to_string();
    let refused = "cannot reach the server at 127.0.0.1:1: Connection refused; is this its address, and does it run?";
    assert_eq!(text, refused);
}
