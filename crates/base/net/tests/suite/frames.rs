//! Damaged, cut, oversized and misplaced frames: every one ends in a named error, none in a panic, a hang or
//! a wrong message.
use super::common::{A, B, wire};
use proptest::prelude::*;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};
use tacit_net::*;

/// A channel whose peer sent `bytes` and closed.
struct Said {
    bytes: io::Cursor<Vec<u8>>,
}

impl Read for Said {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buf)
    }
}

impl Write for Said {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Said {
    fn peer(&self) -> String {
        "script".into()
    }
    fn set_stall_timeout(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
    fn set_deadline(&mut self, _: Option<Instant>) {}
}

fn listen(bytes: Vec<u8>) -> Channel {
    Channel::new(Box::new(Said { bytes: io::Cursor::new(bytes) }))
}

const MESSAGE: &[u8] = b"a message of some length";

#[test]
fn a_stream_cut_at_any_byte_is_closed_or_truncated() {
    let bytes = wire(&[(A, MESSAGE)]);
    for cut in 0..bytes.len() {
        for variable in [false, true] {
            let mut channel = listen(bytes[..cut].to_vec());
            let message = if variable { channel.recv_max(A, 100) } else { channel.recv(A, MESSAGE.len()) };
            match message {
                Err(NetError::Closed { tag }) => assert_eq!((cut, tag), (0, A)),
                Err(NetError::Truncated { got, .. }) if cut < HEADER_BYTES => assert_eq!(got, cut),
                Err(NetError::Truncated { got, expected, .. }) => {
                    assert_eq!((got, expected), (cut - HEADER_BYTES, MESSAGE.len()));
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }
}

#[test]
fn any_flipped_bit_is_named_by_where_it_hit() {
    let bytes = wire(&[(A, MESSAGE)]);
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let fixed = listen(damaged.clone()).recv(A, MESSAGE.len()).unwrap_err();
        match bit / 8 {
            0..2 => {
                assert!(matches!(fixed, NetError::UnexpectedTag { expected, .. } if expected == A), "{bit}: {fixed}")
            }
            2..6 => assert!(
                matches!(fixed, NetError::UnexpectedLength { .. } | NetError::FrameTooLong { .. }),
                "{bit}: {fixed}"
            ),
            _ => assert_eq!(fixed, NetError::Checksum { tag: A, frame: 0 }, "{bit}"),
        }
        assert!(listen(damaged).recv_max(A, 1000).is_err(), "{bit}");
    }
}

#[test]
fn wrong_tags_name_both() {
    let error = listen(wire(&[(B, MESSAGE)])).recv(A, MESSAGE.len()).unwrap_err();
    assert_eq!(error, NetError::UnexpectedTag { expected: A, got: B });
    assert!(error.to_string().contains("`first`") && error.to_string().contains("`test`"), "{error}");
}

#[test]
fn listening_errors_name_the_option() {
    let kind = |kind: io::ErrorKind| NetError::cannot_listen("127.0.0.1:80", "--grpc", &kind.into()).to_string();
    for kind in [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable, io::ErrorKind::PermissionDenied].map(kind) {
        assert!(kind.starts_with("listening on 127.0.0.1:80: ") && kind.contains("--grpc"), "{kind}");
    }
    assert!(!kind(io::ErrorKind::OutOfMemory).contains("--grpc"));
}

#[test]
fn came_instead_returns_the_unexpected_message_once() {
    let failed = |bytes: Vec<u8>| {
        let mut channel = listen(bytes);
        assert!(channel.recv(A, 3).is_err());
        channel
    };
    let mut channel = failed(wire(&[(B, MESSAGE), (A, b"abc")]));
    assert_eq!(channel.came_instead(B, MESSAGE.len()).as_deref(), Some(MESSAGE));
    assert_eq!(channel.came_instead(B, MESSAGE.len()), None);
    assert!(matches!(channel.recv(A, 3), Err(NetError::Failed { .. })));
    let whole = wire(&[(B, MESSAGE)]);
    let cut = whole[..whole.len() - 1].to_vec();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (case, bytes, tag, max_len) in [
        ("another tag", whole.clone(), A, 100),
        ("a longer message", whole, B, MESSAGE.len() - 1),
        ("several frames", wire(&[(B, &vec![0; MAX_FRAME_BYTES + 1])]), B, MAX_FRAME_BYTES),
        ("cut", cut, B, 100),
        ("damaged", damaged, B, 100),
        ("no message", vec![], B, 100),
    ] {
        assert_eq!(failed(bytes).came_instead(tag, max_len), None, "{case}");
    }
}

#[test]
fn wrong_lengths_name_expected_and_announced() {
    for (sent, expected) in
        [(5, 4), (3, 4), (0, 1), (1, 0), (MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES), (MAX_FRAME_BYTES, 2 * MAX_FRAME_BYTES)]
    {
        let error = listen(wire(&[(A, &vec![0; sent])])).recv(A, expected).unwrap_err();
        let NetError::UnexpectedLength { expected: want, got, more, .. } = error else {
            panic!("{sent} for {expected}: {error}")
        };
        assert_eq!((want, got, more), (expected, sent.min(MAX_FRAME_BYTES), sent > MAX_FRAME_BYTES));
    }
    let error = listen(wire(&[(A, &[0; 11])])).recv_max(A, 10).unwrap_err();
    assert_eq!(error, NetError::TooLong { tag: A, max: 10, got: 11 });
}

/// The header of a frame with this field for its length, and a checksum of 0.
fn header(length: u32) -> Vec<u8> {
    [&A.id().to_le_bytes()[..], &length.to_le_bytes(), &[0; 4]].concat()
}

#[test]
fn an_oversized_length_field_allocates_nothing() {
    let error = listen(header(0x7fff_ffff)).recv_max(A, usize::MAX >> 1).unwrap_err();
    assert_eq!(error, NetError::FrameTooLong { tag: A, got: 0x7fff_ffff, max: MAX_FRAME_BYTES });
}

#[test]
fn endless_small_frames_are_refused() {
    assert!(matches!(listen(header(1 << 31)).recv_max(A, 100), Err(NetError::Malformed { tag, .. }) if tag == A));
}

#[test]
fn lost_repeated_and_swapped_frames_fail_the_checksum() {
    let bytes = wire(&[(A, b"one"), (A, b"two")]);
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    let mut lost = listen(tail.to_vec());
    assert_eq!(lost.recv(A, 3), Err(NetError::Checksum { tag: A, frame: 0 }));
    let mut repeated = listen([head, head].concat());
    assert_eq!(repeated.recv(A, 3).unwrap(), b"one");
    assert_eq!(repeated.recv(A, 3), Err(NetError::Checksum { tag: A, frame: 1 }));
    assert!(matches!(repeated.recv(A, 3), Err(NetError::Failed { .. })));
}

proptest! {
    #[test]
    fn garbage_never_becomes_a_message(bytes in prop::collection::vec(any::<u8>(), 0..64), len in 0usize..64) {
        prop_assert!(listen(bytes.clone()).recv(A, len).is_err());
        prop_assert!(listen(bytes.clone()).recv_max(A, len).is_err());
        let hello = Hello::for_model([0; 32], [0; 32]);
        prop_assert!(handshake(&mut listen(bytes), &hello).is_err());
    }

    #[test]
    fn damaged_conversations_yield_a_prefix_of_the_truth(
        lens in prop::collection::vec(0usize..2000, 1..6),
        position in any::<prop::sample::Index>(),
        xor in 1u8..,
    ) {
        let messages: Vec<Vec<u8>> = lens.iter().map(|&n| (0..n).map(|i| i as u8).collect()).collect();
        let list: Vec<(Tag, &[u8])> = messages.iter().map(|m| (A, m.as_slice())).collect();
        let mut bytes = wire(&list);
        let position = position.index(bytes.len());
        bytes[position] ^= xor;
        let mut channel = listen(bytes);
        let mut failed = false;
        for message in &messages {
            match channel.recv_max(A, 4000) {
                Ok(received) => prop_assert!(!failed && received == *message),
                Err(_) => failed = true,
            }
        }
        prop_assert!(failed);
    }
}
