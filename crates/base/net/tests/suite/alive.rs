//! Signs of life while a party computes, and a peer that closes while this party writes.
use super::common::{self, assert_error, assert_stalled, channel, sockets};
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};
use tacit_net::*;

const ASK: Tag = Tag::new(0xf001, "question");
const ANSWER: Tag = Tag::new(0xf002, "answer");
const SHORT: Duration = Duration::from_millis(300);

/// Runs a server that works for `work` on its answer; returns what the client got and both parties' traffic.
fn answered(work: Duration, patience: Duration) -> (Result<Vec<u8>, NetError>, [Traffic; 2]) {
    let (mut client, mut server) = tcp_pair().unwrap();
    client.set_stall_timeout(SHORT).unwrap();
    client.set_patience(patience);
    server.set_sign_of_life(SHORT / 6);
    let serving = thread::spawn(move || {
        server.recv_max(ASK, 8).unwrap();
        server
            .while_alive(|| thread::sleep(work))
            .and_then(|()| {
                server.send(ANSWER, b"ready")?;
                server.flush()
            })
            .ok();
        server.total_traffic()
    });
    client.send(ASK, b"when?").unwrap();
    let answer = client.recv_max(ANSWER, 8);
    let traffic = client.total_traffic();
    drop(client);
    (answer, [traffic, serving.join().unwrap()])
}

#[test]
fn signs_of_life_keep_a_waiting_peer_and_are_not_counted() {
    let (quick, usual) = answered(Duration::ZERO, Duration::from_secs(60));
    let (answer, traffic) = answered(5 * SHORT, Duration::from_secs(60));
    assert_eq!((quick.unwrap(), answer.unwrap()), (b"ready".to_vec(), b"ready".to_vec()));
    assert_eq!(traffic, usual);
    assert_eq!((traffic[0].received, traffic[0].rounds), ((HEADER_BYTES + 5) as u64, 1));
}

#[test]
fn patience_limits_the_wait_for_signs_of_life() {
    let answer = answered(20 * SHORT, 2 * SHORT).0;
    assert_stalled(answer.clone());
    assert_error(answer, &["has only said that it lives"]);
    let error = answered(5 * SHORT, Duration::ZERO).0.unwrap_err();
    assert!(matches!(error, NetError::UnexpectedTag { got, .. } if got == Tag::ALIVE), "{error}");
}

#[test]
fn panic_of_the_work_ends_the_signs_of_life() {
    let (mut client, mut server) = tcp_pair().unwrap();
    server.set_sign_of_life(SHORT);
    let broke = thread::spawn(move || server.while_alive(|| -> () { panic!("on purpose") }).is_ok()).join();
    assert!(broke.is_err());
    assert!(matches!(client.recv_max(ANSWER, 8), Err(NetError::Closed { .. })), "the channel went with it");
}

#[test]
fn while_alive_reports_a_gone_peer_after_the_work() {
    let (client, mut server) = tcp_pair().unwrap();
    server.set_sign_of_life(SHORT / 6);
    drop(client);
    let error = server.while_alive(|| thread::sleep(2 * SHORT)).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(matches!(server.send(ANSWER, b"ready"), Err(NetError::Failed { .. })));
}

#[test]
fn blocked_send_notices_a_closed_peer_and_reads_its_last_words() {
    let (socket, peer) = sockets();
    let mut channel = channel(socket);
    channel.set_stall_timeout(Duration::from_secs(60)).unwrap();
    // The peer's socket stays open through a second handle, from which nothing is read.
    let mut open_end = peer.try_clone().unwrap();
    let closing = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        let mut channel = common::channel(peer);
        channel.send(ANSWER, b"goodbye").unwrap();
    });
    let (began, megabyte) = (Instant::now(), vec![7; 1 << 20]);
    let error = (0..).find_map(|_| channel.send(ASK, &megabyte).err()).unwrap();
    let took = began.elapsed();
    assert!(error.is_gone() && error.to_string().contains("closed the connection"), "{error}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(channel.last_words(ANSWER, 64).as_deref(), Some(&b"goodbye"[..]));
    closing.join().unwrap();
    let began = Instant::now();
    drop(channel);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(open_end.read(&mut [0; 16]).unwrap() > 0);
}

#[test]
fn settle_notices_a_closed_peer() {
    let (socket, peer) = sockets();
    let mut channel = channel(socket);
    channel.set_stall_timeout(Duration::from_secs(60)).unwrap();
    let open_end = peer.try_clone().unwrap();
    channel.send(ASK, &vec![7; 64 << 20]).unwrap();
    drop(common::channel(peer));
    let began = Instant::now();
    let error = channel.settle().unwrap_err();
    assert!(error.is_gone() && began.elapsed() < Duration::from_secs(30), "{error} after {:?}", began.elapsed());
    drop(open_end);
}
