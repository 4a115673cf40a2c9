//! Convolutions, matrix-vector products and sums with small public factors, over words of 32 or 64
//! bits: the server's whole work on a linear layer in the online phase. Sums are mod `2^32` or
//! `2^64`; the caller reduces them mod `2^l`. Timing depends on shapes only.

mod conv;
mod spec;
mod word;

use crate::cpu::Cpu;
use word::Word;

pub use conv::conv2d;
pub use spec::{ConvSpec, ShapeError};

/// Computes `sums[i] += factors[i] * values[i]` mod `2^32`, up to the shortest of the three slices.
pub fn accumulate_u32(sums: &mut [u32], factors: &[i8], values: &[u32]) {
    Word::accumulate(Cpu::best(), sums, factors, values);
}

/// As [`accumulate_u32`], mod `2^64`.
pub fn accumulate_u64(sums: &mut [u64], factors: &[i8], values: &[u64]) {
    Word::accumulate(Cpu::best(), sums, factors, values);
}

#[cfg(test)]
mod tests;
