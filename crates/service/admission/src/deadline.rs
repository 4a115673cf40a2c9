//! The deadline for authenticating a peer. A link of 1 kbit/s carries TLS's handshake in 17 s, and
//! the server's part of it in half of that, during which the peer sends nothing.
use std::time::{Duration, Instant};
use tacit_net::MovingDeadline;

/// Time between a peer's bytes after the first, as a multiple of the timeout.
const STEP: u32 = 3;
/// Total time, as a multiple of the timeout.
const LONGEST: u32 = 12;

/// A deadline that each received byte extends, up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeDeadline {
    moving: MovingDeadline,
    longest: Duration,
}

impl HandshakeDeadline {
    /// The deadline of a connection accepted at `accepted`: its first byte has `timeout`, the next
    /// three times as long, all twelve times.
    #[must_use]
    pub fn new(accepted: Instant, timeout: Duration) -> Self {
        let longest = timeout * LONGEST;
        let moving = MovingDeadline { end: accepted + timeout, step: timeout * STEP, last: accepted + longest };
        Self { moving, longest }
    }

    /// The deadline if no more bytes arrive.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.moving.end
    }

    /// The same for a transport that moves the deadline by itself.
    #[must_use]
    pub fn moving(&self) -> MovingDeadline {
        self.moving
    }

    /// Extends the deadline because bytes arrived at `now`.
    pub fn extend(&mut self, now: Instant) {
        self.moving.advance(now);
    }

    /// Explains why the deadline has passed.
    #[must_use]
    pub fn expiry_message(&self) -> String {
        let MovingDeadline { end, step, last } = self.moving;
        match end == last {
            true => format!("it took longer than the {:.0} s that a handshake may take", self.longest.as_secs_f64()),
            false => format!(
                "the time for it is over: {:.0} s for the first byte, {:.0} s from one to the next",
                (step / STEP).as_secs_f64(),
                step.as_secs_f64()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_extend_the_deadline_up_to_its_limit() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut deadline = HandshakeDeadline::new(start, 10 * second);
        assert_eq!(deadline.end(), start + 10 * second);
        deadline.extend(start + second);
        assert_eq!(deadline.end(), start + 31 * second);
        assert!(deadline.expiry_message().contains("10 s for the first byte, 30 s"), "{}", deadline.expiry_message());
        deadline.extend(start + 30 * second);
        assert_eq!(deadline.end(), start + 60 * second);
        deadline.extend(start + 119 * second);
        assert_eq!(deadline.end(), start + 120 * second);
        assert!(deadline.expiry_message().contains("120 s"), "{}", deadline.expiry_message());
    }
}
