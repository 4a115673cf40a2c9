//! Which waiting jobs start now, and with how many threads: the one place to decide it.
use crate::door::Number;

/// Name of the policy.
pub(crate) const NAME: &str = "at-once";

/// A job that starts.
pub(crate) struct Start {
    /// Connection that it belongs to.
    pub(crate) number: Number,
    /// Threads for its arithmetic.
    pub(crate) threads: usize,
}

/// The simplest policy: every job at once, each with the configured number of threads. Asked after every
/// event, with all jobs that wait.
pub(crate) fn starts(waiting: impl Iterator<Item = Number>, threads: usize) -> Vec<Start> {
    waiting.map(|number| Start { number, threads }).collect()
}
