//! Vectors of eight words that hold integers below 2^52, for the AVX-512 IFMA kernels.
//!
//! The multiply-add instructions read only the low 52 bits of their factors, so a value may be
//! "loose" (correct modulo 2^52) while it is multiplied or added. Before a comparison it must be
//! "tight": cut to its 52 bits.

use crate::modulus::{Modulus, Shoup};
use std::arch::x86_64::*;

/// Eight words.
pub(crate) type V = __m512i;

/// Words in a vector.
pub(crate) const LEN: usize = 8;

/// Constants of one modulus in every lane.
#[derive(Clone, Copy)]
pub(crate) struct Modulus52 {
    pub p: V,
    pub two_p: V,
    /// 2^52 - p: multiplying by it subtracts a multiple of p modulo 2^52.
    minus_p: V,
    /// Quotient of the factor 1: `floor(2^52 / p)`.
    one: V,
    low52: V,
    pub zero: V,
}

/// A fixed multiplicand with its quotient (see [`Shoup`]).
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    pub value: V,
    pub quotient: V,
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn splat(w: Shoup) -> Self {
        Self { value: _mm512_set1_epi64(w.value as i64), quotient: _mm512_set1_epi64(w.quotient as i64) }
    }
}

/// # Safety
/// `source` points to 8 readable words.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(crate) unsafe fn load(source: *const u64) -> V {
    // SAFETY: by the caller.
    unsafe { _mm512_loadu_si512(source.cast()) }
}

/// # Safety
/// `target` points to 8 writable words.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(crate) unsafe fn store(target: *mut u64, v: V) {
    // SAFETY: by the caller.
    unsafe { _mm512_storeu_si512(target.cast(), v) }
}

/// `x - bound` if that is not negative, else `x`: from `[0, 2 bound)` to `[0, bound)`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(crate) fn fold(x: V, bound: V) -> V {
    _mm512_min_epu64(x, _mm512_sub_epi64(x, bound))
}

impl Modulus52 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn new(m: &Modulus) -> Self {
        let p = m.value();
        Self {
            p: _mm512_set1_epi64(p as i64),
            two_p: _mm512_set1_epi64(2 * p as i64),
            minus_p: _mm512_set1_epi64(((1 << 52) - p) as i64),
            one: _mm512_set1_epi64(m.shoup(1).quotient as i64),
            low52: _mm512_set1_epi64((1 << 52) - 1),
            zero: _mm512_setzero_si512(),
        }
    }

    /// The low 52 bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn tight(self, x: V) -> V {
        _mm512_and_si512(x, self.low52)
    }

    /// `x w mod p` in `[0, 2p)`, loose, for any loose x: the quotient's estimate is at most one too
    /// small (plus the truncation of the 52-bit quotient).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn mul_loose(self, x: V, w: Factor) -> V {
        let estimate = _mm512_madd52hi_epu64(self.zero, x, w.quotient);
        let low = _mm512_madd52lo_epu64(self.zero, x, w.value);
        _mm512_madd52lo_epu64(low, estimate, self.minus_p)
    }

    /// As [`Self::mul_loose`], tight.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn mul_lazy(self, x: V, w: Factor) -> V {
        self.tight(self.mul_loose(x, w))
    }

    /// `x mod p` in `[0, 2p)`, loose, for any loose x: a product by 1.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn reduce_loose(self, x: V) -> V {
        _mm512_madd52lo_epu64(x, _mm512_madd52hi_epu64(self.zero, x, self.one), self.minus_p)
    }

    /// `x mod p` in `[0, p)` for any loose x.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn reduce(self, x: V) -> V {
        fold(self.tight(self.reduce_loose(x)), self.p)
    }

    /// `low + 2^52 high mod p` in `[0, p)` for any words; `radix` is `2^52 mod p` and its square.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn join(self, low: V, high: V, radix: [Factor; 2]) -> V {
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let top = self.mul_lazy(_mm512_srli_epi64::<52>(high), radix[1]);
        let sum = _mm512_add_epi64(top, self.reduce(self.join_low(low, high, radix[0])));
        fold(fold(sum, self.two_p), self.p)
    }

    /// `low + 2^52 high mod p` in `[0, p)` for any `low`, and a `high` that stays below 2^52 with
    /// the carry of `low`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(crate) fn join_few(self, low: V, high: V, radix: Factor) -> V {
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        self.reduce(self.join_low(low, high, radix))
    }

    /// `low + 2^52 high mod p` in `[0, 4p)`, loose, from the low 52 bits of both.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn join_low(self, low: V, high: V, radix: Factor) -> V {
        let estimate = _mm512_madd52hi_epu64(self.zero, high, radix.quotient);
        let sum = _mm512_madd52lo_epu64(self.reduce_loose(low), high, radix.value);
        _mm512_madd52lo_epu64(sum, estimate, self.minus_p)
    }
}
