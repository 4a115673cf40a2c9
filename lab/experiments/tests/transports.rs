//! Transports and workloads over loopback and in memory; see `tunnels.rs` for those over emulated links.
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tacit_experiments::LabError;
use tacit_experiments::transport::{Acceptor, TransportKind, connect};
use tacit_experiments::workload::{Bulk, Latency, Options, Outcome, Workload, run_client, run_server};
use tacit_net::{MemTransport, Rate, Transport};
use tacit_store::keys::init_closed;

const PATIENCE: Duration = Duration::from_secs(20);

fn options(transport: TransportKind) -> Options<'static> {
    Options { transport, pace: None, stall: PATIENCE, marks: None }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Runs `workload` over loopback; returns the outcomes of client and server.
fn run_over(kind: TransportKind, keys: &Path, workload: Workload) -> [Result<Outcome, LabError>; 2] {
    let acceptor = Acceptor::bind(kind, loopback(), Some(keys)).unwrap();
    let address = acceptor.address().unwrap();
    let server = thread::spawn(move || run_server(acceptor.accept(PATIENCE)?, options(kind)));
    let client = connect(kind, address, Some(keys), PATIENCE).and_then(|t| run_client(t, workload, 7, options(kind)));
    [client, server.join().unwrap()]
}

#[test]
fn every_workload_runs_over_plain_and_tls() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    init_closed(&keys).unwrap();
    for kind in [TransportKind::Plain, TransportKind::Tls] {
        let bytes = 3_000_017;
        let [client, server] = run_over(kind, &keys, Workload::BulkSend(Bulk::with_bytes(bytes))).map(Result::unwrap);
        assert_eq!((client.sent_bytes, client.received_bytes), (bytes, 0));
        assert_eq!((server.sent_bytes, server.received_bytes), (0, bytes));
        assert_eq!(client.messages, server.messages);
        assert_eq!((client.party.as_str(), server.party.as_str()), ("client", "server"));
        assert!((client.goodput_bps - bytes as f64 * 8.0 / client.seconds).abs() < 1.0);
        assert!(client.peak_rss_bytes > 1 << 20);
        assert!(client.transport == kind);
        let [client, server] =
            run_over(kind, &keys, Workload::BulkReceive(Bulk::with_bytes(bytes))).map(Result::unwrap);
        assert_eq!((client.received_bytes, server.sent_bytes), (bytes, bytes));
        let ping_pong = Workload::PingPong { messages: 50, size: 1000 };
        let [client, server] = run_over(kind, &keys, ping_pong).map(Result::unwrap);
        let latency = client.latency.unwrap();
        assert!(latency.min_s > 0.0);
        let ascending = [latency.min_s, latency.p50_s, latency.p95_s, latency.max_s, client.seconds];
        assert!(ascending.is_sorted(), "{ascending:?}");
        assert_eq!((client.messages, server.messages, server.latency), (50, 50, None));
    }
}

#[test]
fn keys_of_another_run_are_refused_by_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (own_keys, other_keys) = (dir.path().join("ours"), dir.path().join("theirs"));
    init_closed(&own_keys).unwrap();
    init_closed(&other_keys).unwrap();
    let acceptor = Acceptor::bind(TransportKind::Tls, loopback(), Some(&own_keys)).unwrap();
    let address = acceptor.address().unwrap();
    let server = thread::spawn(move || acceptor.accept(PATIENCE).err());
    let client = connect(TransportKind::Tls, address, Some(&other_keys), PATIENCE).err().unwrap();
    assert!(matches!(client, LabError::Net(tacit_net::NetError::Tls(_))), "{client}");
    assert!(server.join().unwrap().is_some());
}

#[test]
fn keys_are_private_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    init_closed(&keys).unwrap();
    for file in ["server.key", "client.key"] {
        assert_eq!(std::fs::metadata(keys.join(file)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!keys.join("ca.key").exists());
    assert!(init_closed(&keys).is_err());
    let missing = connect(TransportKind::Tls, loopback(), None, PATIENCE).err().unwrap();
    assert!(missing.to_string().contains("--keys"), "{missing}");
}

#[test]
fn names_of_transports_are_read_back_and_others_refused() {
    for kind in TransportKind::ALL {
        assert_eq!(kind.name().parse::<TransportKind>().unwrap(), kind);
        let json = serde_json::to_string(&kind).unwrap();
        assert_eq!(serde_json::from_str::<TransportKind>(&json).unwrap(), kind);
    }
    let error = "ssl".parse::<TransportKind>().unwrap_err();
    assert!(error.to_string().contains("tls+wireguard"), "{error}");
}

#[test]
fn requests_out_of_range_are_refused() {
    for workload in [
        Workload::BulkSend(Bulk::with_bytes(0)),
        Workload::BulkReceive(Bulk::with_bytes(u64::MAX)),
        Workload::BulkSend(Bulk { bytes: 1, seconds: Some(u64::MAX) }),
        Workload::PingPong { messages: 0, size: 1 },
        Workload::PingPong { messages: 1, size: 1 << 40 },
    ] {
        let (a, _b) = MemTransport::pair();
        let error = run_client(Box::new(a), workload, 1, options(TransportKind::Plain)).unwrap_err();
        assert!(matches!(error, LabError::Spec { .. }), "{error}");
        // The server refuses the same requests as the client's own check.
        let mut request = b"tacitwl2".to_vec();
        let words: [u64; 6] = match workload {
            Workload::BulkSend(b) => [1, b.bytes, b.seconds.unwrap_or(0), 0, 0, 0],
            Workload::BulkReceive(b) => [2, b.bytes, b.seconds.unwrap_or(0), 0, 0, 0],
            Workload::PingPong { messages, size } => [3, 0, 0, messages, size, 0],
        };
        words.iter().for_each(|w| request.extend_from_slice(&w.to_le_bytes()));
        let (mut a, b) = MemTransport::pair();
        a.write_all(&request).unwrap();
        let error = run_server(Box::new(b), options(TransportKind::Plain)).unwrap_err();
        assert!(matches!(error, LabError::Spec { .. }), "{error}");
    }
    let (mut a, b) = MemTransport::pair();
    a.write_all(&[b'x'; 56]).unwrap();
    let error = run_server(Box::new(b), options(TransportKind::Plain)).unwrap_err();
    assert!(error.to_string().contains("no tacit workload"), "{error}");
}

/// A transport that changes the received byte at one offset.
struct Flip<T> {
    inner: T,
    remaining: usize,
}

impl<T: Transport> Read for Flip<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        if self.remaining < n {
            buf[self.remaining] ^= 0x10;
        }
        self.remaining = self.remaining.checked_sub(n).unwrap_or(usize::MAX);
        Ok(n)
    }
}

