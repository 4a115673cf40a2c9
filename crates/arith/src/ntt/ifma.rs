//! AVX-512 IFMA kernels. Values stay in `[0, 4p)` (forward) or `[0, 2p)` (inverse) between stages;
//! `4p < 2^52`. Bounds: a Shoup product of `x < 2^52` is in `[0, 2p)` because the quotient estimate is at
//! most one too small (plus the truncation of the 52-bit quotient); a butterfly of `s < 2p` and `t < 2p` is
//! below `4p`.

#[cfg(target_arch = "x86_64")]
use super::{NttTable, Twiddles};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::portable::{forward, inverse, mac, reduce_acc};

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn mul_assign(ntt: &super::NttTable, x: &mut [u64], y: &[u64]) {
    ntt.pointwise.mul(x, y);
}

#[cfg(target_arch = "x86_64")]
pub(super) fn forward(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    // SAFETY: an `NttTable` with this kernel exists only where AVX-512 F, DQ and IFMA were detected;
    // `NttTable::forward` checked the length.
    unsafe { x86::forward(ntt, t, x) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn inverse(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    // SAFETY: as in `forward`.
    unsafe { x86::inverse(ntt, t, x) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
    // SAFETY: as in `forward`; `NttTable::mac` checked that all buffers have N elements.
    unsafe { x86::mac(low, high, pairs) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn mul_assign(ntt: &NttTable, x: &mut [u64], y: &[u64]) {
    // SAFETY: as in `forward`; `NttTable::mul_assign` checked that both buffers have N elements.
    unsafe { x86::mul_assign(ntt, x, y) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
    // SAFETY: as in `mul_assign`.
    unsafe { x86::reduce_acc(ntt, low, high) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{NttTable, Twiddles};
    use crate::modulus::Shoup;
    use std::arch::x86_64::*;

    type V = __m512i;

    /// Constants of one modulus in every lane.
    #[derive(Clone, Copy)]
    struct Lanes {
        p: V,
        two_p: V,
        /// 2^52 - p: multiplying by it subtracts a multiple of p modulo 2^52.
        minus_p: V,
        low52: V,
        zero: V,
    }

    #[derive(Clone, Copy)]
    struct W {
        value: V,
        quotient: V,
    }

    /// # Safety
    /// AVX-512F must be present (as for every function here).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn lanes(p: u64) -> Lanes {
        Lanes {
            p: _mm512_set1_epi64(p as i64),
            two_p: _mm512_set1_epi64(2 * p as i64),
            minus_p: _mm512_set1_epi64(((1 << 52) - p) as i64),
            low52: _mm512_set1_epi64((1 << 52) - 1),
            zero: _mm512_setzero_si512(),
        }
    }

    /// # Safety
    /// `i < value.len()`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn broadcast(t: &Twiddles, i: usize) -> W {
        // SAFETY: both tables have the same length, and the caller keeps `i` inside it.
        unsafe {
            W {
                value: _mm512_set1_epi64(*t.value.get_unchecked(i) as i64),
                quotient: _mm512_set1_epi64(*t.quotient.get_unchecked(i) as i64),
            }
        }
    }

    /// # Safety
    /// `at` points to 8 readable words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn load(at: *const u64) -> V {
        // SAFETY: by the caller.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    /// # Safety
    /// `at` points to 8 writable words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn store(at: *mut u64, v: V) {
        // SAFETY: by the caller.
        unsafe { _mm512_storeu_si512(at.cast(), v) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn fold(x: V, bound: V) -> V {
        _mm512_min_epu64(x, _mm512_sub_epi64(x, bound))
    }

    /// `x * w mod p` in `[0, 2p)`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn mul_lazy(x: V, w: W, c: Lanes) -> V {
        let estimate = _mm512_madd52hi_epu64(c.zero, x, w.quotient);
        let low = _mm512_madd52lo_epu64(c.zero, x, w.value);
        _mm512_and_si512(_mm512_madd52lo_epu64(low, estimate, c.minus_p), c.low52)
    }

    /// `(a, b) -> (a + w b, a - w b)`, `[0, 4p)` to `[0, 4p)`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn forward_butterfly(a: &mut V, b: &mut V, w: W, c: Lanes) {
        let s = fold(*a, c.two_p);
        let t = mul_lazy(*b, w, c);
        *a = _mm512_add_epi64(s, t);
        *b = _mm512_sub_epi64(_mm512_add_epi64(s, c.two_p), t);
    }

    /// `(a, b) -> (a + b, w (a - b))`, `[0, 2p)` to `[0, 2p)`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn inverse_butterfly(a: &mut V, b: &mut V, w: W, c: Lanes) {
        let (s, t) = (*a, *b);
        *a = fold(_mm512_add_epi64(s, t), c.two_p);
        *b = mul_lazy(_mm512_sub_epi64(_mm512_add_epi64(s, c.two_p), t), w, c);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn transpose(r: &mut [V; 8]) {
        let low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
        let high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
        let mut t = *r;
        for i in 0..4 {
            t[2 * i] = _mm512_unpacklo_epi64(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi64(r[2 * i], r[2 * i + 1]);
        }
        let mut q = t;
        for h in 0..2 {
            for odd in 0..2 {
                q[4 * h + odd] = _mm512_permutex2var_epi64(t[4 * h + odd], low, t[4 * h + 2 + odd]);
                q[4 * h + 2 + odd] = _mm512_permutex2var_epi64(t[4 * h + odd], high, t[4 * h + 2 + odd]);
            }
        }
        for i in 0..4 {
            r[i] = _mm512_shuffle_i64x2::<0x44>(q[i], q[i + 4]);
            r[i + 4] = _mm512_shuffle_i64x2::<0xEE>(q[i], q[i + 4]);
        }
    }

    /// # Safety
    /// `x` points to N words, `groups * 2 * half == N`, `half` a multiple of 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn radix2(x: *mut u64, t: &Twiddles, groups: usize, half: usize, inverse: bool, c: Lanes) {
        for i in 0..groups {
            // SAFETY: indices stay below `groups * 2 * half`; tables hold N / 8 entries and `groups` is 1.
            unsafe {
                let w = broadcast(t, groups + i);
                let base = x.add(2 * half * i);
                for k in (0..half).step_by(8) {
                    let (mut a, mut b) = (load(base.add(k)), load(base.add(half + k)));
                    if inverse {
                        inverse_butterfly(&mut a, &mut b, w, c)
                    } else {
                        forward_butterfly(&mut a, &mut b, w, c)
                    }
                    store(base.add(k), a);
                    store(base.add(half + k), b);
                }
            }
        }
    }

    /// Two stages at once: groups of `4 * quarter` coefficients, `groups` of them in the wider stage.
    ///
    /// # Safety
    /// `x` points to N words, `groups * 4 * quarter == N`, `quarter` a multiple of 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn radix4(x: *mut u64, t: &Twiddles, groups: usize, quarter: usize, inverse: bool, c: Lanes) {
        for i in 0..groups {
            // SAFETY: indices stay below `groups * 4 * quarter`; the largest table index is
            // `4 * groups - 1 < N / 8`.
            unsafe {
                let wide = broadcast(t, groups + i);
                let left = broadcast(t, 2 * (groups + i));
                let right = broadcast(t, 2 * (groups + i) + 1);
                let base = x.add(4 * quarter * i);
                for k in (0..quarter).step_by(8) {
                    let at = [0, 1, 2, 3].map(|j| base.add(j * quarter + k));
                    let [mut a, mut b, mut d, mut e] = [load(at[0]), load(at[1]), load(at[2]), load(at[3])];
                    if inverse {
                        inverse_butterfly(&mut a, &mut b, left, c);
                        inverse_butterfly(&mut d, &mut e, right, c);
                        inverse_butterfly(&mut a, &mut d, wide, c);
                        inverse_butterfly(&mut b, &mut e, wide, c);
                    } else {
                        forward_butterfly(&mut a, &mut d, wide, c);
                        forward_butterfly(&mut b, &mut e, wide, c);
                        forward_butterfly(&mut a, &mut b, left, c);
                        forward_butterfly(&mut d, &mut e, right, c);
                    }
                    store(at[0], a);
                    store(at[1], b);
                    store(at[2], d);
                    store(at[3], e);
                }
            }
        }
    }

    /// # Safety
    /// `at` points to 112 readable words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn block_twiddle(at: *const u64, i: usize) -> W {
        // SAFETY: `i < 7`, by the callers below.
        unsafe { W { value: load(at.add(16 * i)), quotient: load(at.add(16 * i + 8)) } }
    }

    /// # Safety
    /// AVX-512F, DQ and IFMA present; `x` has N elements.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn forward(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
        let n = x.len();
        let data = x.as_mut_ptr();
        // SAFETY: all passes keep to the N words of `x` and the tables, as stated at each function.
        unsafe {
            let c = lanes(ntt.modulus.value());
            let mut groups = 1;
            if n.trailing_zeros().is_multiple_of(2) {
                radix2(data, t, 1, n / 2, false, c);
                groups = 2;
            }
            while groups < n / 8 {
                radix4(data, t, groups, n / (4 * groups), false, c);
                groups *= 4;
            }
            for b in 0..n / 64 {
                let (base, w) = (data.add(64 * b), t.block.as_ptr().add(112 * b));
                let mut r = [c.zero; 8];
                for (i, v) in r.iter_mut().enumerate() {
                    *v = load(base.add(8 * i));
                }
                transpose(&mut r);
                let [r0, r1, r2, r3, r4, r5, r6, r7] = &mut r;
                let wide = block_twiddle(w, 0);
                forward_butterfly(r0, r4, wide, c);
                forward_butterfly(r1, r5, wide, c);
                forward_butterfly(r2, r6, wide, c);
                forward_butterfly(r3, r7, wide, c);
                let (w0, w1) = (block_twiddle(w, 1), block_twiddle(w, 2));
                forward_butterfly(r0, r2, w0, c);
                forward_butterfly(r1, r3, w0, c);
                forward_butterfly(r4, r6, w1, c);
                forward_butterfly(r5, r7, w1, c);
                forward_butterfly(r0, r1, block_twiddle(w, 3), c);
                forward_butterfly(r2, r3, block_twiddle(w, 4), c);
                forward_butterfly(r4, r5, block_twiddle(w, 5), c);
                forward_butterfly(r6, r7, block_twiddle(w, 6), c);
                for (i, &v) in r.iter().enumerate() {
                    store(base.add(8 * i), fold(fold(v, c.two_p), c.p));
                }
            }
        }
    }

    /// # Safety
    /// As [`forward`].
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn inverse(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
        let n = x.len();
        let data = x.as_mut_ptr();
        // SAFETY: as in `forward`.
        unsafe {
            let c = lanes(ntt.modulus.value());
            for b in 0..n / 64 {
                inverse_block(data.add(64 * b), t.block.as_ptr().add(112 * b), c);
            }
            let mut groups = n / 8;
            while groups >= 4 {
                groups /= 4;
                radix4(data, t, groups, n / (4 * groups), true, c);
            }
            if groups == 2 {
                radix2(data, t, 1, n / 2, true, c);
            }
            let scale = splat(ntt.degree_inverse);
            for k in (0..n).step_by(8) {
                store(data.add(k), fold(mul_lazy(load(data.add(k)), scale, c), c.p));
            }
        }
    }

    /// # Safety
    /// `base` points to 64 words, `w` to 112.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn inverse_block(base: *mut u64, w: *const u64, c: Lanes) {
        // SAFETY: by the caller.
        unsafe {
            let mut r = [c.zero; 8];
            for (i, v) in r.iter_mut().enumerate() {
                *v = load(base.add(8 * i));
            }
            let [r0, r1, r2, r3, r4, r5, r6, r7] = &mut r;
            inverse_butterfly(r0, r1, block_twiddle(w, 3), c);
            inverse_butterfly(r2, r3, block_twiddle(w, 4), c);
            inverse_butterfly(r4, r5, block_twiddle(w, 5), c);
            inverse_butterfly(r6, r7, block_twiddle(w, 6), c);
            let (w0, w1) = (block_twiddle(w, 1), block_twiddle(w, 2));
            inverse_butterfly(r0, r2, w0, c);
            inverse_butterfly(r1, r3, w0, c);
            inverse_butterfly(r4, r6, w1, c);
            inverse_butterfly(r5, r7, w1, c);
            let wide = block_twiddle(w, 0);
            inverse_butterfly(r0, r4, wide, c);
            inverse_butterfly(r1, r5, wide, c);
            inverse_butterfly(r2, r6, wide, c);
            inverse_butterfly(r3, r7, wide, c);
            transpose(&mut r);
            for (i, &v) in r.iter().enumerate() {
                store(base.add(8 * i), v);
            }
        }
    }

    /// # Safety
    /// AVX-512F and IFMA present; every buffer has the same length, a multiple of 64.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        // SAFETY: `k + 31` is below the common length.
        unsafe {
            for k in (0..low.len()).step_by(32) {
                let mut l = [_mm512_setzero_si512(); 4];
                let mut h = l;
                for j in 0..4 {
                    l[j] = load(low.as_ptr().add(k + 8 * j));
                    h[j] = load(high.as_ptr().add(k + 8 * j));
                }
                for (a, b) in pairs {
                    for j in 0..4 {
                        let (x, y) = (load(a.as_ptr().add(k + 8 * j)), load(b.as_ptr().add(k + 8 * j)));
                        l[j] = _mm512_madd52lo_epu64(l[j], x, y);
                        h[j] = _mm512_madd52hi_epu64(h[j], x, y);
                    }
                }
                for j in 0..4 {
                    store(low.as_mut_ptr().add(k + 8 * j), l[j]);
                    store(high.as_mut_ptr().add(k + 8 * j), h[j]);
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn splat(w: Shoup) -> W {
        W { value: _mm512_set1_epi64(w.value as i64), quotient: _mm512_set1_epi64(w.quotient as i64) }
    }

    /// # Safety
    /// AVX-512F, DQ and IFMA present; both buffers have the same length, a multiple of 8.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn mul_assign(ntt: &NttTable, x: &mut [u64], y: &[u64]) {
        // SAFETY: `k + 7` is below the common length.
        unsafe {
            let c = lanes(ntt.modulus.value());
            let (one, radix) = (splat(ntt.modulus.shoup(1)), splat(ntt.radix));
            for k in (0..x.len()).step_by(8) {
                let (a, b) = (load(x.as_ptr().add(k)), load(y.as_ptr().add(k)));
                let low = mul_lazy(_mm512_madd52lo_epu64(c.zero, a, b), one, c);
                let high = mul_lazy(_mm512_madd52hi_epu64(c.zero, a, b), radix, c);
                let sum = fold(_mm512_add_epi64(low, high), c.two_p);
                store(x.as_mut_ptr().add(k), fold(sum, c.p));
            }
        }
    }

    /// # Safety
    /// As [`mul_assign`].
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
        // SAFETY: `k + 7` is below the common length.
        unsafe {
            let c = lanes(ntt.modulus.value());
            let m = &ntt.modulus;
            let (one, radix) = (splat(m.shoup(1)), splat(ntt.radix));
            let square = splat(m.shoup(m.mul(ntt.radix.value, ntt.radix.value)));
            let four_p = _mm512_add_epi64(c.two_p, c.two_p);
            for k in (0..low.len()).step_by(8) {
                let (l, h) = (load(low.as_ptr().add(k)), load(high.as_ptr().add(k)));
                let terms = [
                    mul_lazy(_mm512_and_si512(l, c.low52), one, c),
                    mul_lazy(_mm512_srli_epi64::<52>(l), radix, c),
                    mul_lazy(_mm512_and_si512(h, c.low52), radix, c),
                    mul_lazy(_mm512_srli_epi64::<52>(h), square, c),
                ];
                let left = _mm512_add_epi64(terms[0], terms[1]);
                let sum = _mm512_add_epi64(left, _mm512_add_epi64(terms[2], terms[3]));
                store(low.as_mut_ptr().add(k), fold(fold(fold(sum, four_p), c.two_p), c.p));
                store(high.as_mut_ptr().add(k), c.zero);
            }
        }
    }
}
