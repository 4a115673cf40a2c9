//! Framed, checked and counted messages over a [`Transport`].
//!
//! A message is one or more frames; every frame but the last is full ([`MAX_FRAME_BYTES`]). Frame
//! header, little endian: `tag u16 | length u32 (bit 31: more frames follow) | crc32 u32`. The
//! checksum covers the frame's number in this direction (u64, not sent), tag, length and payload.
//! Tag and length are checked before any allocation.
mod alive;

use crate::buffered::Buffered;
use crate::{NetError, Phase, Tag, Traffic, Transport};
use alive::Alive;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 10;
/// Most payload bytes in one frame.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

const MORE_FRAMES: u32 = 1 << 31;
/// Most outgoing bytes gathered before they go to the transport.
const GATHERED_BYTES: usize = 64 << 10;

/// A connection to the peer that carries tagged messages.
///
/// Writes are gathered. Gathered bytes leave when this party starts to read (which counts a round),
/// on drop, or on [`flush`](Self::flush): call `flush` before a long computation. After any error the channel
/// refuses further use: drop it.
pub struct Channel {
    transport: Buffered,
    out: Vec<u8>,
    scratch: Vec<u8>,
    /// The part received of a message for [`try_recv`](Self::try_recv), header included.
    partial: Vec<u8>,
    frames: Frames,
    /// Whether anything was sent since this party last read.
    has_sent: bool,
    phase: Phase,
    traffic: [Traffic; 3],
    transferred_bytes: Arc<AtomicU64>,
    alive: Alive,
    failed: Option<String>,
    /// Header of a frame with an unexpected tag.
    stray_header: Option<[u8; HEADER_BYTES]>,
}

/// Numbers of frames in each direction; the checksum of a frame covers its number.
#[derive(Default)]
struct Frames {
    sent: u64,
    received: u64,
}

struct Header {
    len: usize,
    more: bool,
    crc: u32,
    bytes: [u8; 6],
}

