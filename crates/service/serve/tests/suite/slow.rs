//! A client with a link of 1 kbit/s. Its link is made here, and goes by the answers that another client gets
//! meanwhile, of which there are ten a second at least: no test waits for a clock.
use crate::common::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tacit_client::Connection;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
/// Bytes of a tenth of a second at 1 kbit/s.
const PIECE: usize = 12;
/// A link without a limit.
const FAST: u64 = u64::MAX / 2;

/// A way to a server that carries so many pieces in each direction, and then waits for more to be allowed.
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

    fn allow(&self, pieces: u64) {
        for allowed in self.allowed.iter() {
            allowed.fetch_add(pieces, Ordering::SeqCst);
        }
    }

    fn slow_down(&self) {
        self.allowed.iter().for_each(|allowed| allowed.store(0, Ordering::SeqCst));
    }
}

/// Carries what comes, piece by piece, until either end is closed.
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
    // Closed already is as good.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_link_of_1_kbit_is_served_and_harms_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    // A job that waits for the slow link has one of the cores.
    let server = Running::start(dir.path(), |c| c.cores = 2);
    let link = Link::to(&server, FAST);
    let mut config = server.config(dir.path(), "bob");
    config.address = link.address.clone();
    let mut bob = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    bob.infer(&X).unwrap();
    let mut alice = server.client(dir.path(), "alice", "two");
    link.slow_down();
    let asks = thread::spawn(move || bob.infer(&X).unwrap());
    let mut answers = 0;
    while !asks.is_finished() {
        assert_eq!(alice.infer(&X).unwrap().values, expected(2, &X));
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

/// The handshake takes more than twice the time that a silent connection has. So it is with 1 kbit/s and the
/// 10 s of a server.
#[test]
fn a_slow_handshake_is_waited_for_while_something_comes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.greeting_timeout = Duration::from_secs(1));
    let link = Link::to(&server, 0);
    let mut config = server.config(dir.path(), "bob");
    config.address = link.address.clone();
    config.connect_timeout = 20 * PATIENCE;
    let asks = thread::spawn(move || Connection::connect(registry(), config).unwrap().open("one", None).unwrap());
    // 480 bytes each way: a part of it.
    for _ in 0..40 {
        link.allow(1);
        thread::sleep(Duration::from_millis(55));
    }
    assert!(!asks.is_finished(), "it is under way");
    link.allow(FAST);
    assert_eq!(asks.join().unwrap().infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn who_is_too_slow_to_be_greeted_is_told_so_and_harms_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.greeting_timeout = Duration::from_secs(1));
    // A quarter of a second, and no more.
    let link = Link::to(&server, 3);
    let mut alice = server.client(dir.path(), "alice", "one");
    let mut config = server.config(dir.path(), "bob");
    config.address = link.address.clone();
    config.connect_timeout = 20 * PATIENCE;
    let asks = thread::spawn(move || Connection::connect(registry(), config).err().unwrap().to_string());
    while !asks.is_finished() {
        assert_eq!(alice.infer(&X).unwrap().values, expected(1, &X));
    }
    let error = asks.join().unwrap();
    assert!(error.contains(&link.address), "{error}");
    assert!(error.contains("closed the connection during the handshake"), "{error}");
    assert!(error.contains("within two minutes"), "what the limit is: {error}");
}
