//! Signs of life: frames without content that a party sends during a long computation, so that its
//! peer does not take the party for gone.
//!
//! Signs of life are sent at fixed intervals, whatever is computed. A sign of life is no message: it
//! ends no wait, and does not count as traffic or as a round. [`Channel::set_patience`] limits how long a
//! party accepts them in place of one message.
use super::{Channel, HEADER_BYTES, checksum, parse_header};
use crate::{NetError, Tag};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const SIGN_INTERVAL: Duration = Duration::from_secs(20);
const DEFAULT_PATIENCE: Duration = Duration::from_secs(3600);

/// How long [`Channel::last_words`] waits for a message of a peer that closed its side.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Alive {
    every: Duration,
    patience: Duration,
    /// Arrival of the first sign of life since the last message.
    first_sign: Option<Instant>,
}

impl Default for Alive {
    fn default() -> Self {
        Self { every: SIGN_INTERVAL, patience: DEFAULT_PATIENCE, first_sign: None }
    }
}

impl Channel {
    /// Sets how long to wait for a peer that sends only signs of life. With zero such frames are
    /// refused: a server sets zero for its clients.
    pub fn set_patience(&mut self, patience: Duration) {
        self.alive.patience = patience;
    }

    /// How long this party waits for a peer that sends only signs of life.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.alive.patience
    }

    /// Sets the interval at which [`while_alive`](Self::while_alive) sends signs of life.
    pub fn set_sign_of_life(&mut self, every: Duration) {
        self.alive.every = every;
    }

    /// Does work that does not need the channel, while a thread sends the peer signs of life at
    /// fixed intervals. Gathered bytes leave with the first of these.
    ///
    /// # Errors
    /// The peer is gone or reads nothing, reported when the work is done; or no thread can be
    /// started.
    pub fn while_alive<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, NetError> {
        let (stop_signal, end) = channel();
        thread::scope(move |scope| {
            // Dropped when the work returns or panics, which ends the thread.
            let stop_signal = stop_signal;
            let sender = thread::Builder::new().name("tacit-alive".into());
            let sender = sender.spawn_scoped(scope, move || self.run_guarded(|channel| channel.send_signs_until(&end)));
            let sender = sender.map_err(|e| NetError::from_io("starting a thread", &e))?;
            let result = work();
            drop(stop_signal);
            sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(result)
        })
    }

    /// Returns the peer's last message after a send failed because the peer had closed the
    /// connection; `None` unless the message has this tag and is complete.
    #[must_use]
    pub fn last_words(&mut self, tag: Tag, max_len: usize) -> Option<Vec<u8>> {
        self.failed.as_ref()?;
        self.set_deadline(Some(Instant::now() + LAST_WORDS_TIMEOUT));
        self.out.clear();
        self.has_sent = false;
        self.recv_bounded(tag, max_len).ok()
    }

    fn send_signs_until(&mut self, end: &Receiver<()>) -> Result<(), NetError> {
        loop {
            match end.recv_timeout(self.alive.every) {
                Err(RecvTimeoutError::Timeout) => self.send_sign_of_life()?,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn send_sign_of_life(&mut self) -> Result<(), NetError> {
        let mut head = [0u8; 6];
        head[..2].copy_from_slice(&Tag::ALIVE.id().to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(&checksum(self.frames.sent, &head, &[]).to_le_bytes());
        self.frames.sent += 1;
        self.push_out()
    }

    /// Whether the header of a frame is a sign of life, which this call then checks and counts.
    pub(super) fn take_sign_of_life(&mut self, tag: Tag, bytes: &[u8; HEADER_BYTES]) -> Result<bool, NetError> {
        if bytes[..2] != Tag::ALIVE.id().to_le_bytes() || self.alive.patience.is_zero() {
            self.alive.first_sign = None;
            return Ok(false);
        }
        let header = parse_header(Tag::ALIVE, bytes)?;
        let frame = self.frames.received;
        self.frames.received += 1;
        if header.len > 0 || header.more {
            return Err(super::malformed(Tag::ALIVE, "it has content"));
        }
        if checksum(frame, &header.bytes, &[]) != header.crc {
            return Err(NetError::Checksum { tag: Tag::ALIVE, frame });
        }
        let first_sign = *self.alive.first_sign.get_or_insert_with(Instant::now);
        if first_sign.elapsed() <= self.alive.patience {
            return Ok(true);
        }
        let (doing, seconds) = (format!("waiting for message {tag}"), self.alive.patience.as_secs_f64());
        Err(NetError::Stalled { doing, detail: format!("for {seconds} s the peer has only said that it lives") })
    }
}
