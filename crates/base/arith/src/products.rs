//! Sums of products of integers in doubles, with few reductions.
//!
//! A rounding cuts a product `x y < 2^100` in two. The lowest bit of the double `x y + 2^102` counts
//! 2^50, so subtracting 2^102 again leaves `k = 2^50 round(x y / 2^50)`. The rest `x y - k` is between
//! -2^49 and 2^49. Both parts are exact, and so are sums of few: the first parts of [`TERMS`] products
//! add up to a multiple of 2^50 below 2^103.

use crate::lanes::{Lanes, RealModulus, to_real, to_words};
use crate::modulus::Modulus;

/// Most products between two calls of [`Reduction::fold`], or before [`Reduction::finish`].
pub(crate) const TERMS: usize = 7;

/// 2^102: its lowest bit counts 2^50.
const HIGH: f64 = (1u128 << 102) as f64;

/// `low + high` in each lane.
#[derive(Clone, Copy)]
pub(crate) struct Sum<V> {
    low: V,
    high: V,
}

impl<V: Lanes> Sum<V> {
    /// A sum with the first term `first`, an integer in `[0, 2^50)`.
    ///
    /// # Safety
    /// As [`Lanes`], as for all functions here.
    #[inline(always)]
    pub(crate) unsafe fn new(first: V) -> Self {
        // SAFETY: by the caller.
        unsafe { Self { low: first, high: V::splat(0.0) } }
    }

    /// Adds `x * y`, integers in `[0, 2^50)`.
    #[inline(always)]
    pub(crate) unsafe fn add(&mut self, x: V, y: V) {
        // SAFETY: by the caller.
        unsafe {
            let high = x.mul_add(y, V::splat(HIGH)).sub(V::splat(HIGH));
            self.low = self.low.add(x.mul_sub(y, high));
            self.high = self.high.add(high);
        }
    }
}

/// Constants that reduce sums modulo p.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    p: f64,
    inverse: f64,
    /// `2^50 mod p`, divided by 2^50: the factor of the high part.
    high: f64,
    /// `2^32 mod p`
    word: f64,
}

impl Reduction {
    pub(crate) fn new(modulus: &Modulus) -> Self {
        let p = modulus.value() as f64;
        let [high, word] = [50, 32].map(|exponent| modulus.pow_vartime(2, exponent) as f64);
        Self { p, inverse: 1.0 / p, high: high / (1u64 << 50) as f64, word }
    }

    /// The modulus in every lane.
    ///
    /// # Safety
    /// As [`Lanes`], as for all functions here.
    #[inline(always)]
    pub(crate) unsafe fn modulus<V: Lanes>(&self) -> RealModulus<V> {
        // SAFETY: by the caller.
        unsafe { RealModulus { p: V::splat(self.p), inverse: V::splat(self.inverse) } }
    }

    /// The sum as one integer, at most `2^52.2 + 3.2p` and so below 2^53. With [`TERMS`] products
    /// and a start below 2^50, the low part is at most `4.5 * 2^50`. The high part is at most 2^50
    /// times `7 * 2^50`, so its product is at most `(0.5 + 0.375 * 7) p < 3.2p` (see
    /// [`RealModulus::mul`]).
    #[inline(always)]
    unsafe fn join<V: Lanes>(&self, sum: Sum<V>, m: RealModulus<V>) -> V {
        // SAFETY: by the caller.
        unsafe { sum.low.add(m.mul(sum.high, V::splat(self.high))) }
    }

    /// Makes room for [`TERMS`] more products.
    #[inline(always)]
    pub(crate) unsafe fn fold<V: Lanes>(&self, sum: &mut Sum<V>) {
        // SAFETY: by the caller.
        unsafe {
            let m = self.modulus();
            *sum = Sum::new(m.reduce(self.join(*sum, m)));
        }
    }

    /// The sum in `[0, p)`.
    #[inline(always)]
    pub(crate) unsafe fn finish<V: Lanes>(&self, sum: Sum<V>) -> V::Words {
        // SAFETY: by the caller.
        unsafe {
            let m = self.modulus();
            to_words(m.canonical(self.join(sum, m)))
        }
    }

    /// Reduces any words to `[0, p)`.
    #[inline(always)]
    pub(crate) unsafe fn reduce_words<V: Lanes>(&self, x: V::Words) -> V::Words {
        // SAFETY: by the caller.
        unsafe {
            let m = self.modulus::<V>();
            to_words(m.canonical(self.halves(x, m)))
        }
    }

    /// `low + 2^52 high mod p` in `[0, p)` for any words, where `radix` is `2^52 mod p`.
    #[inline(always)]
    pub(crate) unsafe fn join_words<V: Lanes>(&self, low: V::Words, high: V::Words, radix: f64) -> V::Words {
        // SAFETY: by the caller. The reduced high word times the radix is at most 0.7 p.
        unsafe {
            let m = self.modulus::<V>();
            let high = m.mul(m.reduce(self.halves(high, m)), V::splat(radix));
            to_words(m.canonical(self.halves(low, m).add(high)))
        }
    }

    /// Any words modulo p, partly reduced. The low half, below 2^32, does not change. The high half
    /// becomes at most `0.5 p + 0.375 * 2^32`.
    #[inline(always)]
    unsafe fn halves<V: Lanes>(&self, x: V::Words, m: RealModulus<V>) -> V {
        // SAFETY: by the caller.
        unsafe {
            let low: V = to_real(V::and_words(x, V::splat_words(u64::from(u32::MAX))));
            low.add(m.mul(to_real(V::shift_right::<32>(x)), V::splat(self.word)))
        }
    }
}
