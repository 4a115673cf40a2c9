//! The crate's errors.

use tacit_arith::LatticeError;
use tacit_arith::pack::PackError;

/// Errors of parameters, keys and bytes from a peer or a file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum HeError {
    /// The moduli or the degree are unusable: a defect of the program.
    #[error(transparent)]
    Lattice(#[from] LatticeError),
    /// The modulus is too large for the degree.
    #[error("degree {degree} with a modulus of {modulus_log2:.1} bits: at most {max} bits are secure")]
    Insecure {
        /// The ring degree.
        degree: usize,
        /// Bits of the modulus.
        modulus_log2: f64,
        /// The most bits that are secure; 0 for a degree outside the table.
        max: u32,
    },
    /// The ring width is outside the supported range.
    #[error("ring of {bits} bits: 1 to {max} are supported")]
    RingBits {
        /// Requested bits.
        bits: u32,
        /// The largest supported width.
        max: u32,
    },
    /// Even without rounding, the error of a share exceeds the requested bound.
    #[error(
        "ring of {ring_bits} bits with weights of norm 2^{norm_log2:.1}: an error of {max_error} cannot be promised"
    )]
    TooNoisy {
        /// Width of the ring.
        ring_bits: u32,
        /// log2 of the Euclidean norm of the weights in one polynomial.
        norm_log2: f64,
        /// The requested error bound.
        max_error: u32,
    },
    /// A message has the wrong length.
    #[error("{what}: {got} bytes, expected {expected}")]
    Length {
        /// Name of the message.
        what: &'static str,
        /// Received bytes.
        got: usize,
        /// Bytes that the parameters imply.
        expected: usize,
    },
    /// A coefficient is out of range.
    #[error("{what}: coefficient {index} is out of range")]
    Range {
        /// Name of the message.
        what: &'static str,
        /// Index of the first coefficient out of range.
        index: usize,
    },
    /// Padding bits after the last coefficient are set.
    #[error("{what}: bits after the last coefficient are set")]
    Padding {
        /// Name of the message.
        what: &'static str,
    },
    /// A description of parameters is invalid.
    #[error("parameters: {why}")]
    Description {
        /// The reason.
        why: String,
    },
    /// There are too few primes of the requested size.
    #[error("no prime of {bits} bits that is 1 mod {step} is left")]
    NoPrime {
        /// Requested bits.
        bits: u32,
        /// Twice the ring degree.
        step: u64,
    },
    /// A key would have less than 128 bits of security.
    #[error("{what}: a modulus of {modulus_log2:.1} bits at degree {degree}, at most {max} bits are secure")]
    InsecureKey {
        /// Name of the key.
        what: String,
        /// The ring degree.
        degree: usize,
        /// Bits of the key's modulus.
        modulus_log2: f64,
        /// The most bits that are secure for the key's secret; 0 if no size is.
        max: u32,
    },
    /// The ring does not support this number of slots.
    #[error("{slots} slots: a power of two from 2 to {max} is supported")]
    Slots {
        /// Requested slots.
        slots: usize,
        /// The most slots at this degree.
        max: usize,
    },
    /// There are more values than slots.
    #[error("{values} values do not fit {slots} slots")]
    TooManyValues {
        /// Number of values.
        values: usize,
        /// Number of slots.
        slots: usize,
    },
    /// An encoded value is too large, infinite or not a number.
    #[error("a coefficient of 2^{log2:.1} does not fit {max} bits: lower the scale or the values")]
    TooLarge {
        /// log2 of the largest coefficient.
        log2: f64,
        /// Bits that a coefficient may have.
        max: u32,
    },
    /// A level is too low or does not match.
    #[error("{what}: level {need} is needed, level {have} is given")]
    Level {
        /// The operation.
        what: &'static str,
        /// The required level.
        need: usize,
        /// The actual level.
        have: usize,
    },
    /// The scales of two operands differ.
    #[error("{what}: scales 2^{:.9} and 2^{:.9} differ", left.log2(), right.log2())]
    Scale {
        /// The operation.
        what: &'static str,
        /// Scale of the left operand.
        left: f64,
        /// Scale of the right operand.
        right: f64,
    },
    /// The operands have different numbers of slots.
    #[error("{what}: {left} and {right} slots")]
    SlotCount {
        /// The operation.
        what: &'static str,
        /// Slots of the left operand.
        left: usize,
        /// Slots of the right operand.
        right: usize,
    },
    /// The key set lacks a switching key.
    #[error("no key for {key} at level {level}")]
    MissingKey {
        /// Purpose of the key.
        key: String,
        /// The level at which the key is needed.
        level: usize,
    },
    /// A switching key is for a lower level than the ciphertext's.
    #[error("the key for {key} is good up to level {have}, level {level} is needed")]
    KeyTooLow {
        /// Purpose of the key.
        key: String,
        /// The level at which the key is needed.
        level: usize,
        /// The highest level of an available key.
        have: usize,
    },
    /// A switching key has a different number of special primes.
    #[error("the key for {key} has {have} special primes, {need} are needed beside the others")]
    KeyAlpha {
        /// Purpose of the key.
        key: String,
        /// Required special primes.
        need: usize,
        /// Special primes of the key.
        have: usize,
    },
    /// A circuit cannot be built as described.
    #[error("{what}: {why}")]
    Circuit {
        /// Name of the circuit.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{file}: {why}")]
    File {
        /// Name of the file.
        file: String,
        /// Error message of the operating system.
        why: String,
    },
    /// A message or file has an invalid format.
    #[error("{what}: {why}")]
    Format {
        /// Name of the message or file.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

impl HeError {
    /// Converts a [`PackError`] of the message `what`.
    pub(crate) fn packed(what: &'static str) -> impl Fn(PackError) -> Self {
        move |error| match error {
            PackError::Length { got, expected } => Self::Length { what, got, expected },
            PackError::Range { index } => Self::Range { what, index },
            PackError::Padding => Self::Padding { what },
        }
    }
}
