//! Channels over memory and TCP: round trips, counters, simultaneous bulk sends, stalls and closed peers.
use super::common::{A, B, assert_stalled, channel, sockets, wire};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use tacit_net::*;

#[test]
fn messages_arrive_in_order_and_lengths_are_kept() {
    let (mut a, mut b) = mem_pair();
    for len in [0, 1, 9, 70_000, MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 3 * MAX_FRAME_BYTES] {
        let message: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
        a.send(A, &message).unwrap();
        a.send(B, &message).unwrap();
        a.flush().unwrap();
        assert_eq!(b.recv(A, len).unwrap(), message);
        assert_eq!(b.recv_max(B, len).unwrap(), message);
    }
}

#[test]
fn traffic_is_counted_per_phase_and_rounds_per_turn() {
    let (mut a, mut b) = mem_pair();
    a.send(A, &[1; 5]).unwrap();
    a.send(B, &[2; 7]).unwrap();
    let peer = thread::spawn(move || {
        b.recv(A, 5).unwrap();
        b.recv(B, 7).unwrap();
        b.set_phase(Phase::Online);
        b.send(A, &[3; 100]).unwrap();
        b.flush().unwrap();
        b
    });
    a.set_phase(Phase::Online);
    a.recv(A, 100).unwrap();
    a.set_phase(Phase::Offline);
    let b = peer.join().unwrap();
    let h = HEADER_BYTES as u64;
    assert_eq!(a.traffic(Phase::Setup), Traffic { sent: 12 + 2 * h, received: 0, rounds: 1, messages: 2 });
    assert_eq!(a.traffic(Phase::Online), Traffic { sent: 0, received: 100 + h, rounds: 0, messages: 0 });
    assert_eq!(a.traffic(Phase::Offline), Traffic::default());
    assert_eq!(b.traffic(Phase::Setup).received, 12 + 2 * h);
    assert_eq!(b.traffic(Phase::Setup).rounds, 0, "b had said nothing before it read");
    assert_eq!(b.total_traffic().sent, a.total_traffic().received);
    for channel in [&a, &b] {
        let total = channel.total_traffic();
        assert_eq!(channel.transferred_bytes().load(std::sync::atomic::Ordering::Relaxed), total.sent + total.received);
    }
}

fn both_send_before_reading(mut a: Channel, mut b: Channel, bytes: usize) {
    let big = vec![7u8; bytes];
    let peer = thread::spawn(move || {
        let big = vec![9u8; bytes];
        b.send(A, &big).unwrap();
        b.recv(A, bytes).unwrap().iter().all(|&x| x == 7)
    });
    a.send(A, &big).unwrap();
    assert!(a.recv(A, bytes).unwrap().iter().all(|&x| x == 9));
    assert!(peer.join().unwrap());
}

#[test]
fn both_parties_may_send_64_mib_before_reading() {
    for (a, b) in [mem_pair(), tcp_pair().unwrap()] {
        both_send_before_reading(a, b, 64 << 20);
    }
}

#[test]
fn bytes_queued_when_a_channel_is_dropped_still_arrive() {
    let (mut a, mut b) = tcp_pair().unwrap();
    let sender = thread::spawn(move || {
        a.send(A, &vec![5u8; 24 << 20]).unwrap();
        a.send(B, b"last words").unwrap();
    });
    thread::sleep(Duration::from_millis(50));
    assert!(b.recv(A, 24 << 20).unwrap().iter().all(|&x| x == 5));
    assert_eq!(b.recv_max(B, 100).unwrap(), b"last words");
    sender.join().unwrap();
    assert_eq!(b.recv(A, 1), Err(NetError::Closed { tag: A }));
}

#[test]
fn a_stalled_peer_ends_with_a_named_error_and_the_channel_stays_failed() {
    for (mut a, _b) in [mem_pair(), tcp_pair().unwrap()] {
        a.set_stall_timeout(Duration::from_millis(60)).unwrap();
        let error = a.recv(A, 3).unwrap_err();
        assert!(matches!(error, NetError::Stalled { .. }) && error.to_string().contains("`first`"), "{error}");
        assert_eq!(a.send(A, &[1]), Err(NetError::Failed { first: error.to_string() }));
    }
}

#[test]
fn deadline_ends_a_read_that_trickles() {
    let (mut peer, socket) = sockets();
    let mut channel = channel(socket);
    let trickle = thread::spawn(move || {
        while std::io::Write::write_all(&mut peer, &A.id().to_le_bytes()[..1]).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    });
    channel.set_deadline(Some(Instant::now() + Duration::from_millis(400)));
    // Ten bytes would make a header; the deadline comes first, though no single read stalls for long.
    assert_stalled(channel.recv_max(Tag::new(0x0101, "trickled"), 1 << 30));
    drop(channel);
    trickle.join().unwrap();
}

