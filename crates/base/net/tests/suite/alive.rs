//! Signs of life while a party computes, and a peer that closes while this party writes.
use std::io::Read;
use std::net::{TcpListener, TcpStream};
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
fn a_party_that_computes_for_longer_than_its_peer_waits_is_not_taken_for_gone() {
    let (quick, usual) = answered(Duration::ZERO, Duration::from_secs(60));
    let (answer, traffic) = answered(5 * SHORT, Duration::from_secs(60));
    assert_eq!((quick.unwrap(), answer.unwrap()), (b"ready".to_vec(), b"ready".to_vec()));
    assert_eq!(traffic, usual, "nobody counts signs of life, as bytes, messages or rounds");
    assert_eq!((traffic[0].received, traffic[0].rounds), ((HEADER_BYTES + 5) as u64, 1));
}

#[test]
fn signs_of_life_alone_are_not_waited_for_without_end() {
    let error = answered(20 * SHORT, 2 * SHORT).0.unwrap_err();
    assert!(
        matches!(&error, NetError::Stalled { detail, .. } if detail.contains("has only said that it lives")),
        "{error}"
    );
    let error = answered(5 * SHORT, Duration::ZERO).0.unwrap_err();
    assert!(matches!(error, NetError::UnexpectedTag { got, .. } if got == Tag::ALIVE), "{error}");
}

#[test]
fn work_that_panics_ends_its_teller() {
    let (mut client, mut server) = tcp_pair().unwrap();
    server.set_sign_of_life(SHORT);
    let broke = thread::spawn(move || server.while_alive(|| -> () { panic!("on purpose") }).is_ok()).join();
    assert!(broke.is_err());
    assert!(matches!(client.recv_max(ANSWER, 8), Err(NetError::Closed { .. })), "the channel went with it");
}

#[test]
fn a_peer_that_is_gone_meanwhile_is_told_when_the_work_is_done() {
    let (client, mut server) = tcp_pair().unwrap();
    server.set_sign_of_life(SHORT / 6);
    drop(client);
    let error = server.while_alive(|| thread::sleep(2 * SHORT)).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(matches!(server.send(ANSWER, b"ready"), Err(NetError::Failed { .. })));
}

/// A channel and the raw socket at its other end.
fn connected() -> (Channel, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Channel::new(Box::new(TcpTransport::new(ours).unwrap())), listener.accept().unwrap().0)
}

#[test]
fn a_party_that_is_blocked_in_writing_notices_that_its_peer_has_closed() {
    let (mut channel, peer) = connected();
    channel.set_stall_timeout(Duration::from_secs(60)).unwrap();
    // The peer's socket stays open through a second handle, from which nothing is read.
    let mut open_end = peer.try_clone().unwrap();
    let closing = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        let mut channel = Channel::new(Box::new(TcpTransport::new(peer).unwrap()));
        channel.send(ANSWER, b"goodbye").unwrap();
    });
    let (began, megabyte) = (Instant::now(), vec![7; 1 << 20]);
    let error = (0..).find_map(|_| channel.send(ASK, &megabyte).err()).unwrap();
    let took = began.elapsed();
    assert!(error.is_gone() && error.to_string().contains("closed the connection"), "{error}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(channel.last_words(ANSWER, 64).as_deref(), Some(&b"goodbye"[..]), "what was said last is heard");
    closing.join().unwrap();
    let began = Instant::now();
    drop(channel);
    assert!(began.elapsed() < Duration::from_secs(3), "nothing is left to be waited for");
    assert!(open_end.read(&mut [0; 16]).unwrap() > 0);
}

#[test]
fn a_party_that_waits_until_its_words_have_left_notices_it_too() {
    let (mut channel, peer) = connected();
    channel.set_stall_timeout(Duration::from_secs(60)).unwrap();
    let open_end = peer.try_clone().unwrap();
    channel.send(ASK, &vec![7; 64 << 20]).unwrap();
    drop(Channel::new(Box::new(TcpTransport::new(peer).unwrap())));
    let began = Instant::now();
    let error = channel.settle().unwrap_err();
    assert!(error.is_gone() && began.elapsed() < Duration::from_secs(30), "{error} after {:?}", began.elapsed());
    drop(open_end);
}
