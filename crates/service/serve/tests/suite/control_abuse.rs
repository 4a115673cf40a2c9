//! Limits of the control interface for clients that misbehave.
use crate::common::*;
use std::io::{Read, Write};
use std::time::Duration;
use tacit_net::TlsTransport;

const GET: &[u8] = b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Reads the start of an answer, `HTTP/1.1` and its status.
fn read_status(stream: &mut TlsTransport) -> String {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn say(stream: &mut TlsTransport, text: impl AsRef<[u8]>) {
    stream.write_all(text.as_ref()).unwrap();
    stream.flush().unwrap();
}

/// Returns all bytes until the server closes the connection.
fn read_all(stream: &mut TlsTransport) -> String {
    let mut text = Vec::new();
    // The way in which the connection closes does not matter.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn limits_heads_and_bodies() {
    let server = Running::impatient();
    let mut large = server.http("ops");
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100 << 10));
    say(&mut large, &head);
    let answer = read_all(&mut large);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer:?}");
    let put = |length: usize| {
        format!(
            "PUT /v1/policy HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let mut large = server.http("ops");
    say(&mut large, put(1 << 30).as_bytes());
    // The server answers long before the body ends; the answer is readable after all was sent.
    say(&mut large, vec![b'['; 4 << 20]);
    let answer = read_all(&mut large);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    assert!(answer.contains("65536 bytes"), "{answer:?}");
    // A body that never arrives in full.
    let mut slow = server.http("ops");
    say(&mut slow, put(100).as_bytes());
    say(&mut slow, b"{");
    assert_eq!(read_status(&mut slow), "HTTP/1.1 408");
    let mut other = server.http("ops");
    say(&mut other, b"\x16\x03\x01 hello\r\n\r\n");
    assert!(read_all(&mut other).starts_with("HTTP/1.1 400"));
    check_answer(&mut server.client("alice", "one"), 1);
}

#[test]
fn closes_slow_and_idle_http_connections() {
    let server = Running::start(|c| c.control_idle = PATIENCE);
    let (mut slow, mut idle, mut silent) = (server.http("alice"), server.http("alice"), server.http("ops"));
    say(&mut idle, GET);
    assert_eq!(read_status(&mut idle), "HTTP/1.1 200");
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
    assert!(!read_all(&mut slow).contains("200 OK"));
    assert!(read_all(&mut idle).contains("live"));
    assert_eq!(read_all(&mut silent), "");
    server.settle();
}

#[test]
fn limits_idle_http_connections() {
    let server = Running::start(|c| {
        (c.max_connections, c.max_control, c.control_per_client) = (2, 110, 100);
    });
    let mut idle: Vec<TlsTransport> = (0..100).map(|_| server.http("alice")).collect();
    for stream in &mut idle {
        say(stream, GET);
        assert_eq!(read_status(stream), "HTTP/1.1 200");
    }
    let mut one_more = server.http("alice");
    let answer = read_all(&mut one_more);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("one client"), "{answer}");
    let mut others: Vec<TlsTransport> = (0..10).map(|_| server.http("bob")).collect();
    for stream in &mut others {
        say(stream, GET);
        read_status(stream);
    }
    // Idle clients take no place of an operator.
    let mut operator = server.http("ops");
    say(&mut operator, GET);
    read_status(&mut operator);
    let mut clients = [server.client("alice", "one"), server.client("bob", "two")];
    check_answer(&mut clients[0], 1);
    check_answer(&mut clients[1], 2);
    assert_eq!(server.handle.connections(), 113);
    server.handle.shutdown(Duration::ZERO);
    assert_eq!(server.handle.connections(), 0);
}
