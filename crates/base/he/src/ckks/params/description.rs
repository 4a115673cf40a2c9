//! What a parameter set is described by.

use serde::{Deserialize, Serialize};

/// Non-zero coefficients of the sparse secret that bootstrapping raises under.
pub const SPARSE_WEIGHT: usize = 32;

/// Consecutive primes of about one size; a ciphertext at one of their levels has a scale of that size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// How many.
    pub count: usize,
    /// Their size and that of the scale, in bits.
    pub bits: u32,
}

/// How many special primes the keys of a range of levels use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyGroup {
    /// Highest level of the range; it starts above that of the group before.
    pub up_to_level: usize,
    /// Special primes (alpha): also the number of primes in one digit.
    pub alpha: usize,
}

/// Description of a parameter set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParametersSpec {
    /// log2 of the ring degree N.
    pub log_degree: u32,
    /// Bits of `q_0`.
    pub base_bits: u32,
    /// The primes above `q_0`, from the lowest.
    pub segments: Vec<Segment>,
    /// Bits of the special primes.
    pub special_bits: u32,
    /// Special primes by level, ascending; the last group reaches the highest level.
    pub groups: Vec<KeyGroup>,
    /// Whether keys to and from the sparse secret exist (needed for bootstrapping).
    pub encapsulated: bool,
}
