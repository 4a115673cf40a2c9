//! A sidecar of a server with toy models, and a client of it that may send anything.
#![allow(dead_code)]
#[path = "../../../serve/tests/common/mod.rs"]
pub mod served;

use served::{Running, registry};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tacit_client::ClientConfig;
use tacit_sidecar::access::{Access, Token};
use tacit_sidecar::fleet::{Fleet, FleetConfig};
use tacit_sidecar::server::{self, Listener};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub const TOKEN: &str = "0123456789abcdef";

/// A sidecar on a free port.
pub struct Sidecar {
    pub address: SocketAddr,
    pub grpc: SocketAddr,
    pub fleet: Arc<Fleet>,
    /// Dropping it stops the listener.
    stop: watch::Sender<bool>,
    runtime: Runtime,
}

impl Sidecar {
    /// Starts a sidecar and waits until its models are ready: `one` and `two`, unless `tune` names others.
    pub fn start(server: &Running, tune: impl FnOnce(&mut FleetConfig)) -> Self {
        let sidecar = Self::unready(server, tune);
        served::wait_until("the sidecar is ready", || {
            !sidecar.fleet.lanes().is_empty() && sidecar.fleet.ready().is_ok()
        });
        sidecar
    }

    /// As [`start`](Self::start), at once.
    pub fn unready(server: &Running, tune: impl FnOnce(&mut FleetConfig)) -> Self {
        let client = ClientConfig { store: None, ..server.config("alice") };
        let mut config = FleetConfig {
            keys: None,
            registry: registry(),
            client,
            models: vec![],
            labels: [("one".to_owned(), vec!["cat".to_owned()])].into(),
            workers: 1,
            queue: 4,
            ready: 0,
            ready_batch: 1,
            energy: None,
        };
        tune(&mut config);
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(Listener::tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = listener.address().unwrap();
        let fleet = Fleet::start(config).unwrap();
        let router = server::http(&fleet, Access::tcp(address, Token::new(TOKEN)));
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(server::serve(listener, router, stopped.clone()));
        let listener = runtime.block_on(Listener::tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let grpc = listener.address().unwrap();
        let router = server::grpc(&fleet, Access::tcp(grpc, Token::new(TOKEN)));
        runtime.spawn(server::serve(listener, router, stopped));
        Self { address, grpc, fleet, stop, runtime }
    }

    /// A server of toy models, and its sidecar.
    pub fn with_server() -> (Running, Self) {
        let server = Running::start(|_| {});
        let sidecar = Self::start(&server, |_| {});
        (server, sidecar)
    }

    /// A sidecar of the model `one` behind a gate, and its server.
    pub fn gated(tune: impl FnOnce(&mut FleetConfig)) -> (Running, Gate, Self) {
        let server = Running::start(|_| {});
        let gate = Gate::to(&server);
        let sidecar = Self::start(&server, |c| {
            c.client.address = gate.address.clone();
            c.models = vec![("one".into(), None)];
            tune(c);
        });
        (server, gate, sidecar)
    }

    /// Sends a request with the token.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let token = format!("Authorization: Bearer {TOKEN}");
        let mut all_headers = vec![token.as_str()];
        all_headers.extend_from_slice(headers);
        self.ask_as(method, path, &all_headers, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &["Content-Type: application/json"], body.as_bytes())
    }

    /// Sends a request with these headers and, if they name no host, the right host.
    pub fn ask_as(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let names_host = headers.iter().any(|header| header.starts_with("Host:"));
        let host = if names_host { String::new() } else { format!("Host: {}\r\n", self.address) };
        let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        self.exchange(&[head.as_bytes(), body].concat())
    }

    /// Sends a request and does not read its answer.
    pub fn abandon(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let (address, length) = (self.address, body.len());
        let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}");
        stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// Sends bytes, and reads until the connection ends.
    pub fn exchange(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A sidecar that refuses early does not read all of it.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::parse(&answer)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.fleet.stop();
    }
}

/// A link to the server. While it is closed, bytes wait in it.
pub struct Gate {
    pub address: String,
    /// Pieces that may pass.
    allowed: Arc<AtomicU64>,
}

/// Pieces that pass an open gate.
const OPEN: u64 = u64::MAX / 2;

impl Gate {
    pub fn to(server: &Running) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate =
            Self { address: listener.local_addr().unwrap().to_string(), allowed: Arc::new(AtomicU64::new(OPEN)) };
        let (server, allowed) = (server.address.clone(), gate.allowed.clone());
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, Ok(far)) = (near.unwrap(), TcpStream::connect(&server)) else { continue };
                for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    let allowed = allowed.clone();
                    thread::spawn(move || carry(from, to, &allowed));
                }
            }
        });
        gate
    }

    pub fn set(&self, open: bool) {
        self.allowed.store(if open { OPEN } else { 0 }, Ordering::SeqCst);
    }

    /// Lets one piece pass in either direction.
    pub fn let_one_pass(&self) {
        self.allowed.fetch_add(1, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, allowed: &AtomicU64) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1)).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// An answer of the sidecar.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    fn parse(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(answer.len());
        let headers = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let code = headers.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { code, headers, body: answer.get(end + 4..).unwrap_or_default().to_vec() }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The text of an error.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}
