//! A recorded party runs again, alone.
use super::common::{A, assert_error, channel, sockets};
use std::thread;
use tacit_net::*;

/// One party of a toy protocol; all its bytes follow from `start`.
fn party(mut channel: Channel, start: u8) -> Result<(Vec<u8>, Traffic), NetError> {
    let mut sent = vec![start; 300_000];
    let mut heard = Vec::new();
    for _ in 0..4 {
        channel.send(A, &sent)?;
        heard = channel.recv(A, sent.len())?;
        sent = sent.iter().zip(&heard).map(|(a, b)| a.wrapping_mul(3).wrapping_add(*b)).collect();
    }
    Ok((heard, channel.total_traffic()))
}

#[test]
fn replay_repeats_a_recorded_party() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.transcript");
    let (client, server) = sockets();
    let peer = thread::spawn(move || party(channel(server), 5));
    let recorded = RecordTransport::create(TcpTransport::new(client).unwrap(), &path).unwrap();
    let live = party(Channel::new(Box::new(recorded)), 1).unwrap();
    peer.join().unwrap().unwrap();

    let replay = |compare| Channel::new(Box::new(ReplayTransport::open(&path, compare).unwrap()));
    assert_eq!(party(replay(true), 1).unwrap(), live);
    assert_eq!(party(replay(false), 2).unwrap().1, live.1, "unchecked replay takes other words");
    assert_error(party(replay(true), 2), &["from byte"]);
}

#[test]
fn damaged_transcripts_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad");
    std::fs::write(&path, b"something else entirely").unwrap();
    assert_error(ReplayTransport::open(&path, false), &["no tacit transcript"]);
    for (entry, fault) in [(&b"X\0\0\0\0"[..], "damaged"), (&b"R\xff\0\0\0abc"[..], "ends inside")] {
        std::fs::write(&path, [&b"tacit transcript 1\n"[..], entry].concat()).unwrap();
        let mut channel = Channel::new(Box::new(ReplayTransport::open(&path, false).unwrap()));
        assert_error(channel.recv(A, 1), &[fault]);
    }
}
