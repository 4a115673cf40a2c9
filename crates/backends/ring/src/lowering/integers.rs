//! Conversion of real numbers to integers.

use crate::WeightFacts;
use crate::fixed::MAX_FRAC_BITS;
use crate::op::{MAX_MAGNITUDE_BITS, MAX_NORM_BITS};

/// Significant bits of public factors (averages, leaky slopes).
const FACTOR_BITS: i32 = 10;

/// Half a unit of the result of a truncation by `bits`. (A scheme with too long shifts is refused as a
/// whole.)
pub(super) fn half(bits: u32) -> i64 {
    1 << (bits - 1).min(62)
}

pub(super) fn quantise(x: f64, bits: u32) -> i64 {
    (x * f64::from(bits).exp2()).round() as i64
}

/// The fraction bits that give a factor [`FACTOR_BITS`] significant bits.
pub(super) fn factor_bits(factor: f64) -> u32 {
    if factor == 0.0 { 0 } else { (FACTOR_BITS - factor.log2().floor() as i32).clamp(0, MAX_FRAC_BITS as i32) as u32 }
}

/// The smallest public facts that hold for integer weights, rounded up to multiples of `round`.
pub(super) fn facts(weights: &[i32], row: usize, frac_bits: u32, round: u32) -> WeightFacts {
    let largest = weights.iter().map(|w| w.unsigned_abs()).max().unwrap_or(0);
    let norm2 = weights
        .chunks(row.max(1))
        .map(|r| r.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>())
        .fold(0.0, tacit_floats::larger);
    let norm_bits = if norm2 <= 1.0 { 0 } else { norm2.sqrt().log2().ceil() as u32 };
    WeightFacts {
        frac_bits,
        magnitude_bits: (32 - largest.leading_zeros()).next_multiple_of(round).min(MAX_MAGNITUDE_BITS),
        norm_bits: norm_bits.next_multiple_of(round).min(MAX_NORM_BITS),
    }
}
