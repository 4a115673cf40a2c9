//! Named sets. Their figures, with sources and measurements, are in `docs/parameters.md`.

use super::description::{KeyGroup, ParametersSpec, Segment};

/// A parameter set with its stated properties.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NamedSet {
    /// Name of the set.
    pub name: &'static str,
    /// Purpose of the set.
    pub purpose: &'static str,
    /// log2 of the probability that one bootstrap fails: that a multiple of `q_0` exceeds the range
    /// of the sine (weight 32, range 16: 2^-121.7 for each coefficient).
    pub failure_log2: Option<f64>,
    segments: &'static [Segment],
    groups: &'static [KeyGroup],
    log_degree: u32,
    base_bits: u32,
}

const fn segment(count: usize, bits: u32) -> Segment {
    Segment { count, bits }
}

const fn group(up_to_level: usize, alpha: usize) -> KeyGroup {
    KeyGroup { up_to_level, alpha }
}

/// Sets A, B and C. All have 128 bits of security ([`super::Parameters::security`]).
pub const SETS: [NamedSet; 3] = [
    NamedSet {
        name: "A",
        purpose: "networks with ReLU by composite polynomials: 15 levels between bootstraps, 2^15 slots",
        failure_log2: Some(-105.7),
        // SlotToCoeff 3, network 15, EvalMod 10 with the cubic correction of the sine, CoeffToSlot
        // 3.
        // Primes of digits are a bit smaller than special ones: six of each make P 2^6 larger than
        // any digit, so that errors of digits do not show. Lower levels have room for more special
        // primes: fewer digits, so fewer transforms and smaller keys.
        segments: &[segment(18, 42), segment(10, 49), segment(3, 45)],
        groups: &[group(8, 5), group(16, 8), group(27, 9), group(30, 8), group(31, 7), group(32, 6)],
        log_degree: 16,
        base_bits: 50,
    },
    NamedSet {
        name: "B",
        purpose: "networks with squares: 4 levels between bootstraps, 2^14 slots",
        failure_log2: Some(-106.7),
        // SlotToCoeff 2, network 4, EvalMod 8, CoeffToSlot 3.
        segments: &[segment(6, 36), segment(8, 47), segment(3, 43)],
        groups: &[group(7, 4), group(14, 5), group(16, 3), group(18, 2)],
        log_degree: 15,
        base_bits: 44,
    },
    NamedSet {
        name: "C",
        purpose: "17 levels without bootstrapping, 2^14 slots",
        failure_log2: None,
        segments: &[segment(17, 36)],
        groups: &[group(18, 4)],
        log_degree: 15,
        base_bits: 46,
    },
];

impl NamedSet {
    /// The set of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }

    /// Description of the set.
    pub fn spec(&self) -> ParametersSpec {
        ParametersSpec {
            log_degree: self.log_degree,
            base_bits: self.base_bits,
            segments: self.segments.to_vec(),
            special_bits: 50,
            groups: self.groups.to_vec(),
            encapsulated: self.failure_log2.is_some(),
        }
    }
}
