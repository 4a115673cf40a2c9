//! The error type of this crate.

use tacit_arith::prg::OsRandomness;
use tacit_net::NetError;

/// An error of a two-party protocol. After any error the channel and all state built on it are
/// dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpcError {
    /// The connection failed, or the peer sent a message of the wrong kind or length.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The operating system has no randomness.
    #[error(transparent)]
    Randomness(#[from] OsRandomness),
    /// The peer's message has the right length, but content that no honest party sends.
    #[error("misbehaving peer: {what} in {step}")]
    Misbehaviour {
        /// The protocol step, such as `base OT`.
        step: &'static str,
        /// The fault in the content.
        what: &'static str,
    },
    /// An argument is outside a protocol's range.
    #[error("{what} must be at most {max}, not {got}")]
    OutOfRange {
        /// Name of the argument.
        what: &'static str,
        /// The largest value allowed.
        max: usize,
        /// The value given.
        got: usize,
    },
    /// Stored material does not fit its plan.
    #[error("stored material does not fit: {what}")]
    Material {
        /// The part that does not fit.
        what: String,
    },
}

/// Refuses the value `got` of an argument of at most `max`.
pub(crate) fn beyond<T>(what: &'static str, got: usize, max: usize) -> Result<T, MpcError> {
    Err(MpcError::OutOfRange { what, max, got })
}

/// The error of a peer that deviates.
pub(crate) fn misbehaviour<T>(step: &'static str, what: &'static str) -> Result<T, MpcError> {
    Err(MpcError::Misbehaviour { step, what })
}

/// Checks that an argument is at most `max`.
pub(crate) fn check_max(what: &'static str, got: usize, max: usize) -> Result<(), MpcError> {
    if got > max { beyond(what, got, max) } else { Ok(()) }
}
