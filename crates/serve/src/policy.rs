//! Which waiting jobs start now, and with how many threads: the one place to decide it.
use crate::driver::{Job, Number};

/// A job that starts.
pub(crate) struct Start {
    /// Connection that it belongs to.
    pub(crate) number: Number,
    /// Threads for its arithmetic.
    pub(crate) threads: usize,
}

/// The simplest policy: every job at once, each with the configured number of threads. Asked after every
/// event, with all jobs.
pub(crate) fn starts<'a>(jobs: impl Iterator<Item = (&'a Number, &'a Job)>, threads: usize) -> Vec<Start> {
    jobs.filter(|(_, job)| job.waits()).map(|(&number, _)| Start { number, threads }).collect()
}
