//! Bound on the plaintext prime. `docs/notes/noise.md` derives it.

use super::context::{ANSWER, DEGREE, FRESH, PRIMES};
use tacit_arith::sample::ERROR_COINS;

/// `sqrt(2 ln(2 * 2^40))`: a sub-Gaussian variable exceeds this many deviations with probability at
/// most 2^-40.
const TAIL: f64 = 7.54;
/// log2 of the smallest ratio of `q' / p` to the noise bound, at which a share is rounded to the
/// wrong side with probability at most 2^-40.
const MARGIN_LOG2: f64 = 41.0;
/// Margin on the squared norms of secret and error (10 deviations of those norms).
const NORM_MARGIN: f64 = 1.08;
const ERROR_VARIANCE: f64 = ERROR_COINS as f64 / 2.0;
const TERNARY_NORM_SQ: f64 = DEGREE as f64 * 2.0 / 3.0 * NORM_MARGIN;

/// Operations on ciphertexts before an answer is made of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noise {
    /// Products of weights and ciphertexts that are added up.
    pub products: usize,
    /// Classes of the weights.
    pub classes: usize,
    /// Most consecutive rotations of a ciphertext before its multiplication.
    pub turns: usize,
}

fn switch_variance() -> f64 {
    let special = PRIMES[FRESH] as f64;
    let digits: f64 = PRIMES[..FRESH].iter().map(|&q| (q as f64 / special).powi(2) / 12.0).sum();
    digits * DEGREE as f64 * ERROR_VARIANCE * NORM_MARGIN + (TERNARY_NORM_SQ + 1.0) / 12.0
}

/// Deviation of the phase error of an answer mod q' for a plaintext prime of `2^plain_log2`.
pub(super) fn deviation(noise: &Noise, plain_log2: f64) -> f64 {
    let dropped: f64 = PRIMES[ANSWER..FRESH].iter().map(|&q| q as f64).product();
    // A weight polynomial has 2C coefficients of at most p / 2.
    let weights = noise.products as f64 * 2.0 * noise.classes as f64 * (2.0 * plain_log2 - 2.0).exp2();
    let fresh = ERROR_VARIANCE + 1.0 / 12.0 + noise.turns as f64 * switch_variance();
    let divided = (weights * fresh + switch_variance()) / dropped.powi(2);
    let roundings = (TERNARY_NORM_SQ + 1.0) / 6.0;
    let zero_encryption = 2.0 * ERROR_VARIANCE * TERNARY_NORM_SQ;
    (divided + roundings + zero_encryption).sqrt()
}

/// log2 of the largest plaintext prime for which shares are exact, but with probability 2^-40 per
/// slot.
pub fn largest_plain_log2(noise: &Noise) -> f64 {
    let modulus: f64 = PRIMES[..ANSWER].iter().map(|&q| (q as f64).log2()).sum();
    let mut bits = 50.0;
    while bits > 0.0 && !fits(noise, bits, modulus) {
        bits -= 1.0 / 16.0;
    }
    bits
}

/// Tells whether shares are exact for a plaintext prime of `2^bits` and a modulus of `2^modulus`.
fn fits(noise: &Noise, bits: f64, modulus: f64) -> bool {
    bits + MARGIN_LOG2 + (TAIL * deviation(noise, bits)).log2() <= modulus
}
