//! Kernels on slices of residues modulo one prime: the operations of a scheme between transforms.
//!
//! Levels and bases are the caller's: every function takes slices of one length, any length, in
//! coefficient or NTT form. Operands and results are in `[0, p)` unless stated. Kernels are chosen at
//! run time, and tested bit for bit against the portable one. No branch or index depends on a value.

mod fma;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod portable;

use crate::cpu::{Arithmetic, Cpu};
use crate::modulus::{Modulus, Shoup};
use crate::products::Reduction;

/// Most products that one call of [`Pointwise::dot_pair`] adds up.
pub const MAX_PRODUCTS: usize = 2048;

const PART: usize = 512;

/// The kernels modulo one prime. Immutable, cheap to copy.
#[derive(Clone, Copy)]
pub struct Pointwise {
    modulus: Modulus,
    /// 2^64 mod p
    radix: Shoup,
    /// 2^52 mod p, and its square mod p.
    radix52: [Shoup; 2],
    reduction: Reduction,
    arithmetic: Arithmetic,
}

/// Calls the function `$name` of the chosen kernels.
macro_rules! dispatch {
    ($self:ident, $name:ident($($arg:expr),*)) => {
        match $self.arithmetic {
            Arithmetic::Portable => portable::$name($($arg),*),
            Arithmetic::Fma => fma::$name($($arg),*),
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Ifma => ifma::$name($($arg),*),
            #[cfg(not(target_arch = "x86_64"))]
            Arithmetic::Ifma => unreachable!("no other processor has these instructions"),
        }
    };
}

impl Pointwise {
    /// Operations modulo `modulus` on the fastest kernels of this processor.
    pub fn new(modulus: Modulus) -> Self {
        Self::with_cpu(Cpu::best(), modulus)
    }

    /// As [`Pointwise::new`], on the fastest kernels of `cpu`.
    pub fn with_cpu(cpu: Cpu, modulus: Modulus) -> Self {
        let (radix, radix52) = (modulus.power_of_two(64), [52, 104].map(|exponent| modulus.power_of_two(exponent)));
        Self { modulus, radix, radix52, reduction: Reduction::new(&modulus), arithmetic: cpu.arithmetic() }
    }

    /// Name of the chosen kernels, for reports.
    pub fn kernel_name(&self) -> &'static str {
        self.arithmetic.name()
    }

    /// The modulus.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    pub(crate) fn reduction(&self) -> Reduction {
        self.reduction
    }

    /// `2^52 mod p` and its square.
    pub(crate) fn radix52(&self) -> [Shoup; 2] {
        self.radix52
    }

    /// `x[i] = x[i] + y[i] mod p`.
    ///
    /// # Panics
    /// If the lengths differ, as for every function here.
    pub fn add(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        dispatch!(self, add(self, x, y))
    }

    /// `x[i] = x[i] - y[i] mod p`.
    pub fn sub(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        dispatch!(self, sub(self, x, y))
    }

    /// `x[i] = -x[i] mod p`.
    pub fn neg(&self, x: &mut [u64]) {
        dispatch!(self, neg(self, x))
    }

    /// `x[i] = x[i] * y[i] mod p`.
    pub fn mul(&self, x: &mut [u64], y: &[u64]) {
        same_length(x.len(), [y]);
        dispatch!(self, mul(self, x, y))
    }

    /// `x[i] = x[i] * w mod p` for a factor of [`Modulus::shoup`].
    pub fn scale(&self, x: &mut [u64], w: Shoup) {
        dispatch!(self, scale(self, x, w))
    }

    /// `x[i] = (x[i] - y[i]) * w mod p`: the last step of a division by special primes or of a
    /// rescaling.
    pub fn sub_scale(&self, x: &mut [u64], y: &[u64], w: Shoup) {
        same_length(x.len(), [y]);
        dispatch!(self, sub_scale(self, x, y, w))
    }

    /// `x[i] = x[i] + y[i] * w mod p`.
    pub fn add_scaled(&self, x: &mut [u64], y: &[u64], w: Shoup) {
        same_length(x.len(), [y]);
        dispatch!(self, add_scaled(self, x, y, w))
    }

    /// `x[i] = x[i] mod p` for any words `x[i]`, such as residues of another prime.
    pub fn reduce(&self, x: &mut [u64]) {
        dispatch!(self, reduce(self, x))
    }

    /// `to[i] = from[i] mod p` for signed words.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn reduce_signed(&self, source: &[i64], target: &mut [u64]) {
        assert_eq!(source.len(), target.len(), "buffers of different lengths");
        dispatch!(self, reduce_signed(self, source, target))
    }

    pub(crate) fn any_above(&self, x: &[u64], bound: u64) -> bool {
        dispatch!(self, any_above(x, bound))
    }

    /// Adds `sum_k digits[k] * pairs[k][h]` to `sums[h]`, `h` in `{0, 1}`: the inner product of key
    /// switching (digits with both halves of a key) and of linear transforms (diagonals with both
    /// halves of ciphertexts). Reads each digit once and reduces once.
    ///
    /// # Panics
    /// If the numbers of pairs and digits differ, there are more than [`MAX_PRODUCTS`], or lengths
    /// differ.
    pub fn dot_pair(&self, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [&mut [u64]; 2]) {
        assert!(digits.len() == pairs.len() && pairs.len() <= MAX_PRODUCTS, "{} digits", digits.len());
        let len = sums[0].len();
        assert_eq!(sums[1].len(), len, "both sums have one length");
        digits.iter().for_each(|digit| same_length(len, [digit]));
        pairs.iter().for_each(|&pair| same_length(len, pair));
        dispatch!(self, dot_pair(self, digits, pairs, sums))
    }

    /// The product `(a_0 + a_1 s) (b_0 + b_1 s)` by powers of s: `a_0 b_0`, `a_0 b_1 + a_1 b_0`,
    /// `a_1 b_1`.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn product_of_pairs(&self, a: [&[u64]; 2], b: [&[u64]; 2], out: [&mut [u64]; 3]) {
        let len = a[0].len();
        same_length(len, [a[1], b[0], b[1]]);
        assert!(out.iter().all(|out| out.len() == len), "buffers of different lengths");
        let [low, middle, high] = out;
        // Works in parts, so that all reads but the first find their words in the first-level cache.
        for start in (0..len).step_by(PART) {
            let part = start..(start + PART).min(len);
            let [[a0, a1], [b0, b1]] = [a, b].map(|pair| pair.map(|half| &half[part.clone()]));
            let [low, middle, high] = [&mut *low, &mut *middle, &mut *high].map(|out| &mut out[part.clone()]);
            [&mut *low, &mut *middle, &mut *high].into_iter().for_each(|out| out.fill(0));
            self.dot_pair(&[a0], &[[b0, b1]], [low, middle]);
            self.dot_pair(&[a1], &[[b0, b1]], [middle, high]);
        }
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
