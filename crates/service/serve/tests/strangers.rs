//! Unauthenticated connections do not keep clients out, and get nothing but TLS. The program of these tests
//! holds many sockets.
mod common;
#[path = "common/tls.rs"]
mod tls;
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::Connection;
use tacit_net::tls::{ALPN, HTTP_1, HTTP_2};
use tokio::net::TcpSocket;

/// More connections than handshake slots.
const FLOOD: usize = 1500;
/// Open files that the flood takes at most.
const FILES: u64 = 4096;

/// Idle connections, each opened again as soon as the server ends it.
struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    /// Connects from the loopback addresses that `source` gives.
    fn start(target: SocketAddr, source: fn(usize) -> Ipv4Addr) -> Self {
        let (stop, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (stop.clone(), opened.clone());
        let flood = async move {
            for i in 0..FLOOD {
                let (stopped, count) = (stopped.clone(), count.clone());
                tokio::spawn(async move {
                    while !stopped.load(Ordering::Relaxed) {
                        let socket = TcpSocket::new_v4().unwrap();
                        // The system may be short of ports for a moment.
                        if socket.bind(SocketAddrV4::new(source(i), 0).into()).is_ok()
                            && let Ok(stream) = socket.connect(target).await
                        {
                            count.fetch_add(1, Ordering::Relaxed);
                            let _ = stream.readable().await;
                        } else {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                });
            }
            while !stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(flood);
        });
        Self { stop, opened, thread: Some(thread) }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A client connects while idle connections hold all handshake slots and come again when they are evicted.
/// The timeout of these connections is too long to help.
fn check_client_gets_in(what: &str, from: fn(usize) -> Ipv4Addr) {
    let server = Running::start(|c| c.greeting_timeout = Duration::from_secs(3600));
    let address: SocketAddr = server.address.parse().unwrap();
    let flood = Flood::start(address, from);
    wait_until("the flood is there", || flood.opened() > FLOOD + 200);
    let mut config = server.config("alice");
    config.connect_timeout = Duration::from_secs(10);
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        // The first try may be too slow on a busy machine.
        let connection = (0..5).find_map(|_| Connection::connect(registry(), config.clone()).ok());
        let mut client = connection.expect("the client gets in").open("one", None).unwrap();
        times.push(start.elapsed().as_secs_f64());
        check_answer(&mut client, 1);
    }
    println!("{what}: in after {times:.2?} s, {} connections were opened by then", flood.opened());
    drop(flood);
}

#[test]
fn flood_keeps_no_client_out() {
    let most = getrlimit(Resource::Nofile).maximum;
    assert!(most.is_none_or(|most| most >= FILES), "this test needs {FILES} open files (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    check_client_gets_in("from the client's own address", |_| Ipv4Addr::LOCALHOST);
    check_client_gets_in("across 127.0.0.0/8", |i| Ipv4Addr::new(127, (i % 250) as u8, (i / 250) as u8, 7));
}

/// What a TLS client without a certificate gets after its handshake.
fn application_bytes(server: &Running, protocol: &[u8]) -> (Vec<u8>, ErrorKind) {
    let mut config = tls::trusting_config(&server.dir).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let mut stream = tls::connect(server, config);
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes).expect_err("the server refuses");
    assert!(!stream.conn.is_handshaking(), "for the client the handshake was over");
    (bytes, end.kind())
}

#[test]
fn unauthenticated_client_gets_no_application_byte() {
    let server = Running::impatient();
    for protocol in [ALPN, HTTP_2, HTTP_1] {
        let (bytes, end) = application_bytes(&server, protocol);
        assert!(bytes.is_empty(), "{bytes:?} {end:?}");
        assert!(end == ErrorKind::InvalidData, "{bytes:?} {end:?}");
    }
    // A client that speaks no TLS gets an alert at most.
    let mut raw = TcpStream::connect(&server.address).unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The server may close before it has read all of it.
    let _ = raw.read_to_end(&mut answer);
    assert!(answer.is_empty() || (answer[0] == 21 && answer.len() <= 7), "{answer:?}");
    // A silent client gets no byte before the end.
    let mut silent = TcpStream::connect(&server.address).unwrap();
    answer.clear();
    let _ = silent.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    server.settle();
}