impl<T: Transport> Write for Flip<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.inner.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Transport> Transport for Flip<T> {
    fn peer(&self) -> String {
        self.inner.peer()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

/// Offset for [`run_in_memory`] that no transfer reaches.
const UNCHANGED: usize = usize::MAX;

/// Runs `workload` in memory, with a client of this pace, and changes the byte that the server
/// receives at offset `changed`; returns the outcomes of client and server.
fn run_in_memory(workload: Workload, pace: Option<Rate>, changed: usize) -> [Result<Outcome, LabError>; 2] {
    let (a, b) = MemTransport::pair();
    let flip = Flip { inner: b, remaining: changed };
    let server = thread::spawn(move || run_server(Box::new(flip), options(TransportKind::Plain)));
    let client = run_client(Box::new(a), workload, 3, Options { pace, ..options(TransportKind::Plain) });
    [client, server.join().unwrap()]
}

#[test]
fn changed_byte_is_located_by_both_parties() {
    // After the request of 56 bytes; every 64 KiB have a header of 8.
    let headers = (1_234_567 / 65_536 + 1) * 8;
    let workload = Workload::BulkSend(Bulk::with_bytes(2_000_000));
    for outcome in run_in_memory(workload, None, 56 + headers + 1_234_567) {
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("1 of 2000000 bytes"), "{text}");
        assert!(text.contains("offset 1234567"), "{text}");
    }
}

#[test]
fn changed_header_ends_the_transfer() {
    for place in 0..8 {
        // The second block's header.
        let workload = Workload::BulkSend(Bulk::with_bytes(1 << 20));
        let [client, server] = run_in_memory(workload, None, 56 + 8 + 65_536 + place);
        let text = server.unwrap_err().to_string();
        assert!(text.contains("header makes no sense"), "{text}");
        assert!(client.is_err());
    }
}

#[test]
fn time_limit_ends_a_transfer_for_both_parties() {
    let workload = Workload::BulkSend(Bulk { bytes: 1 << 30, seconds: Some(1) });
    let [client, server] = run_in_memory(workload, "40mbit".parse().ok(), UNCHANGED).map(Result::unwrap);
    assert_eq!(client.sent_bytes, server.received_bytes);
    assert!(client.sent_bytes < 7_000_000, "{} bytes in a second at 40 Mbit/s", client.sent_bytes);
    // A first window of 4 MiB takes 0.8 s at this rate, and all of it more than 200 s.
    assert!(client.seconds > 0.8, "{client:?}");
    assert!(client.seconds < 60.0, "{client:?}");
    // Without limit everything leaves, though it takes more words than the window has.
    let workload = Workload::BulkReceive(Bulk::with_bytes(30_000_001));
    let [client, server] = run_in_memory(workload, None, UNCHANGED).map(Result::unwrap);
    assert_eq!((client.received_bytes, server.sent_bytes), (30_000_001, 30_000_001));
}

#[test]
fn paced_workload_keeps_its_rate() {
    let workload = Workload::BulkSend(Bulk::with_bytes(600_000));
    let [client, _] = run_in_memory(workload, "16mbit".parse().ok(), UNCHANGED).map(Result::unwrap);
    // The bucket starts full: 8000 bytes of it leave at once.
    assert!(client.goodput_bps < 16.4e6, "{} bit/s", client.goodput_bps);
    assert!(client.seconds < 60.0, "{} s", client.seconds);
}

#[test]
fn latency_figures_are_nearest_ranks() {
    let mut times: Vec<f64> = (1..=20).rev().map(f64::from).collect();
    let latency = Latency::from_times(&mut times).unwrap();
    assert_eq!((latency.min_s, latency.p50_s, latency.p95_s, latency.max_s), (1.0, 10.0, 19.0, 20.0));
    assert_eq!(latency.mean_s, 10.5);
    assert_eq!(Latency::from_times(&mut [4.0]).unwrap().p95_s, 4.0);
    assert_eq!(Latency::from_times(&mut []), None);
}
