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
    /// A description of parameters that makes no sense.
    #[error("parameters: {why}")]
    Description {
        /// What is wrong with it.
        why: String,
    },
    /// Too few primes of a size.
    #[error("no prime of {bits} bits that is 1 mod {step} is left")]
    NoPrime {
        /// Bits asked for.
        bits: u32,
        /// Twice the ring degree.
        step: u64,
    },
    /// A key would have less than 128 bits of security.
    #[error("{what}: a modulus of {modulus_log2:.1} bits at degree {degree}, at most {max} bits are secure")]
    InsecureKey {
        /// Which key.
        what: String,
        /// The ring degree.
        degree: usize,
        /// Bits of its modulus.
        modulus_log2: f64,
        /// The largest size for its secret at this degree, 0 where there is none.
        max: u32,
    },
    /// A number of slots that the ring does not have.
    #[error("{slots} slots: a power of two from 2 to {max} is supported")]
    Slots {
        /// Slots asked for.
        slots: usize,
        /// The most at this degree.
        max: usize,
    },
    /// More values than slots.
    #[error("{values} values do not fit {slots} slots")]
    TooManyValues {
        /// Values given.
        values: usize,
        /// Slots there are.
        slots: usize,
    },
    /// An encoded value is too large (or no number).
    #[error("a coefficient of 2^{log2:.1} does not fit {max} bits: lower the scale or the values")]
    TooLarge {
        /// log2 of the largest coefficient.
        log2: f64,
        /// Bits that fit.
        max: u32,
    },
    /// Levels do not fit.
    #[error("{what}: level {need} is needed, level {have} is given")]
    Level {
        /// The operation.
        what: &'static str,
        /// The level needed.
        need: usize,
        /// The level given.
        have: usize,
    },
    /// Scales differ.
    #[error("{what}: scales 2^{:.9} and 2^{:.9} differ", left.log2(), right.log2())]
    Scale {
        /// The operation.
        what: &'static str,
        /// Scale of the left operand.
        left: f64,
        /// Scale of the right operand.
        right: f64,
    },
    /// Numbers of slots differ.
    #[error("{what}: {left} and {right} slots")]
    SlotCount {
        /// The operation.
        what: &'static str,
        /// Slots of the left operand.
        left: usize,
        /// Slots of the right operand.
        right: usize,
    },
    /// A switching key that is not in the set.
    #[error("no key for {key} at level {level}")]
    MissingKey {
        /// What the key would do.
        key: String,
        /// The level it is needed at.
        level: usize,
    },
    /// A switching key below the level of the ciphertext.
    #[error("the key for {key} is good up to level {have}, level {level} is needed")]
    KeyTooLow {
        /// What the key does.
        key: String,
        /// The level it is needed at.
        level: usize,
        /// The highest level of a key that is there.
        have: usize,
    },
    /// A switching key with another number of special primes.
    #[error("the key for {key} has {have} special primes, {need} are needed beside the others")]
    KeyAlpha {
        /// What the key does.
        key: String,
        /// Special primes needed.
        need: usize,
        /// Special primes of the key.
        have: usize,
    },
    /// A circuit that cannot be built as asked.
    #[error("{what}: {why}")]
    Circuit {
        /// The circuit.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A file that cannot be read or written.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What the operating system said.
        why: String,
    },
    /// Bytes that are not what they should be.
    #[error("{what}: {why}")]
    Format {
        /// The message or file.
        what: &'static str,
        /// What is wrong.
        why: String,
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
