//! The description of a parameter set.

use serde::{Deserialize, Serialize};

/// Nonzero coefficients of the sparse secret, under which bootstrapping raises.
pub const SPARSE_WEIGHT: usize = 32;

/// Consecutive primes of about one size: the scale at their levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Number of primes.
    pub count: usize,
    /// Bits of the primes and of the scale.
    pub bits: u32,
}

/// Number of special primes of the keys of a range of levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyGroup {
    /// Highest level of the range, which starts above the group before.
    pub up_to_level: usize,
    /// Special primes (alpha), and primes in one digit.
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
    /// Special primes by level, ascending to the highest.
    pub groups: Vec<KeyGroup>,
    /// Whether keys to and from the sparse secret exist (needed for bootstrapping).
    pub encapsulated: bool,
}
