//! A transport that limits its sending rate.
//!
//! A device with limited power or cooling may want a cap: [PM24] 5.2 discusses throttling. The cap is a
//! token bucket: in any interval of `t` seconds at most `burst + rate * t / 8` bytes go to the inner
//! transport. Overhead of TLS, TCP and IP comes on top. The peer must pace itself.
use crate::Rate;
use crate::transport::Transport;
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// How long a full bucket lasts at the full rate: the longest overslept pause that is made up for.
const BURST_TIME: Duration = Duration::from_millis(4);
/// Smallest and largest bucket, bytes.
const BURST_BYTES: (u64, u64) = (4 << 10, 256 << 10);
/// Tokens of one byte: bits times nanoseconds per second, so that no division rounds.
const TOKENS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// Bytes that may leave at once after a pause: 4 ms at the rate, from 4 KiB to 256 KiB.
#[must_use]
pub fn burst_bytes(rate: Rate) -> u64 {
    rate.bytes_in(BURST_TIME).clamp(BURST_BYTES.0, BURST_BYTES.1)
}

/// A token bucket without a clock: the caller passes the time since any fixed start.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u128,
    capacity: u128,
    tokens: u128,
    now: Duration,
}

impl Bucket {
    /// A full bucket at time `now`.
    #[must_use]
    pub fn new(rate: Rate, now: Duration) -> Self {
        let capacity = u128::from(burst_bytes(rate)) * TOKENS_PER_BYTE;
        Self { rate: u128::from(rate.bits_per_second()), capacity, tokens: capacity, now }
    }

    fn refill(&mut self, now: Duration) {
        // A clock that steps back changes no tokens.
        let passed = now.saturating_sub(self.now).as_nanos();
        self.now = self.now.max(now);
        self.tokens = self.capacity.min(self.tokens.saturating_add(passed.saturating_mul(self.rate)));
    }

    /// Takes at most `wanted_bytes` at time `now`; 0 if fewer than that and fewer than half a bucket
    /// are available.
    pub fn take(&mut self, now: Duration, wanted_bytes: usize) -> usize {
        self.refill(now);
        let available = usize::try_from(self.tokens / TOKENS_PER_BYTE).unwrap_or(usize::MAX);
        if available < self.quantum(wanted_bytes) {
            return 0;
        }
        let granted = available.min(wanted_bytes);
        self.tokens -= granted as u128 * TOKENS_PER_BYTE;
        granted
    }

    /// Gives back bytes that were taken and not used.
    pub fn give_back(&mut self, bytes: usize) {
        self.tokens = self.capacity.min(self.tokens + bytes as u128 * TOKENS_PER_BYTE);
    }

    /// How long after the last call [`take`](Self::take) grants bytes to a caller that wants
    /// `wanted_bytes`.
    #[must_use]
    pub fn wait(&self, wanted_bytes: usize) -> Duration {
        let lacking = (self.quantum(wanted_bytes) as u128 * TOKENS_PER_BYTE).saturating_sub(self.tokens);
        let nanos = lacking.div_ceil(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Fewest bytes granted at once, unless less is wanted: half a bucket, against tiny writes.
    fn quantum(&self, wanted_bytes: usize) -> usize {
        let half = usize::try_from(self.capacity / TOKENS_PER_BYTE / 2).unwrap_or(usize::MAX);
        wanted_bytes.min(half)
    }
}

/// A transport that sends at most at a given rate.
///
/// A write waits for tokens and passes on as many bytes as they allow. It ends with
/// [`io::ErrorKind::TimedOut`] at the deadline. The stall timeout does not cover the pause.
pub struct PacedTransport<T: Transport> {
    inner: T,
    rate: Rate,
    bucket: Bucket,
    start: Instant,
    deadline: Option<Instant>,
}

impl<T: Transport> PacedTransport<T> {
    /// Limits the writes to `inner`.
    #[must_use]
    pub fn new(inner: T, rate: Rate) -> Self {
        Self { inner, rate, bucket: Bucket::new(rate, Duration::ZERO), start: Instant::now(), deadline: None }
    }

    /// The cap.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Waits until some bytes may leave; returns how many.
    fn wait_for_tokens(&mut self, wanted_bytes: usize) -> io::Result<usize> {
        loop {
            let granted = self.bucket.take(self.start.elapsed(), wanted_bytes);
            if granted > 0 {
                return Ok(granted);
            }
            let wait = self.bucket.wait(wanted_bytes);
            match self.deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                Some(remaining) if remaining < wait => {
                    thread::sleep(remaining);
                    let text =
                        format!("the deadline for this step is over, sending at {} was too slow for it", self.rate);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                _ => thread::sleep(wait),
            }
        }
    }
}

impl<T: Transport> Read for PacedTransport<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf)
    }
}

impl<T: Transport> Write for PacedTransport<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let granted = self.wait_for_tokens(buf.len())?;
        let written = self.inner.write(&buf[..granted]);
        self.bucket.give_back(granted - written.as_ref().map_or(0, |n| (*n).min(granted)));
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Transport> Transport for PacedTransport<T> {
    fn peer(&self) -> String {
        format!("{} (at most {})", self.inner.peer(), self.rate)
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        self.inner.set_deadline(deadline);
    }

    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.try_read(buf)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.inner.settle()
    }
}
