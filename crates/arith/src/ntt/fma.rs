//! Double-precision kernel for processors with fused multiply-add (AVX2, NEON): three to four times as fast
//! as the portable one.
//!
//! Coefficients are held as integers in `f64`, `|x| < 2p` between stages (`p < 2^50`). For `|x| <= 2.4p` and
//! a factor `w < p` the product is `h + l` exactly, with `h` its rounding; `q = round(x (w / p))` is off by
//! at most 0.6, so `(h - q p) + l` is `x w mod p` in `[-1.1p, 1.1p]`, and both steps are exact because every
//! value is an integer below 2^53.

use super::{NttTable, Twiddles};

/// Twiddle factors of one direction as doubles.
#[derive(Clone)]
pub(super) struct RealTwiddles {
    factor: Vec<f64>,
    /// `factor / p`
    ratio: Vec<f64>,
    /// As [`Twiddles::block`], with ratios in place of quotients.
    block: Vec<f64>,
}

impl RealTwiddles {
    pub(super) fn new(t: &Twiddles, p: u64) -> Self {
        let p = p as f64;
        let factor: Vec<f64> = t.value.iter().map(|&w| w as f64).collect();
        let vectors = t.block.chunks_exact(16);
        let block = vectors.flat_map(|v| {
            let factors = v[..8].iter().map(|&w| w as f64);
            factors.clone().chain(factors.map(|w| w / p)).collect::<Vec<f64>>()
        });
        Self { ratio: factor.iter().map(|w| w / p).collect(), block: block.collect(), factor }
    }
}

pub(super) fn forward(ntt: &NttTable, t: &RealTwiddles, x: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an `NttTable` with this kernel exists only where AVX2 and FMA were detected.
    unsafe {
        forward_avx2(t, ntt.modulus.value(), x);
    }
    #[cfg(not(target_arch = "x86_64"))]
    forward_any(t, ntt.modulus.value(), x);
}

pub(super) fn inverse(ntt: &NttTable, t: &RealTwiddles, x: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `forward`.
    unsafe {
        inverse_avx2(t, ntt.modulus.value(), ntt.degree_inverse.value, x);
    }
    #[cfg(not(target_arch = "x86_64"))]
    inverse_any(t, ntt.modulus.value(), ntt.degree_inverse.value, x);
}

/// # Safety
/// AVX2 and FMA must be present.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn forward_avx2(t: &RealTwiddles, p: u64, x: &mut [u64]) {
    forward_any(t, p, x);
}

/// # Safety
/// AVX2 and FMA must be present.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn inverse_avx2(t: &RealTwiddles, p: u64, scale: u64, x: &mut [u64]) {
    inverse_any(t, p, scale, x);
}

/// The modulus and its reciprocal.
#[derive(Clone, Copy)]
struct Real {
    p: f64,
    inverse: f64,
}

impl Real {
    fn new(p: u64) -> Self {
        Self { p: p as f64, inverse: 1.0 / p as f64 }
    }

    /// `x mod p` in `[-p/2, p/2]`.
    #[inline(always)]
    fn reduce(self, x: f64) -> f64 {
        (x * self.inverse).round_ties_even().mul_add(-self.p, x)
    }

    #[inline(always)]
    fn mul(self, x: f64, factor: f64, ratio: f64) -> f64 {
        let h = x * factor;
        let l = x.mul_add(factor, -h);
        (x * ratio).round_ties_even().mul_add(-self.p, h) + l
    }

    #[inline(always)]
    fn forward(self, a: &mut f64, b: &mut f64, factor: f64, ratio: f64) {
        let (s, t) = (self.reduce(*a), self.mul(*b, factor, ratio));
        (*a, *b) = (s + t, s - t);
    }

    #[inline(always)]
    fn inverse(self, a: &mut f64, b: &mut f64, factor: f64, ratio: f64) {
        let (s, d) = (*a + *b, *a - *b);
        (*a, *b) = (self.reduce(s), self.mul(d, factor, ratio));
    }
}

const TWO52: f64 = 4_503_599_627_370_496.0;

