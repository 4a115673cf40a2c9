//! Limits of the control interface against badly behaved holders of a certificate.
use crate::common::*;
use std::io::{Read, Write};
use std::time::Duration;
use tacit_net::TlsTransport;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const GET: &[u8] = b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn say(stream: &mut TlsTransport, text: impl AsRef<[u8]>) {
    stream.write_all(text.as_ref()).unwrap();
    stream.flush().unwrap();
}

/// Returns all bytes until the server closes the connection.
fn all(stream: &mut TlsTransport) -> String {
    let mut text = Vec::new();
    // How the connection closes is not checked here.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn heads_and_bodies_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::impatient(dir.path());
    let mut large = server.http(dir.path(), "ops");
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100 << 10));
    say(&mut large, &head);
    let answer = all(&mut large);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer:?}");
    let put = |length: usize| {
        format!(
            "PUT /v1/policy HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let mut large = server.http(dir.path(), "ops");
    say(&mut large, put(1 << 30).as_bytes());
    // The server answers long before the body ends; the answer is readable after all was sent.
    say(&mut large, vec![b'['; 4 << 20]);
    let answer = all(&mut large);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    assert!(answer.contains("65536 bytes"), "{answer:?}");
    // A body that never arrives in full.
    let mut slow = server.http(dir.path(), "ops");
    say(&mut slow, put(100).as_bytes());
    say(&mut slow, b"{");
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    // Bytes that are not HTTP.
    let mut other = server.http(dir.path(), "ops");
    say(&mut other, b"\x16\x03\x01 hello\r\n\r\n");
    assert!(all(&mut other).starts_with("HTTP/1.1 400"));
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn who_sends_a_head_byte_by_byte_or_nothing_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.control_idle = PATIENCE);
    let (mut slow, mut idle, mut silent) =
        (server.http(dir.path(), "alice"), server.http(dir.path(), "alice"), server.http(dir.path(), "ops"));
    say(&mut idle, GET);
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut sent = 0;
    // Bytes of an unfinished head do not extend the time limit.
    for byte in GET[..GET.len() - 1].iter().cycle() {
        if slow.write_all(&[*byte]).and_then(|()| slow.flush()).is_err() {
            break;
        }
        sent += 1;
        assert!(sent < 10_000, "the server never closes");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!all(&mut slow).contains("200 OK"));
    assert!(all(&mut idle).contains("live"));
    assert_eq!(all(&mut silent), "");
    server.settle();
}

#[test]
fn a_hundred_idle_ones_keep_no_client_out_and_hold_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| {
        (c.max_connections, c.max_control, c.control_per_client) = (2, 110, 100);
    });
    let mut idle: Vec<TlsTransport> = (0..100).map(|_| server.http(dir.path(), "alice")).collect();
    for stream in &mut idle {
        say(stream, GET);
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    let mut one_more = server.http(dir.path(), "alice");
    let answer = all(&mut one_more);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("one client"), "{answer}");
    let mut others: Vec<TlsTransport> = (0..10).map(|_| server.http(dir.path(), "bob")).collect();
    for stream in &mut others {
        say(stream, GET);
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    // Idle clients take no place of an operator.
    let mut operator = server.http(dir.path(), "ops");
    say(&mut operator, GET);
    operator.read_exact(&mut [0; 12]).unwrap();
    let mut clients = [server.client(dir.path(), "alice", "one"), server.client(dir.path(), "bob", "two")];
    assert_eq!(clients[0].infer(&X).unwrap().values, expected(1, &X));
    assert_eq!(clients[1].infer(&X).unwrap().values, expected(2, &X));
    assert_eq!(server.handle.connections(), 113);
    server.handle.shutdown(Duration::ZERO);
    assert_eq!(server.handle.connections(), 0, "all end with the server");
}
