//! Phases as spans, at a small collector and at one that reads nothing.
use crate::common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Reads the first line and the body of a request.
fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    stream.read_line(&mut first).ok().filter(|n| *n > 0)?;
    while stream.read_line(&mut line).ok()? > 2 {
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((first, String::from_utf8(body).unwrap()))
}

/// Starts a collector that answers; returns its address and the requests that it gets.
fn collector() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/otlp", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (BufReader::new(stream.unwrap()), sender.clone());
            thread::spawn(move || {
                while let Some(request) = read_request(&mut stream) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                    if sender.send(request).is_err() || stream.get_mut().write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let attributes = span["attributes"].as_array().unwrap();
    let entry = attributes.iter().find(|a| a["key"] == key).unwrap_or_else(|| panic!("{key} is not in {span}"));
    let value = &entry["value"];
    value.get("stringValue").or(value.get("intValue")).and_then(Value::as_str).unwrap()
}

#[test]
fn exports_one_span_per_phase() {
    let (address, requests) = collector();
    let server = Running::start(|config| config.traces = Some(address.parse().unwrap()));
    let mut client = server.client("alice", "one");
    let answer = client.infer(&X).unwrap();
    drop(client);
    server.settle();
    drop(server);
    // A server sends all spans before it stops.
    let mut spans = Vec::new();
    for (first, body) in requests.try_iter() {
        assert!(first.starts_with("POST /otlp/v1/traces HTTP/1.1"), "{first}");
        let export: Value = serde_json::from_str(&body).unwrap();
        let resource = &export["resourceSpans"][0];
        assert_eq!(attribute(&resource["resource"], "service.name"), "tacit-server");
        spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let [setup, offline, online] = ["setup", "offline", "online"].map(|name| match named(name)[..] {
        [one] => one,
        ref several => panic!("{} spans of {name}", several.len()),
    });
    assert_eq!(named("queued").len(), 3);
    for phase in [offline, online] {
        assert_eq!(attribute(phase, "tacit.input"), answer.name.to_string());
        assert_eq!((attribute(phase, "tacit.model"), attribute(phase, "tacit.outcome")), ("one", "done"));
        assert_eq!(phase["traceId"], offline["traceId"]);
        let at = |key: &str| phase[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(at("startTimeUnixNano") <= at("endTimeUnixNano"), "{phase}");
        assert!(phase["status"]["code"] == 1, "{phase}");
        let waits = |span: &&&Value| span["parentSpanId"] == phase["spanId"];
        assert_eq!(named("queued").iter().filter(waits).count(), 1);
    }
    assert_ne!(setup["traceId"], offline["traceId"]);
    assert!(!spans.iter().any(|span| span.to_string().contains("3.0")), "a span tells of an input");
}

#[test]
fn silent_collector_delays_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let server = Running::start(|config| config.traces = Some(address.parse().unwrap()));
    let mut client = server.client("alice", "one");
    // More inputs than the queue of spans holds.
    for _ in 0..1500 {
        check_answer(&mut client, 1);
    }
    drop(client);
    server.settle();
    assert_eq!(server.handle.served(), 1500);
}