/// The same words as doubles: integers below 2^52 to the doubles of that value.
#[inline(always)]
fn to_real(x: &mut [u64]) -> &mut [f64] {
    for v in x.iter_mut() {
        *v = (f64::from_bits(*v | TWO52.to_bits()) - TWO52).to_bits();
    }
    // SAFETY: u64 and f64 have the same size and alignment, and all bit patterns are valid for both.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast::<f64>(), x.len()) }
}

/// Undoes [`to_real`] for `|x| < 2^52`, reduced to `[0, p)`.
#[inline(always)]
fn to_integers(x: &mut [u64], m: Real) {
    for v in x {
        let r = m.reduce(f64::from_bits(*v));
        let r = r + if r < 0.0 { m.p } else { 0.0 };
        *v = (r + TWO52).to_bits() & ((1 << 52) - 1);
    }
}

#[inline(always)]
fn forward_any(t: &RealTwiddles, p: u64, x: &mut [u64]) {
    let (n, m) = (x.len(), Real::new(p));
    let v = to_real(x);
    let mut groups = 1;
    while groups < n / 8 {
        let half = n / (2 * groups);
        for (i, group) in v.chunks_exact_mut(2 * half).enumerate() {
            let (factor, ratio) = (t.factor[groups + i], t.ratio[groups + i]);
            let (upper, lower) = group.split_at_mut(half);
            for (a, b) in upper.iter_mut().zip(lower) {
                m.forward(a, b, factor, ratio);
            }
        }
        groups *= 2;
    }
    for (block, w) in v.as_chunks_mut::<64>().0.iter_mut().zip(t.block.as_chunks::<112>().0) {
        transpose(block);
        for (vector, (low, high)) in BLOCK_STAGES.into_iter().rev().flatten() {
            for j in 0..8 {
                let (mut a, mut b) = (block[8 * low + j], block[8 * high + j]);
                m.forward(&mut a, &mut b, w[16 * vector + j], w[16 * vector + 8 + j]);
                (block[8 * low + j], block[8 * high + j]) = (a, b);
            }
        }
    }
    to_integers(x, m);
}

#[inline(always)]
fn inverse_any(t: &RealTwiddles, p: u64, scale: u64, x: &mut [u64]) {
    let (n, m) = (x.len(), Real::new(p));
    let v = to_real(x);
    for (block, w) in v.as_chunks_mut::<64>().0.iter_mut().zip(t.block.as_chunks::<112>().0) {
        for (vector, (low, high)) in BLOCK_STAGES.into_iter().flatten() {
            for j in 0..8 {
                let (mut a, mut b) = (block[8 * low + j], block[8 * high + j]);
                m.inverse(&mut a, &mut b, w[16 * vector + j], w[16 * vector + 8 + j]);
                (block[8 * low + j], block[8 * high + j]) = (a, b);
            }
        }
        transpose(block);
    }
    let mut groups = n / 16;
    while groups > 0 {
        let half = n / (2 * groups);
        for (i, group) in v.chunks_exact_mut(2 * half).enumerate() {
            let (factor, ratio) = (t.factor[groups + i], t.ratio[groups + i]);
            let (upper, lower) = group.split_at_mut(half);
            for (a, b) in upper.iter_mut().zip(lower) {
                m.inverse(a, b, factor, ratio);
            }
        }
        groups /= 2;
    }
    let (factor, ratio) = (scale as f64, scale as f64 / p as f64);
    v.iter_mut().for_each(|a| *a = m.mul(*a, factor, ratio));
    to_integers(x, m);
}

/// The three stages inside a transposed block, narrowest first: (vector of [`Twiddles::block`], rows of the
/// butterfly).
const BLOCK_STAGES: [[(usize, (usize, usize)); 4]; 3] = [
    [(3, (0, 1)), (4, (2, 3)), (5, (4, 5)), (6, (6, 7))],
    [(1, (0, 2)), (1, (1, 3)), (2, (4, 6)), (2, (5, 7))],
    [(0, (0, 4)), (0, (1, 5)), (0, (2, 6)), (0, (3, 7))],
];

#[inline(always)]
fn transpose(block: &mut [f64; 64]) {
    for i in 0..8 {
        for j in 0..i {
            block.swap(8 * i + j, 8 * j + i);
        }
    }
}
