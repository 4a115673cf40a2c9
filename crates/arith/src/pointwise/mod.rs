//! Kernels on slices of residues modulo one prime: what a scheme does between transforms.
//!
//! Nothing here knows of levels or bases: every function takes slices of one length, any length, in
//! coefficient or NTT form. Operands are in `[0, p)` unless stated, and so are results. Kernels are chosen
//! at run time; the portable one is the twin that every other is tested against, bit for bit. No branch and
//! no index depends on a value.

mod fma;
mod portable;

use crate::cpu::Cpu;
use crate::modulus::{Modulus, Shoup};
use crate::products::Reduction;

/// Products that [`Pointwise::dot_pair`] may add up in one call.
pub const MAX_PRODUCTS: usize = 2048;

/// The kernels modulo one prime. Immutable, cheap to copy.
#[derive(Clone, Copy)]
pub struct Pointwise {
    modulus: Modulus,
    /// 2^64 mod p
    radix: Shoup,
    reduction: Reduction,
    /// Fused multiply-add was detected: kernels on doubles.
    fma: bool,
}

impl Pointwise {
    /// On the fastest kernels.
    #[must_use]
    pub fn new(modulus: Modulus) -> Self {
        Self::with_cpu(Cpu::best(), modulus)
    }

    /// As [`Pointwise::new`] on the fastest kernels of `cpu`.
    #[must_use]
    pub fn with_cpu(cpu: Cpu, modulus: Modulus) -> Self {
        let radix = modulus.shoup(modulus.pow_vartime(2, 64));
        Self { modulus, radix, reduction: Reduction::new(&modulus), fma: cpu.has_fma() }
    }

    /// The name of the kernels that run, for reports.
    #[must_use]
    pub fn kernel_name(&self) -> &'static str {
        if self.fma { "fma" } else { "portable" }
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
        if self.fma { fma::add(self, x, y) } else { portable::add(self, x, y) }
    }

    /// `x[i] = x[i] - y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn sub(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        if self.fma { fma::sub(self, x, y) } else { portable::sub(self, x, y) }
    }

    /// `x[i] = -x[i] mod p`.
    pub fn neg(&self, x: &mut [u64]) {
        if self.fma { fma::neg(self, x) } else { portable::neg(self, x) }
    }

    /// `x[i] = x[i] * y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        if self.fma { fma::mul(self, x, y) } else { portable::mul(self, x, y) }
    }

    /// `x[i] = x[i] * w mod p` for a factor of [`Modulus::shoup`].
    pub fn scale(&self, x: &mut [u64], w: Shoup) {
        if self.fma { fma::scale(self, x, w) } else { portable::scale(self, x, w) }
    }

    /// `x[i] = (x[i] - y[i]) * w mod p`: the last step of a division by special primes or of a rescaling.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn sub_scale(&self, x: &mut [u64], y: &[u64], w: Shoup) {
        same_length(x.len(), [y]);
        if self.fma { fma::sub_scale(self, x, y, w) } else { portable::sub_scale(self, x, y, w) }
    }

    /// `x[i] = x[i] mod p` for any words `x[i]`: residues of another prime, for instance.
    pub fn reduce(&self, x: &mut [u64]) {
        if self.fma { fma::reduce(self, x) } else { portable::reduce(self, x) }
    }

    /// Whether a word is above `bound`.
    pub(crate) fn any_above(&self, x: &[u64], bound: u64) -> bool {
        if self.fma { fma::any_above(x, bound) } else { portable::any_above(x, bound) }
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
        if self.fma { fma::dot_pair(self, digits, pairs, sums) } else { portable::dot_pair(self, digits, pairs, sums) }
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
