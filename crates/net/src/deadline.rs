//! A deadline that moves with what comes.
use std::time::{Duration, Instant};

/// A moment that each read moves: to `step` after the read, but not beyond `last`.
#[derive(Clone, Copy, Debug)]
pub struct MovingDeadline {
    /// When the time is over, if nothing more comes.
    pub end: Instant,
    /// What there is from one read to the next.
    pub step: Duration,
    /// When the time is over, whatever comes.
    pub last: Instant,
}

impl MovingDeadline {
    /// Something has come. A deadline that was later stays.
    pub fn moved(&mut self, now: Instant) {
        self.end = self.end.max((now + self.step).min(self.last));
    }
}
