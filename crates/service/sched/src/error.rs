//! Errors of configuration and of files. Refused events are [`crate::Rejected`].

use thiserror::Error;

/// An invalid configuration or replay file.
#[derive(Debug, Error)]
pub enum SchedError {
    /// A number is outside its range.
    #[error("{what} is {value}, allowed is {allowed}")]
    OutOfRange {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// The range.
        allowed: &'static str,
    },
    /// The policy name is unknown.
    #[error(
        "unknown policy {0:?}: expected fcfs, priority[:BETA], sequential, srt or adaptive, each with optional +fair[:STRENGTH]"
    )]
    UnknownPolicy(String),
    /// A file is malformed.
    #[error("{what}, line {line}: {why}")]
    BadFile {
        /// Which kind of file.
        what: &'static str,
        /// Line, counted from 1; 0 for an error without a line.
        line: usize,
        /// The fault.
        why: String,
    },
    /// A replayed run differs from the recorded one.
    #[error("replay differs at action {at}: recorded {recorded}, now {now}")]
    ReplayDiffers {
        /// Index of the first different action.
        at: usize,
        /// The recorded action.
        recorded: String,
        /// The action of the replayed run.
        now: String,
    },
}
