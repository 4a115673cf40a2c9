//! Errors of configuration and of files. Refused events are [`crate::Rejected`].

use thiserror::Error;

/// What can be wrong with a configuration or a replay file.
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
    /// No such policy.
    #[error(
        "unknown policy {0:?}: expected fcfs, priority[:BETA], sequential, srt or adaptive, each with optional +fair[:STRENGTH]"
    )]
    UnknownPolicy(String),
    /// A file does not say what it should.
    #[error("{what}, line {line}: {why}")]
    BadFile {
        /// Which kind of file.
        what: &'static str,
        /// Line, from 1; 0 where there are none.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A replayed run did something else than the recorded one.
    #[error("replay differs at action {at}: recorded {recorded}, now {now}")]
    ReplayDiffers {
        /// Index of the first different action.
        at: usize,
        /// What the file says.
        recorded: String,
        /// What happened.
        now: String,
    },
}
