//! Kernels on slices of residues modulo one prime: what a scheme does between transforms.
//!
//! Nothing here knows of levels or bases: every function takes slices of one length, any length, in
//! coefficient or NTT form. Operands are in `[0, p)` unless stated, and so are results. Kernels are chosen
//! at run time; the portable one is the twin that every other is tested against, bit for bit. No branch and
//! no index depends on a value.

mod portable;

use crate::cpu::Cpu;
use crate::modulus::{Modulus, Shoup};

/// Products that [`Pointwise::dot_pair`] may add up in one call.
pub const MAX_PRODUCTS: usize = 2048;

/// The kernels modulo one prime. Immutable, cheap to copy.
#[derive(Clone, Copy)]
pub struct Pointwise {
    modulus: Modulus,
    /// 2^64 mod p
    radix: Shoup,
}

impl Pointwise {
    /// On the fastest kernels.
    #[must_use]
    pub fn new(modulus: Modulus) -> Self {
        Self::with_cpu(Cpu::best(), modulus)
    }

    /// As [`Pointwise::new`] on the fastest kernels of `cpu`.
    #[must_use]
    pub fn with_cpu(_cpu: Cpu, modulus: Modulus) -> Self {
        let radix = modulus.shoup(modulus.reduce_product(u128::from(modulus.reduce(1 << 32)).pow(2)));
        Self { modulus, radix }
    }

    /// The modulus.
    #[must_use]
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// `x[i] = x[i] + y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ (as every function here).
    pub fn add(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        portable::add(self, x, y);
    }

    /// `x[i] = x[i] - y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn sub(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        portable::sub(self, x, y);
    }

    /// `x[i] = -x[i] mod p`.
    pub fn neg(&self, x: &mut [u64]) {
        portable::neg(self, x);
    }

    /// `x[i] = x[i] * y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        portable::mul(self, x, y);
    }

    /// `x[i] = x[i] * w mod p` for a factor of [`Modulus::shoup`].
    pub fn scale(&self, x: &mut [u64], w: Shoup) {
        portable::scale(self, x, w);
    }

    /// `x[i] = (x[i] - y[i]) * w mod p`: the last step of a division by special primes or of a rescaling.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn sub_scale(&self, x: &mut [u64], y: &[u64], w: Shoup) {
        same_length(x.len(), [y]);
        portable::sub_scale(self, x, y, w);
    }

    /// `x[i] = x[i] mod p` for any words `x[i]`: residues of another prime, for instance.
    pub fn reduce(&self, x: &mut [u64]) {
        portable::reduce(self, x);
    }

    /// Adds `sum_k digits[k] * pairs[k][h]` to `sums[h]`, `h` in `{0, 1}`: the inner product of key switching
    /// (digits against both halves of a key) and of linear transforms (diagonals against both halves of
    /// ciphertexts). Each digit is read once; sums are reduced once.
    ///
    /// # Panics
    /// If there are not as many pairs as digits or more than [`MAX_PRODUCTS`], or lengths differ.
    pub fn dot_pair(&self, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [&mut [u64]; 2]) {
        assert!(digits.len() == pairs.len() && pairs.len() <= MAX_PRODUCTS, "{} digits", digits.len());
        let len = sums[0].len();
        assert_eq!(sums[1].len(), len, "both sums have one length");
        digits.iter().for_each(|digit| same_length(len, [digit]));
        pairs.iter().for_each(|&pair| same_length(len, pair));
        portable::dot_pair(self, digits, pairs, sums);
    }

    /// `x mod p` for any `x`.
    #[inline(always)]
    fn reduce_u128(&self, x: u128) -> u64 {
        let m = &self.modulus;
        m.add(m.reduce(x as u64), m.mul_shoup(m.reduce((x >> 64) as u64), self.radix))
    }
}

fn same_length<const K: usize>(len: usize, slices: [&[u64]; K]) {
    assert!(slices.iter().all(|s| s.len() == len), "buffers of different lengths");
}

#[cfg(test)]
mod tests;
