//! Chooses and checks parameters from a description.

use super::check::{Secret, SecurityCheck, max_modulus_bits};
use super::description::ParametersSpec;
use super::primes;
use crate::HeError;
use crate::ckks::scale::Scale;
use std::ops::RangeInclusive;

const LOG_DEGREES: RangeInclusive<u32> = 12..=16;
const LOG_DEGREES_FOR_TESTS: RangeInclusive<u32> = 6..=16;
const PRIME_BITS: RangeInclusive<u32> = 20..=50;
/// Bits by which a digit may exceed its special primes: primes of one size differ. The error of a
/// larger digit would drown the message.
const SLACK: f64 = 0.1;
/// No set at 2^16 has more secure primes than this.
const MAX_PRIMES: usize = 100;

/// Checked parameters, with 128 bits of security for every key (but for `insecure_for_tests`).
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    spec: ParametersSpec,
    q: Vec<u64>,
    p: Vec<u64>,
    scales: Vec<Scale>,
    /// Whether keys must have 128 bits of security; false only in tests.
    checked: bool,
}

impl Parameters {
    /// Chooses primes and checks every key's modulus against the secret of its encryption.
    ///
    /// # Errors
    /// [`HeError::Description`] for a description out of range; [`HeError::NoPrime`] for too few
    /// primes of a size; [`HeError::InsecureKey`] with the first key below 128 bits.
    pub fn new(spec: &ParametersSpec) -> Result<Self, HeError> {
        let built = Self { checked: true, ..Self::build(spec, LOG_DEGREES)? };
        match built.security().into_iter().find(|check| !check.holds()) {
            Some(SecurityCheck { what, modulus_log2, max, .. }) => {
                Err(HeError::InsecureKey { what, degree: built.degree(), modulus_log2, max })
            }
            None => Ok(built),
        }
    }

    /// Parameters **without any check of security**, at degrees down to 64, for tests alone: the
    /// feature `test-util` is for no serving program.
    ///
    /// # Errors
    /// [`HeError::Description`], [`HeError::NoPrime`].
    #[cfg(any(test, feature = "test-util"))]
    pub fn insecure_for_tests(spec: &ParametersSpec) -> Result<Self, HeError> {
        Self::build(spec, LOG_DEGREES_FOR_TESTS)
    }

    fn build(spec: &ParametersSpec, degrees: RangeInclusive<u32>) -> Result<Self, HeError> {
        debug_assert!(LOG_DEGREES_FOR_TESTS.contains(degrees.start()));
        if !degrees.contains(&spec.log_degree) {
            return refuse(format!(
                "degree 2^{} is not one of 2^{} to 2^{}",
                spec.log_degree,
                degrees.start(),
                degrees.end()
            ));
        }
        let sizes = spec.segments.iter().map(|s| s.bits).chain([spec.base_bits, spec.special_bits]);
        if let Some(bits) = sizes.into_iter().find(|bits| !PRIME_BITS.contains(bits)) {
            return refuse(format!(
                "primes of {bits} bits: {} to {} are supported",
                PRIME_BITS.start(),
                PRIME_BITS.end()
            ));
        }
        let counts = spec.segments.iter().map(|s| s.count);
        let levels = counts.fold(1usize, usize::saturating_add);
        let special = spec.groups.iter().map(|g| g.alpha).max().unwrap_or(0);
        if levels.saturating_add(special) > MAX_PRIMES {
            return refuse(format!("{levels} primes and {special} special ones: at most {MAX_PRIMES} are supported"));
        }
        let ascending = spec.groups.windows(2).all(|w| w[0].up_to_level < w[1].up_to_level);
        let complete = spec.groups.last().is_some_and(|g| g.up_to_level == levels);
        if !ascending || !complete || spec.groups.iter().any(|g| g.alpha == 0 || g.up_to_level == 0) {
            return refuse(format!("key groups must ascend to level {levels}, each with a special prime"));
        }
        if spec.segments.first().is_some_and(|lowest| lowest.bits > spec.base_bits) {
            return refuse(format!("q_0 of {} bits holds no scale of the lowest level", spec.base_bits));
        }
        let chain = primes::choose(spec)?;
        for group in &spec.groups {
            let special = product_log2(&chain.p[..group.alpha]);
            let mut digits = chain.q[..group.up_to_level].chunks(group.alpha);
            if let Some(digit) = digits.find(|d| product_log2(d) > special + SLACK) {
                let (alpha, digit) = (group.alpha, product_log2(digit));
                return refuse(format!("{alpha} special primes of {special:.1} bits for a digit of {digit:.1}"));
            }
        }
        Ok(Self { spec: spec.clone(), q: chain.q, p: chain.p, scales: chain.scales, checked: false })
    }

