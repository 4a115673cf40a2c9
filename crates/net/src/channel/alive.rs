//! Signs of life: frames without content that a party sends while it computes for long, so that its peer does
//! not take it for gone.
//!
//! They come at fixed intervals of time, whatever is computed, and are no messages: nobody waits for them,
//! and neither party counts them as traffic or as a round. How long they may keep a party waiting for one
//! message is that party's to say ([`Channel::set_patience`]).
use super::{Channel, HEADER_BYTES, checksum, parse_header};
use crate::{NetError, Tag};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a party says that it lives, unless told otherwise.
const EVERY: Duration = Duration::from_secs(20);
/// Patience of a channel that nobody configured.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How long a peer that has closed its side is listened to.
const LAST: Duration = Duration::from_secs(1);

/// What a channel knows of signs of life.
pub(super) struct Alive {
    every: Duration,
    patience: Duration,
    /// When the first came since the last message.
    since: Option<Instant>,
}

impl Default for Alive {
    fn default() -> Self {
        Self { every: EVERY, patience: PATIENCE, since: None }
    }
}

impl Channel {
    /// How long a peer that says that it lives, and nothing else, is waited for. With none at all such frames
    /// are refused: a server gives its clients none.
    pub fn set_patience(&mut self, patience: Duration) {
        self.alive.patience = patience;
    }

    /// How long a peer that only says that it lives is waited for.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.alive.patience
    }

    /// How often [`while_alive`](Self::while_alive) tells the peer that this party lives.
    pub fn set_sign_of_life(&mut self, every: Duration) {
        self.alive.every = every;
    }

    /// Does work that does not need the channel; a thread tells the peer meanwhile, at fixed intervals, that
    /// this party lives. What was gathered leaves with the first of these.
    ///
    /// # Errors
    /// The peer is gone or takes nothing, which is told when the work is done; no thread can be started.
    pub fn while_alive<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, NetError> {
        let (ends, end) = channel();
        thread::scope(move |scope| {
            // Goes when the work is done, or panics.
            let ends = ends;
            let teller = thread::Builder::new().name("tacit-alive".into());
            let teller = teller.spawn_scoped(scope, move || self.guarded(|channel| channel.tell_until(&end)));
            let teller = teller.map_err(|e| NetError::from_io("starting a thread", &e))?;
            let done = work();
            drop(ends);
            teller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(done)
        })
    }

    /// What the peer said last, if it has closed the connection and this party found out by sending: the next
    /// message, where it is one of this kind and all of it is there.
    #[must_use]
    pub fn last_words(&mut self, tag: Tag, max_len: usize) -> Option<Vec<u8>> {
        self.failed.as_ref()?;
        self.set_deadline(Some(Instant::now() + LAST));
        self.out.clear();
        self.spoke = false;
        self.recv_bounded(tag, max_len).ok()
    }

    fn tell_until(&mut self, end: &Receiver<()>) -> Result<(), NetError> {
        loop {
            match end.recv_timeout(self.alive.every) {
                Err(RecvTimeoutError::Timeout) => self.tell()?,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn tell(&mut self) -> Result<(), NetError> {
        let mut head = [0u8; 6];
        head[..2].copy_from_slice(&Tag::ALIVE.id().to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(&checksum(self.sent_frames, &head, &[]).to_le_bytes());
        self.sent_frames += 1;
        self.push_out()
    }

    /// Whether the header of a frame is a sign of life, which is then taken note of.
    pub(super) fn hears(&mut self, tag: Tag, bytes: &[u8; HEADER_BYTES]) -> Result<bool, NetError> {
        if bytes[..2] != Tag::ALIVE.id().to_le_bytes() || self.alive.patience.is_zero() {
            self.alive.since = None;
            return Ok(false);
        }
        let header = parse_header(Tag::ALIVE, bytes)?;
        let frame = self.received_frames;
        self.received_frames += 1;
        if header.len > 0 || header.more {
            return Err(super::malformed(Tag::ALIVE, "it has content"));
        }
        if checksum(frame, &header.bytes, &[]) != header.crc {
            return Err(NetError::Checksum { tag: Tag::ALIVE, frame });
        }
        let since = *self.alive.since.get_or_insert_with(Instant::now);
        if since.elapsed() <= self.alive.patience {
            return Ok(true);
        }
        let (doing, seconds) = (format!("waiting for message {tag}"), self.alive.patience.as_secs_f64());
        Err(NetError::Stalled { doing, detail: format!("for {seconds} s the peer has only said that it lives") })
    }
}