#[test]
fn moving_deadline_follows_received_bytes_up_to_its_last_time() {
    let accepted = |step, last_end| {
        let (peer, socket) = sockets();
        let mut tcp = TcpTransport::new(socket).unwrap();
        let (now, millis) = (Instant::now(), Duration::from_millis);
        tcp.set_moving_deadline(MovingDeadline {
            end: now + millis(300),
            step: millis(step),
            last: now + millis(last_end),
        });
        (peer, Channel::new(Box::new(tcp)))
    };
    let send_after = |mut peer: TcpStream, pause: u64, bytes: Vec<u8>| {
        thread::spawn(move || {
            bytes.iter().all(|byte| {
                thread::sleep(Duration::from_millis(pause));
                std::io::Write::write_all(&mut peer, &[*byte]).is_ok()
            })
        })
    };
    let message = wire(&[(A, &[1, 2, 3])]);
    // All of it takes longer than the first byte may.
    let (peer, mut channel) = accepted(60_000, 60_000);
    let saying = send_after(peer, 50, message.clone());
    assert_eq!(channel.recv(A, 3).unwrap(), [1, 2, 3]);
    assert!(saying.join().unwrap());
    // Its last time ends the read, however much comes.
    let (peer, mut channel) = accepted(60_000, 900);
    let saying = send_after(peer, 300, message);
    assert_stalled(channel.recv(A, 3));
    drop(channel);
    saying.join().unwrap();
}

#[test]
fn a_peer_that_reads_nothing_stalls_the_sender_once_the_queue_is_full() {
    let (mut a, _b) = tcp_pair().unwrap();
    a.set_stall_timeout(Duration::from_millis(100)).unwrap();
    let big = vec![0u8; 32 << 20];
    assert_stalled((0..8).try_for_each(|_| a.send(A, &big)));
}

#[test]
fn deadline_ends_writes() {
    // The peer takes nothing, and the stall timeout is minutes: the deadline ends these calls.
    let soon = || Some(Instant::now() + Duration::from_millis(200));
    let (mut a, _b) = tcp_pair().unwrap();
    a.set_deadline(soon());
    let big = vec![0u8; 32 << 20];
    assert_stalled((0..8).try_for_each(|_| a.send(A, &big)));
    let (mut a, _b) = tcp_pair().unwrap();
    a.send(A, &big).unwrap();
    a.set_deadline(soon());
    assert_stalled(a.settle());
    let (mut a, _b) = tcp_pair().unwrap();
    a.set_deadline(Some(Instant::now()));
    assert_stalled(a.send(A, &[1]).and_then(|()| a.flush()));
}

#[test]
fn a_closed_peer_is_named() {
    for (mut a, b) in [mem_pair(), tcp_pair().unwrap()] {
        drop(b);
        assert_eq!(a.recv(B, 4), Err(NetError::Closed { tag: B }));
    }
}

#[test]
fn handshake_mismatches_are_named_on_both_sides() {
    let good = Hello::for_model([1; 32], [2; 32]);
    type Expected = fn(&NetError) -> bool;
    let cases: [(Hello, Expected); 3] = [
        (Hello { version: 99, ..good }, |e| matches!(e, NetError::VersionMismatch { .. })),
        (Hello { plan: [9; 32], ..good }, |e| matches!(e, NetError::PlanMismatch { .. })),
        (Hello { public: [0; 32], ..good }, |e| matches!(e, NetError::PublicMismatch { .. })),
    ];
    for (bad, expected) in cases {
        let (mut a, mut b) = mem_pair();
        let peer = thread::spawn(move || handshake(&mut b, &bad));
        let ours = handshake(&mut a, &good).unwrap_err();
        let peer_error = peer.join().unwrap().unwrap_err();
        assert!(expected(&ours) && expected(&peer_error), "{ours} / {peer_error}");
    }
    let (mut a, mut b) = mem_pair();
    let peer = thread::spawn(move || handshake(&mut b, &good));
    assert_eq!((handshake(&mut a, &good), peer.join().unwrap()), (Ok(()), Ok(())));
    let (mut a, mut b) = mem_pair();
    b.send(Tag::HELLO, b"GET / HTTP/1.1\r\n").unwrap();
    b.flush().unwrap();
    assert!(matches!(handshake(&mut a, &good), Err(NetError::NotTacit { .. })));
}

#[test]
fn recv_with_reports_a_readers_fault_as_malformed() {
    let (mut a, mut b) = mem_pair();
    for text in ["first", "other"] {
        a.send_with(A, |bytes| bytes.extend_from_slice(text.as_bytes())).unwrap();
    }
    a.flush().unwrap();
    assert_eq!(b.recv_with(A, 5, |bytes| Ok(bytes.to_vec())).unwrap(), b"first");
    let refused = b.recv_with(A, 5, |_| Err::<(), _>("no good".into()));
    assert_eq!(refused, Err(NetError::Malformed { tag: A, what: "no good".into() }));
    assert!(matches!(b.recv(A, 5), Err(NetError::Failed { .. })));
}
