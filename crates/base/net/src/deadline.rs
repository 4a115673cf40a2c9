//! A deadline that received bytes move.
use std::time::{Duration, Instant};

/// A deadline that each read moves: to `step` after the read, but not beyond `last`.
#[derive(Clone, Copy, Debug)]
pub struct MovingDeadline {
    /// The deadline if no more bytes arrive.
    pub end: Instant,
    /// Time from one read to the next.
    pub step: Duration,
    /// The latest deadline, whatever arrives.
    pub last: Instant,
}

impl MovingDeadline {
    /// Moves the deadline because bytes arrived at `now`, never to an earlier time.
    pub fn advance(&mut self, now: Instant) {
        self.end = self.end.max((now + self.step).min(self.last));
    }
}
