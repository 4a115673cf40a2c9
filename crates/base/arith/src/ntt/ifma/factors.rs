//! The factors of the IFMA transforms.
//!
//! The last three stages inside each block of 64 work on eight words in the lanes of eight vectors.
//! The factor of lane i of block b is a product `u = s_b c_i` with `s_b = root^(1 + 2 rev(b))` and
//! `c_i = root^(N/32 rev(i))`, where rev reverses the bits of an index.
//!
//! The kernels therefore multiply the word at place l by `u^l`, and the stages themselves have the
//! 8th roots of 1 as factors. A block then needs 16 words from outside the cache instead of 112.

use super::super::twiddle_values;
use crate::modulus::{Modulus, Shoup};

#[derive(Clone)]
pub(in super::super) struct Factors {
    /// As [`Twiddles::value`](super::super::Twiddles), below N / 8, with quotients.
    pub(super) value: Vec<u64>,
    pub(super) quotient: Vec<u64>,
    /// For each block: `s_b` to the powers 1 to 7, each with its quotient, and two unused words.
    pub(super) block: Vec<u64>,
    /// `c_i^l` for l = 1 to 7: eight values, then eight quotients.
    pub(super) lane: Vec<u64>,
    /// `root^(N/2)`, `root^(N/4)` and their product.
    pub(super) corners: [Shoup; 3],
    /// For the inverse transform: the factor of the last stage, divided by N.
    pub(super) last: Shoup,
}

/// Words of `block` for each block.
pub(super) const BLOCK_FACTORS: usize = 16;

fn reverse_bits(i: usize, bits: u32) -> usize {
    if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) }
}

impl Factors {
    pub(in super::super) fn new(n: usize, modulus: &Modulus, root: u64) -> Self {
        let twiddles = twiddle_values(n, modulus, root);
        let blocks = n / 64;
        let mut block = Vec::with_capacity(BLOCK_FACTORS * blocks);
        for b in 0..blocks {
            let s = twiddles[reverse_bits(1 + 2 * reverse_bits(b, blocks.trailing_zeros()), n.trailing_zeros())];
            let powers = std::iter::successors(Some(s), |&power| Some(modulus.mul(power, s))).take(7);
            block.extend(powers.flat_map(|w| [w, modulus.shoup(w).quotient]));
            block.extend([0; 2]);
        }
        let mut lane = Vec::with_capacity(112);
        for l in 1..8 {
            let exponents = (0..8).map(|i| n / 32 * reverse_bits(i, 3) * l);
            let values: Vec<u64> = exponents.map(|exponent| modulus.pow_vartime(root, exponent as u64)).collect();
            lane.extend(&values);
            lane.extend(values.iter().map(|&w| modulus.shoup(w).quotient));
        }
        let corners = [n / 2, n / 4, n / 2 + n / 4];
        let corners = corners.map(|exponent| modulus.shoup(modulus.pow_vartime(root, exponent as u64)));
        let last = modulus.shoup(modulus.mul(twiddles[1], modulus.inv(n as u64)));
        let value = twiddles[..n / 8].to_vec();
        let quotient = value.iter().map(|&w| modulus.shoup(w).quotient).collect();
        Self { value, quotient, block, lane, corners, last }
    }
}
