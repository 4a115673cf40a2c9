//! The error type of this crate.

use tacit_arith::prg::OsRandomness;
use tacit_net::NetError;

/// What can go wrong in a two-party protocol. After any error the channel and all state built on it are
/// dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpcError {
    /// The connection failed, or the peer sent a message of the wrong kind or length.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No randomness from the operating system.
    #[error(transparent)]
    Randomness(#[from] OsRandomness),
    /// The peer's message has the right length but content that no honest party sends.
    #[error("misbehaving peer: {what} in {step}")]
    Misbehaviour {
        /// The protocol step, such as `base OT`.
        step: &'static str,
        /// What was wrong with the content.
        what: &'static str,
    },
    /// The caller asked for something outside a protocol's range.
    #[error("{what} must be at most {max}, not {got}")]
    OutOfRange {
        /// Name of the argument.
        what: &'static str,
        /// The largest value allowed.
        max: usize,
        /// The value given.
        got: usize,
    },
    /// Stored material does not fit the plan it is read for.
    #[error("stored material does not fit: {what}")]
    Material {
        /// What does not fit.
        what: String,
    },
}
