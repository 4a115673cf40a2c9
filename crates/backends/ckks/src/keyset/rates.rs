//! Estimates the seconds of counted work on one machine.

use serde::Serialize;
use tacit_arith::prg::PublicSeed;
use tacit_he::ckks::{SwitchKey, TransformWork};

/// Seconds of the three operations that all work is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// log2 of the ring degree that the rates are for.
    pub log_degree: u32,
    /// A number-theoretic transform mod one prime.
    pub ntt_s: f64,
    /// A product of a digit with a limb of a key, with its share of other work: reading the key, conversion
    /// between primes, permutation.
    pub product_s: f64,
    /// A product of a limb with a limb of a plaintext.
    pub plain_product_s: f64,
}

impl Default for Rates {
    /// Not those of a real machine: a product with a key counts a third of a transform, one with a plaintext
    /// a tenth.
    fn default() -> Self {
        Self { log_degree: 16, ntt_s: 1e-4, product_s: 3e-5, plain_product_s: 1e-5 }
    }
}

/// Number-theoretic transforms of one key switch at `level` with `alpha` special primes.
pub(super) fn transforms(level: usize, alpha: usize) -> u64 {
    ((level.div_ceil(alpha) + 2) * (level + alpha)) as u64
}

pub(super) fn products(level: usize, alpha: usize) -> u64 {
    (2 * level.div_ceil(alpha) * (level + alpha)) as u64
}

/// Seconds that operations took on a machine.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredOperations {
    /// log2 of the ring degree.
    pub log_degree: u32,
    /// Seconds of a number-theoretic transform mod one prime.
    pub ntt_s: f64,
    /// Seconds of a product of a limb with a limb of a plaintext.
    pub plain_product_s: f64,
    /// Seconds of one rotation.
    pub rotation_s: f64,
    /// Level of the rotation.
    pub level: usize,
    /// Special primes of the rotation's key.
    pub alpha: usize,
}

impl Rates {
    /// Computes rates from measured times of operations.
    #[must_use]
    pub fn from_measurement(took: &MeasuredOperations) -> Self {
        let MeasuredOperations { log_degree, ntt_s, plain_product_s, rotation_s, level, alpha } = *took;
        let left = rotation_s - transforms(level, alpha) as f64 * ntt_s;
        // A transform among others is not slower than one alone, and the rest is never zero.
        let min_left = 0.05 * rotation_s;
        let product_s = left.max(min_left) / products(level, alpha) as f64;
        Self { log_degree, ntt_s, product_s, plain_product_s }
    }

    /// Converts the rates to another ring: products scale with the number of words, transforms also with the
    /// logarithm of the degree.
    #[must_use]
    pub fn for_degree(self, log_degree: u32) -> Self {
        let words = 2f64.powi(log_degree as i32 - self.log_degree as i32);
        let butterflies = words * f64::from(log_degree) / f64::from(self.log_degree);
        let [product_s, plain_product_s] = [self.product_s, self.plain_product_s].map(|s| s * words);
        Self { log_degree, ntt_s: self.ntt_s * butterflies, product_s, plain_product_s }
    }

    /// The seconds of a key switch.
    #[must_use]
    pub fn switch_seconds(&self, level: usize, alpha: usize) -> f64 {
        transforms(level, alpha) as f64 * self.ntt_s + products(level, alpha) as f64 * self.product_s
    }

    /// Seconds of a linear transform whose diagonals repeat after a `share` of the slots.
    pub(super) fn transform(&self, work: &TransformWork, share: f64) -> f64 {
        // Each limb of a diagonal is transformed once and multiplied with both halves.
        let plain = 2 * work.diagonal_ntts;
        (work.ntts as f64 + work.diagonal_ntts as f64 * share) * self.ntt_s
            + (work.products - plain) as f64 * self.product_s
            + plain as f64 * self.plain_product_s
    }
}

/// Bytes of a seeded, packed key at `level` with `alpha` special primes, which may be more than the
/// parameters have.
pub(super) fn key_bytes(parameters: &tacit_he::ckks::Parameters, level: usize, alpha: usize) -> u64 {
    let special = u64::from(parameters.spec().special_bits);
    let widths = parameters.primes()[..level].iter().map(|prime| u64::from(u64::BITS - prime.leading_zeros()));
    let bits = widths.sum::<u64>() + alpha as u64 * special;
    let half = parameters.degree() as u64 / 8 * bits;
    level.div_ceil(alpha) as u64 * (SEED_BYTES + half)
}

/// Bytes of the same key with both halves and 8 bytes a residue.
pub(super) fn plain_bytes(degree: usize, level: usize, alpha: usize) -> u64 {
    (16 * degree * level.div_ceil(alpha) * (level + alpha)) as u64
}

const SEED_BYTES: u64 = PublicSeed::BYTES as u64;

/// Bytes of a key that the parameters have.
pub(super) fn packed_bytes(context: &tacit_he::ckks::Context, id: tacit_he::ckks::KeyId) -> u64 {
    SwitchKey::packed_bytes(context, id) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_he::ckks::{Context, KeyId, KeyKind, NamedSet, Parameters};

    #[test]
    fn key_bytes_match_library() {
        let parameters = Parameters::new(&NamedSet::find("B").unwrap().spec()).unwrap();
        let context = Context::new(&parameters).unwrap();
        for level in [3, 7, 12, 18] {
            let id = KeyId::for_level(&context, KeyKind::Galois(5), level);
            assert_eq!(key_bytes(&parameters, level, id.alpha), packed_bytes(&context, id), "level {level}");
        }
    }

    #[test]
    fn measured_rates_reproduce_rotation_time() {
        let took = MeasuredOperations {
            log_degree: 16,
            ntt_s: 1e-4,
            plain_product_s: 1e-5,
            rotation_s: 0.03,
            level: 15,
            alpha: 8,
        };
        let rates = Rates::from_measurement(&took);
        assert!((rates.switch_seconds(15, 8) - 0.03).abs() < 1e-9);
        assert!(rates.switch_seconds(15, 4) > rates.switch_seconds(8, 4));
        let small = rates.for_degree(14);
        assert_eq!((small.for_degree(16).log_degree, small.product_s), (16, rates.product_s / 4.0));
        assert!((small.ntt_s - rates.ntt_s / 4.0 * 14.0 / 16.0).abs() < 1e-12);
        let took = MeasuredOperations { ntt_s: 1e-3, ..took };
        assert!(Rates::from_measurement(&took).product_s > 0.0);
    }
}
