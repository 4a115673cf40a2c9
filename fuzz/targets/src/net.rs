//! Frames, messages, the handshake and recordings.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use tacit_mpc::wire::PackedMessages;
use tacit_net::{Channel, Hello, RecordTransport, ReplayTransport, Tag, Transport};

const TAG: Tag = Tag::new(0x0702, "fuzz");
/// Longest message that the targets ask for.
const MAX_MESSAGE: usize = 3 << 20;

/// A peer that has said all it will ever say; what it is told is kept by `heard`, if anyone wants it.
struct Scripted {
    says: io::Cursor<Vec<u8>>,
    heard: Option<Sender<Vec<u8>>>,
}

impl Read for Scripted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.says.read(buf)
    }
}

impl Write for Scripted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if let Some(heard) = &self.heard {
            heard.send(buf.to_vec()).map_err(io::Error::other)?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Scripted {
    fn peer(&self) -> String {
        "a script".into()
    }

    fn set_stall_timeout(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_deadline(&mut self, _: Option<Instant>) {}
}

fn script(data: &[u8]) -> Scripted {
    Scripted { says: io::Cursor::new(data.to_vec()), heard: None }
}

fn scripted(data: &[u8]) -> Channel {
    Channel::new(Box::new(script(data)))
}

/// The bytes that a correct sender puts on the wire.
fn wire(send: impl Fn(&mut Channel)) -> Vec<u8> {
    let (heard, hearing) = channel();
    let mut channel = Channel::new(Box::new(Scripted { says: io::Cursor::default(), heard: Some(heard) }));
    send(&mut channel);
    // A channel whose peer has hung up has already sent what it could.
    let _ = channel.flush();
    drop(channel);
    hearing.iter().flatten().collect()
}

fn wire_message(tag: Tag, payload: &[u8]) -> Vec<u8> {
    wire(|c| c.send(tag, payload).expect("a script takes everything"))
}

/// Raw bytes from the wire, read as messages until the first error.
pub(crate) fn frames(data: &[u8]) {
    let mut channel = scripted(data);
    while let Ok(message) = channel.recv_max(TAG, MAX_MESSAGE) {
        assert!(message.len() <= MAX_MESSAGE);
    }
    assert!(channel.recv_max(TAG, MAX_MESSAGE).is_err(), "a failed channel stays failed");
}

pub(crate) fn frame_seeds() -> Vec<Vec<u8>> {
    let message = |len: usize| wire_message(TAG, &vec![7; len]);
    let two = wire(|c| {
        c.send(TAG, &[7; 5]).expect("a script takes everything");
        c.send(TAG, &[7; 40]).expect("a script takes everything");
    });
    vec![message(0), message(9), two, message((1 << 20) + 3)]
}

/// Well-formed frames whose content does not fit what the receiver expects:
/// `kind, count u16, width, payload...`.
pub(crate) fn messages(data: &[u8]) {
    let [kind, low, high, width, payload @ ..] = data else {
        return;
    };
    let mut channel = scripted(&wire_message(TAG, payload));
    let count = usize::from(u16::from_le_bytes([*low, *high]));
    match kind % 4 {
        0 => {
            if let Ok(message) = channel.recv(TAG, count) {
                assert_eq!(message, payload);
            }
        }
        1 => {
            if let Ok(values) = channel.recv_packed(TAG, count, u32::from(width % 64) + 1) {
                assert_eq!(values.len(), count);
            }
        }
        2 => {
            if let Ok(words) = channel.recv_words(TAG, count) {
                assert_eq!(words.len(), count);
            }
        }
        _ => {
            assert!(channel.recv(Tag::HELLO, payload.len()).is_err(), "another tag is never accepted");
        }
    }
}

pub(crate) fn message_seeds() -> Vec<Vec<u8>> {
    let with = |header: [u8; 4], len: usize| [&header[..], &vec![3; len]].concat();
    vec![with([0, 5, 0, 0], 5), with([1, 10, 0, 36], 47), with([2, 4, 0, 0], 32), with([3, 0, 0, 0], 8)]
}

/// The payload of an opening message.
pub(crate) fn handshake(data: &[u8]) {
    let ours = Hello::for_model([1; 32], [2; 32]);
    let accepted = tacit_net::handshake(&mut scripted(&wire_message(Tag::HELLO, data)), &ours).is_ok();
    assert_eq!(accepted, data == hello_payload(&ours), "exactly the matching hello is accepted");
}

fn hello_payload(hello: &Hello) -> Vec<u8> {
    let bytes = wire(|c| {
        // Without an answer the handshake fails, after its own message went out.
        assert!(tacit_net::handshake(c, hello).is_err());
    });
    bytes[tacit_net::HEADER_BYTES..].to_vec()
}

pub(crate) fn handshake_seeds() -> Vec<Vec<u8>> {
    let other_version = Hello { version: 99, ..Hello::for_model([1; 32], [2; 32]) };
    [Hello::for_model([1; 32], [2; 32]), Hello::for_model([1; 32], [5; 32]), other_version]
        .iter()
        .map(hello_payload)
        .collect()
}

fn scratch_file() -> std::path::PathBuf {
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    std::env::temp_dir().join(format!("tacit-fuzz-{}-{thread}", std::process::id()))
}

/// A recording from disk, replayed.
pub(crate) fn recording(data: &[u8]) {
    let path = scratch_file();
    std::fs::write(&path, data).expect("the temporary folder is writable");
    if let Ok(replay) = ReplayTransport::open(&path, true) {
        let mut channel = Channel::new(Box::new(replay));
        // Whether the writes match the recording is not the question here.
        let _ = channel.send(TAG, &[1, 2, 3]);
        while channel.recv_max(TAG, MAX_MESSAGE).is_ok() {}
    }
    // Cleaning up may fail if something else cleans the temporary folder.
    let _ = std::fs::remove_file(&path);
}

pub(crate) fn recording_seeds() -> Vec<Vec<u8>> {
    let path = scratch_file().with_extension("seed");
    let recorder = RecordTransport::create(script(&frame_seeds()[2]), &path).expect("the temporary folder is writable");
    let mut channel = Channel::new(Box::new(recorder));
    channel.send(TAG, &[1, 2, 3]).expect("a script takes everything");
    assert_eq!(channel.recv(TAG, 5).expect("the script's first message"), [7; 5]);
    assert_eq!(channel.recv(TAG, 40).expect("the script's second message"), [7; 40]);
    drop(channel);
    let recorded = std::fs::read(&path).expect("a recording");
    std::fs::remove_file(&path).expect("the recording can be removed");
    vec![recorded]
}