impl Channel {
    /// A channel over a connected transport, in phase [`Phase::Setup`].
    #[must_use]
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self {
            transport: Buffered::new(transport),
            out: Vec::with_capacity(GATHERED_BYTES),
            scratch: Vec::new(),
            partial: Vec::new(),
            frames: Frames::default(),
            has_sent: false,
            phase: Phase::Setup,
            traffic: [Traffic::default(); 3],
            transferred_bytes: Arc::default(),
            alive: Alive::default(),
            failed: None,
            stray_header: None,
        }
    }

    /// Describes the peer, for messages.
    #[must_use]
    pub fn peer(&self) -> String {
        self.transport.get_ref().peer()
    }

    /// Counts further traffic for `phase`. A turn still open counts where its messages were sent.
    pub fn set_phase(&mut self, phase: Phase) {
        if phase != self.phase && self.has_sent {
            self.end_turn();
        }
        self.phase = phase;
    }

    /// The phase for which traffic is counted.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The traffic of `phase` up to now (gathered bytes count as sent).
    #[must_use]
    pub fn traffic(&self, phase: Phase) -> Traffic {
        self.traffic[phase as usize]
    }

    /// The traffic of all phases.
    #[must_use]
    pub fn total_traffic(&self) -> Traffic {
        self.traffic.iter().fold(Traffic::default(), |sum, t| sum + *t)
    }

    /// A live counter of the bytes sent and received, for a thread that shows progress.
    #[must_use]
    pub fn transferred_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.transferred_bytes)
    }

    /// Sets how long the peer may make no progress before a call ends with [`NetError::Stalled`].
    ///
    /// # Errors
    /// [`NetError::Io`] if the socket refuses.
    pub fn set_stall_timeout(&mut self, timeout: Duration) -> Result<(), NetError> {
        let set = self.transport.get_mut().set_stall_timeout(timeout);
        set.map_err(|e| NetError::from_io("setting the stall timeout", &e))
    }

    /// Sets when reads end with [`NetError::Stalled`] even if bytes trickle in; `None` for never.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.transport.get_mut().set_deadline(deadline);
    }

    /// Sends a message of any length.
    ///
    /// # Errors
    /// [`NetError::Io`] or [`NetError::Stalled`] if the peer is gone or reads nothing;
    /// [`NetError::Failed`] after an earlier error.
    pub fn send(&mut self, tag: Tag, payload: &[u8]) -> Result<(), NetError> {
        self.run_guarded(|channel| channel.send_frames(tag, payload))
    }

    /// Receives a message whose length both parties know.
    ///
    /// # Errors
    /// A [`NetError`] that names the fault of the frames or the connection.
    pub fn recv(&mut self, tag: Tag, expected_len: usize) -> Result<Vec<u8>, NetError> {
        self.run_guarded(|channel| channel.recv_exact(tag, expected_len))
    }

    /// Receives a message of at most `max_len` bytes. Memory grows only with what has arrived.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`NetError::TooLong`].
    pub fn recv_max(&mut self, tag: Tag, max_len: usize) -> Result<Vec<u8>, NetError> {
        self.run_guarded(|channel| channel.recv_bounded(tag, max_len))
    }

    /// Receives a message of one frame and at most `max_len` bytes ([`MAX_FRAME_BYTES`] at most)
    /// without waiting; `None` while incomplete. Until it is complete, only calls for the same
    /// message may follow.
    ///
    /// # Errors
    /// As [`recv_max`](Self::recv_max), once the header is there. The transport must support
    /// [`Transport::try_read`].
    pub fn try_recv(&mut self, tag: Tag, max_len: usize) -> Result<Option<Vec<u8>>, NetError> {
        self.run_guarded(|channel| channel.poll_frame(tag, max_len.min(MAX_FRAME_BYTES)))
    }

    /// Whether [`try_recv`](Self::try_recv) holds an incomplete message.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Sends everything, waits until it has left this process, and then holds no thread.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn settle(&mut self) -> Result<(), NetError> {
        self.run_guarded(|channel| {
            channel.push_out()?;
            // A settled channel may be idle for long, one of thousands: return its memory.
            (channel.out, channel.scratch) = (Vec::new(), Vec::new());
            channel.transport.free_if_empty();
            let outcome = channel.transport.get_mut().settle();
            outcome.map_err(|e| NetError::from_io("waiting for sent messages to leave", &e))
        })
    }

    /// Sends the message that `write` appends to an empty buffer, which the channel reuses.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_with(&mut self, tag: Tag, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), NetError> {
        self.run_guarded(|channel| {
            let mut bytes = std::mem::take(&mut channel.scratch);
            bytes.clear();
            write(&mut bytes);
            let outcome = channel.send_frames(tag, &bytes);
            channel.scratch = bytes;
            outcome
        })
    }

    /// Receives a message of known length and passes it to `read`, which reports faults in it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`NetError::Malformed`] with the fault that `read` reports.
    pub fn recv_with<T>(
        &mut self,
        tag: Tag,
        expected_len: usize,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, NetError> {
        self.run_guarded(|channel| {
            let bytes = channel.recv_exact(tag, expected_len)?;
            read(&bytes).map_err(|what| malformed(tag, what))
        })
    }

    /// Takes the unexpected message that made the channel fail, if it has this tag, one frame and
    /// at most `max_len` bytes. A second call returns `None`.
    pub fn came_instead(&mut self, tag: Tag, max_len: usize) -> Option<Vec<u8>> {
        let header = parse_header(tag, &self.stray_header.take()?).ok()?;
        if header.more || header.len > max_len {
            return None;
        }
        let mut payload = vec![0; header.len];
        self.recv_payload(tag, &header, &mut payload).ok()?;
        Some(payload)
    }

    /// Writes everything gathered to the transport.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self) -> Result<(), NetError> {
        self.run_guarded(Self::push_out)
    }

    /// Runs `work` unless the channel has failed, and remembers its failure.
    fn run_guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, NetError>) -> Result<T, NetError> {
        if let Some(first) = &self.failed {
            return Err(NetError::Failed { first: first.clone() });
        }
        let result = work(self);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    fn send_frames(&mut self, tag: Tag, payload: &[u8]) -> Result<(), NetError> {
        let mut remaining = payload;
        loop {
            let (frame, after) = remaining.split_at(remaining.len().min(MAX_FRAME_BYTES));
            self.send_frame(tag, frame, !after.is_empty())?;
            remaining = after;
            if remaining.is_empty() {
                break;
            }
        }
        self.traffic[self.phase as usize].messages += 1;
        self.has_sent = true;
        Ok(())
    }

    fn send_frame(&mut self, tag: Tag, frame: &[u8], more: bool) -> Result<(), NetError> {
        let mut head = [0u8; 6];
        head[..2].copy_from_slice(&tag.id().to_le_bytes());
        let len = frame.len() as u32 | if more { MORE_FRAMES } else { 0 };
        head[2..].copy_from_slice(&len.to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(&checksum(self.frames.sent, &head, frame).to_le_bytes());
        self.frames.sent += 1;
        self.traffic[self.phase as usize].sent += (HEADER_BYTES + frame.len()) as u64;
        self.transferred_bytes.fetch_add((HEADER_BYTES + frame.len()) as u64, Ordering::Relaxed);
        let written = if frame.len() < GATHERED_BYTES / 2 {
            self.out.extend_from_slice(frame);
            if self.out.len() < GATHERED_BYTES { Ok(()) } else { self.write_gathered() }
        } else {
            self.write_gathered().and_then(|()| self.transport.get_mut().write_all(frame))
        };
        written.map_err(|e| NetError::from_io(format!("sending message {tag}"), &e))
    }

    fn write_gathered(&mut self) -> io::Result<()> {
        let written = self.transport.get_mut().write_all(&self.out);
        self.out.clear();
        written
    }

    fn push_out(&mut self) -> Result<(), NetError> {
        let written = self.write_gathered().and_then(|()| self.transport.get_mut().flush());
        written.map_err(|e| NetError::from_io("sending", &e))
    }

    /// Sends everything before this party receives; counts a round if there was anything.
    fn turn(&mut self) -> Result<(), NetError> {
        if self.has_sent || !self.out.is_empty() {
            self.push_out()?;
        }
        if self.has_sent {
            self.end_turn();
        }
        Ok(())
    }

    fn end_turn(&mut self) {
        self.has_sent = false;
        self.traffic[self.phase as usize].rounds += 1;
    }

    fn recv_exact(&mut self, tag: Tag, expected: usize) -> Result<Vec<u8>, NetError> {
        self.turn()?;
        let mut payload = vec![0u8; expected];
        let mut offset = 0;
        loop {
            let header = self.recv_header(tag)?;
            let frame_len = (expected - offset).min(MAX_FRAME_BYTES);
            let is_last = offset + frame_len == expected;
            if header.len != frame_len || header.more == is_last {
                let got = offset + header.len;
                return Err(NetError::UnexpectedLength { tag, expected, got, more: header.more });
            }
            self.recv_payload(tag, &header, &mut payload[offset..offset + frame_len])?;
            offset += frame_len;
            if is_last {
                return Ok(payload);
            }
        }
    }

    fn recv_bounded(&mut self, tag: Tag, max: usize) -> Result<Vec<u8>, NetError> {
        self.turn()?;
        let mut payload = Vec::new();
        loop {
            let header = self.recv_header(tag)?;
            let offset = payload.len();
            let got = offset + header.len;
            if got > max {
                return Err(NetError::TooLong { tag, max, got });
            }
            if header.more && header.len != MAX_FRAME_BYTES {
                return Err(malformed(tag, "a frame that is not the last is not full"));
            }
            payload.resize(got, 0);
            self.recv_payload(tag, &header, &mut payload[offset..])?;
            if !header.more {
                return Ok(payload);
            }
        }
    }

    fn poll_frame(&mut self, tag: Tag, max: usize) -> Result<Option<Vec<u8>>, NetError> {
        self.turn()?;
        loop {
            let header = self.partial.first_chunk().map(|bytes| parse_header(tag, bytes)).transpose()?;
            if let Some(Header { len, more, .. }) = header {
                if more && len != MAX_FRAME_BYTES {
                    return Err(malformed(tag, "a frame that is not the last is not full"));
                }
                if more || len > max {
                    return Err(NetError::TooLong { tag, max, got: len });
                }
            }
            let wanted_len = HEADER_BYTES + header.as_ref().map_or(0, |h| h.len);
            match header {
                Some(header) if self.partial.len() == wanted_len => {
                    let payload = std::mem::take(&mut self.partial).split_off(HEADER_BYTES);
                    self.account(tag, &header, &payload)?;
                    return Ok(Some(payload));
                }
                _ if !self.poll_bytes(tag, wanted_len)? => return Ok(None),
                _ => {}
            }
        }
    }

    /// Reads available bytes into the partial message, up to `wanted_len` in total; false if there are
    /// none.
    fn poll_bytes(&mut self, tag: Tag, wanted_len: usize) -> Result<bool, NetError> {
        let mut piece = [0u8; 4096];
        let room = (wanted_len - self.partial.len()).min(piece.len());
        let piece = &mut piece[..room];
        let count = match self.transport.is_empty() {
            false => self.transport.read(piece),
            true => self.transport.get_mut().try_read(piece),
        };
        match count {
            Ok(0) if self.partial.is_empty() => Err(NetError::Closed { tag }),
            Ok(0) => Err(NetError::Truncated { tag, got: self.partial.len(), expected: wanted_len }),
            Ok(n) => {
                self.partial.extend_from_slice(&piece[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(NetError::from_io(format!("waiting for message {tag}"), &e)),
        }
    }

    fn recv_header(&mut self, tag: Tag) -> Result<Header, NetError> {
        let mut bytes = [0u8; HEADER_BYTES];
        loop {
            self.fill(tag, &mut bytes, true)?;
            if !self.take_sign_of_life(tag, &bytes)? {
                break;
            }
        }
        let header = parse_header(tag, &bytes);
        if let Err(NetError::UnexpectedTag { .. }) = &header {
            self.stray_header = Some(bytes);
        }
        header
    }

    fn recv_payload(&mut self, tag: Tag, header: &Header, payload: &mut [u8]) -> Result<(), NetError> {
        self.fill(tag, payload, false)?;
        self.account(tag, header, payload)
    }

    fn account(&mut self, tag: Tag, header: &Header, payload: &[u8]) -> Result<(), NetError> {
        let frame = self.frames.received;
        self.frames.received += 1;
        self.traffic[self.phase as usize].received += (HEADER_BYTES + payload.len()) as u64;
        self.transferred_bytes.fetch_add((HEADER_BYTES + payload.len()) as u64, Ordering::Relaxed);
        if checksum(frame, &header.bytes, payload) != header.crc {
            return Err(NetError::Checksum { tag, frame });
        }
        Ok(())
    }

    /// Reads until `buf` is full; with `at_start`, an end before the first byte is a regular close.
    fn fill(&mut self, tag: Tag, buf: &mut [u8], at_start: bool) -> Result<(), NetError> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.transport.read(&mut buf[filled..]) {
                Ok(0) if at_start && filled == 0 => return Err(NetError::Closed { tag }),
                Ok(0) => return Err(NetError::Truncated { tag, got: filled, expected: buf.len() }),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(NetError::from_io(format!("waiting for message {tag}"), &e)),
            }
        }
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.failed.is_none() {
            // A drop cannot report errors; the peer reports a missing last message.
            let _ = self.push_out();
        }
    }
}

fn parse_header(tag: Tag, bytes: &[u8; HEADER_BYTES]) -> Result<Header, NetError> {
    let [t0, t1, l0, l1, l2, l3, crc @ ..] = *bytes;
    let found_tag = u16::from_le_bytes([t0, t1]);
    if found_tag != tag.id() {
        return Err(NetError::UnexpectedTag { expected: tag, got: Tag::from_wire(found_tag) });
    }
    let length_word = u32::from_le_bytes([l0, l1, l2, l3]);
    let len = (length_word & !MORE_FRAMES) as usize;
    if len > MAX_FRAME_BYTES {
        return Err(NetError::FrameTooLong { tag, got: len, max: MAX_FRAME_BYTES });
    }
    let crc = u32::from_le_bytes(crc);
    Ok(Header { len, more: length_word & MORE_FRAMES != 0, crc, bytes: [t0, t1, l0, l1, l2, l3] })
}

fn checksum(frame: u64, head: &[u8; 6], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame.to_le_bytes());
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

fn malformed(tag: Tag, what: impl Into<String>) -> NetError {
    NetError::Malformed { tag, what: what.into() }
}
