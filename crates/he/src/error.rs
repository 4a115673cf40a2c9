//! The crate's errors.

use tacit_arith::LatticeError;
use tacit_arith::pack::PackError;

/// What can go wrong with parameters, keys and foreign bytes.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum HeError {
    /// The moduli or the degree are unusable (a defect of this program, not of its input).
    #[error(transparent)]
    Lattice(#[from] LatticeError),
    /// The modulus is too large for its degree.
    #[error("degree {degree} with a modulus of {modulus_log2:.1} bits: at most {max} bits are secure")]
    Insecure {
        /// The ring degree.
        degree: usize,
        /// Bits of the modulus.
        modulus_log2: f64,
        /// The largest size at this degree, 0 for a degree without one.
        max: u32,
    },
    /// Ring width outside the supported range.
    #[error("ring of {bits} bits: 1 to {max} are supported")]
    RingBits {
        /// Bits asked for.
        bits: u32,
        /// The largest supported width.
        max: u32,
    },
    /// No rounding keeps the error of a share within the bound asked for.
    #[error(
        "ring of {ring_bits} bits with weights of norm 2^{norm_log2:.1}: an error of {max_error} cannot be promised"
    )]
    TooNoisy {
        /// Width of the ring.
        ring_bits: u32,
        /// log2 of the Euclidean norm of the weights in one polynomial.
        norm_log2: f64,
        /// The error bound asked for.
        max_error: u32,
    },
    /// Bytes of a wrong length.
    #[error("{what}: {got} bytes, expected {expected}")]
    Length {
        /// The message.
        what: &'static str,
        /// Length received.
        got: usize,
        /// Length the parameters imply.
        expected: usize,
    },
    /// A coefficient out of range.
    #[error("{what}: coefficient {index} is out of range")]
    Range {
        /// The message.
        what: &'static str,
        /// Index of the first bad coefficient.
        index: usize,
    },
    /// Padding bits after the last coefficient are set.
    #[error("{what}: bits after the last coefficient are set")]
    Padding {
        /// The message.
        what: &'static str,
    },
}

impl HeError {
    /// Names the message whose packed coefficients are wrong.
    pub(crate) fn packed(what: &'static str) -> impl Fn(PackError) -> Self {
        move |error| match error {
            PackError::Length { got, expected } => Self::Length { what, got, expected },
            PackError::Range { index } => Self::Range { what, index },
            PackError::Padding => Self::Padding { what },
        }
    }
}