    /// The description of the parameters.
    pub fn spec(&self) -> &ParametersSpec {
        &self.spec
    }

    /// Digest of degree, primes and key groups, on which the meaning of bytes depends.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("tacit ckks parameters 1");
        let mut number = |n: u64| {
            hasher.update(&n.to_le_bytes());
        };
        number(u64::from(self.spec.log_degree));
        for primes in [&self.q, &self.p] {
            number(primes.len() as u64);
            primes.iter().for_each(|&prime| number(prime));
        }
        for group in &self.spec.groups {
            number(group.up_to_level as u64);
            number(group.alpha as u64);
        }
        hasher.finalize().into()
    }

    /// Ring degree N.
    pub fn degree(&self) -> usize {
        1 << self.spec.log_degree
    }

    /// The highest level: the number of primes `q_i`.
    pub fn levels(&self) -> usize {
        self.q.len()
    }

    /// `q_0` to `q_(L-1)`; a ciphertext at level l uses the first l.
    pub fn primes(&self) -> &[u64] {
        &self.q
    }

    /// The special primes; a key with alpha of them uses the first alpha.
    pub fn special_primes(&self) -> &[u64] {
        &self.p
    }

    /// The canonical scale at `level`. A rescaled product of two ciphertexts at this scale has that
    /// of the level below, except across the border of two segments.
    ///
    /// # Panics
    /// If `level` is not 1 to [`Parameters::levels`].
    pub fn scale(&self, level: usize) -> Scale {
        self.scales[level - 1]
    }

    /// Number of special primes of keys for ciphertexts at `level`.
    ///
    /// # Panics
    /// If `level` is above [`Parameters::levels`].
    pub fn alpha(&self, level: usize) -> usize {
        let group = self.spec.groups.iter().find(|g| level <= g.up_to_level);
        group.expect("the last group reaches the highest level").alpha
    }

    /// Bits of the modulus with `level` primes and `special` special ones.
    pub fn modulus_log2(&self, level: usize, special: usize) -> f64 {
        self.q[..level].iter().chain(&self.p[..special]).map(|&p| (p as f64).log2()).sum()
    }

    /// Checks that a key at `level` with `special` special primes may exist, whatever a circuit
    /// asks for: its modulus has 128 bits of security for the secret of its encryption. The key to
    /// the sparse secret has one prime and one special prime.
    ///
    /// # Errors
    /// [`HeError::InsecureKey`] if the key may not exist.
    pub(in super::super) fn admit(
        &self,
        what: &str,
        secret: Secret,
        level: usize,
        special: usize,
    ) -> Result<(), HeError> {
        let (modulus_log2, max) = (self.modulus_log2(level, special), max_modulus_bits(self.degree(), secret));
        let is_small = !self.checked || modulus_log2 <= f64::from(max);
        let is_meant = secret == Secret::Ternary || (self.spec.encapsulated && (level, special) == (1, 1));
        if is_small && is_meant {
            return Ok(());
        }
        let max = if is_meant { max } else { 0 };
        Err(HeError::InsecureKey { what: what.into(), degree: self.degree(), modulus_log2, max })
    }

    /// The largest modulus of each kind of key and of ciphertexts.
    pub fn security(&self) -> Vec<SecurityCheck> {
        let mut checks: Vec<SecurityCheck> = self
            .spec
            .groups
            .iter()
            .map(|g| {
                let what = format!("keys up to level {} with {} special primes", g.up_to_level, g.alpha);
                self.check(what, Secret::Ternary, self.modulus_log2(g.up_to_level, g.alpha))
            })
            .collect();
        checks.push(self.check("ciphertexts".into(), Secret::Ternary, self.modulus_log2(self.levels(), 0)));
        if self.spec.encapsulated {
            checks.push(self.check("the key to the sparse secret".into(), Secret::Sparse, self.modulus_log2(1, 1)));
        }
        checks
    }

    fn check(&self, what: String, secret: Secret, modulus_log2: f64) -> SecurityCheck {
        let max = max_modulus_bits(self.degree(), secret);
        SecurityCheck { what, secret, modulus_log2, max }
    }
}

fn refuse<T>(why: String) -> Result<T, HeError> {
    Err(HeError::Description { why })
}

fn product_log2(primes: &[u64]) -> f64 {
    primes.iter().map(|&p| (p as f64).log2()).sum::<f64>()
}
