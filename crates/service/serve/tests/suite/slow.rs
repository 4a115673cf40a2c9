//! Clients whose link carries 1 kbit/s. Where a test measures no time, the link passes one piece for each
//! answer that another client gets: at least ten a second.
use crate::common::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tacit_client::{ClientConfig, Connection};

/// Bytes that 1 kbit/s carries in a tenth of a second.
const PIECE: usize = 12;
/// A link without a limit.
const FAST: u64 = u64::MAX / 2;

/// A link to a server that carries a number of pieces each way, and then waits until more are allowed.
struct Link {
    address: String,
    allowed: Arc<[AtomicU64; 2]>,
}

impl Link {
    fn to(server: &Running, allowed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let allowed = Arc::new([allowed, allowed].map(AtomicU64::new));
        let (peer, own) = (server.address.clone(), allowed.clone());
        // Ends with the connection that it carries.
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(peer).unwrap();
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            let also = own.clone();
            let other = thread::spawn(move || carry(back, &also[0]));
            carry((near, far), &own[1]);
            other.join().unwrap();
        });
        Self { address, allowed }
    }

    /// Bob's configuration for connections over this link.
    fn config(&self, server: &Running) -> ClientConfig {
        ClientConfig { address: self.address.clone(), connect_timeout: 20 * PATIENCE, ..server.config("bob") }
    }

    fn allow(&self, pieces: u64) {
        for allowed in self.allowed.iter() {
            allowed.fetch_add(pieces, Ordering::SeqCst);
        }
    }

    fn slow_down(&self) {
        self.allowed.iter().for_each(|allowed| allowed.store(0, Ordering::SeqCst));
    }
}

/// Carries bytes until either end is closed.
fn carry((mut from, mut to): (TcpStream, TcpStream), allowed: &AtomicU64) {
    let mut piece = [0; PIECE];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        while allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    // Fails if they are closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn serves_link_of_1_kbit() {
    // A job that waits for the slow link has one of the cores.
    let server = Running::start(|c| c.cores = 2);
    let link = Link::to(&server, FAST);
    let config = link.config(&server);
    let mut bob = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    bob.infer(&X).unwrap();
    let mut alice = server.client("alice", "two");
    link.slow_down();
    let asks = thread::spawn(move || bob.infer(&X).unwrap());
    let mut answers = 0;
    while !asks.is_finished() {
        check_answer(&mut alice, 2);
        answers += 1;
        link.allow(1);
    }
    let slow = asks.join().unwrap();
    assert_eq!(slow.values, expected(1, &X));
    let phases = [&slow.online, &slow.prepared.as_ref().unwrap().offline];
    let sent: u64 = phases.iter().map(|phase| phase.client.sent_bytes).sum();
    assert!(answers >= sent / PIECE as u64, "{answers} answers while {sent} bytes went");
    drop(alice);
    server.settle();
    assert_eq!(server.handle.served(), answers + 2);
}

/// The handshake takes more than twice the time after which the server closes a silent connection, as at
/// 1 kbit/s with a server's usual 10 s.
#[test]
fn waits_for_slow_handshake() {
    let server = Running::start(|c| c.greeting_timeout = Duration::from_secs(1));
    let link = Link::to(&server, 0);
    let config = link.config(&server);
    let asks = thread::spawn(move || Connection::connect(registry(), config).unwrap().open("one", None).unwrap());
    // A part of the handshake: 480 bytes each way.
    for _ in 0..40 {
        link.allow(1);
        thread::sleep(Duration::from_millis(55));
    }
    assert!(!asks.is_finished());
    link.allow(FAST);
    assert_eq!(asks.join().unwrap().infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn names_too_slow_handshake() {
    let server = Running::start(|c| c.greeting_timeout = Duration::from_secs(1));
    // The link stops after a quarter of a second.
    let link = Link::to(&server, 3);
    let mut alice = server.client("alice", "one");
    let config = link.config(&server);
    let asks = thread::spawn(move || Connection::connect(registry(), config).err().unwrap().to_string());
    while !asks.is_finished() {
        check_answer(&mut alice, 1);
    }
    check_contains(
        &asks.join().unwrap(),
        &[&link.address, "closed the connection during the handshake", "within two minutes"],
    );
}
