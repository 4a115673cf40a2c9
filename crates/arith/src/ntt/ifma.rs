//! AVX-512 IFMA kernels.
//!
//! Stages are walked depth first, two at a time, so that all but the first passes find their words in the
//! first cache; the last six stages of a block of 64 happen in registers. Groups of butterflies are nodes of
//! a tree: node k of a stage has the nodes 2k and 2k + 1 of the next one inside, and factor number k.
//!
//! Bounds. Small moduli (see [`NttTable::is_small`]) are left to grow: a forward stage adds 2p, so that after
//! all of them values are below `(2 log2 N + 1) p < 2^52`; two inverse stages on values below 4p give less
//! than `16 p < 2^52`, and one reduction. Values are loose then (known mod 2^52, see `words52`). Other moduli
//! are folded at each stage: values stay in `[0, 4p)` (forward) or `[0, 2p)` (inverse), tight; `4p < 2^52`.

#[cfg(target_arch = "x86_64")]
use super::{NttTable, Twiddles};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::portable::{forward, inverse, mac, reduce_acc};

#[cfg(target_arch = "x86_64")]
pub(super) fn forward(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    // SAFETY: an `NttTable` with this kernel exists only where AVX-512 F, DQ and IFMA were detected;
    // `NttTable::forward` checked the length.
    unsafe { if ntt.is_small() { x86::forward::<true>(ntt, t, x) } else { x86::forward::<false>(ntt, t, x) } }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn inverse(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    // SAFETY: as in `forward`.
    unsafe { if ntt.is_small() { x86::inverse::<true>(ntt, t, x) } else { x86::inverse::<false>(ntt, t, x) } }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
    // SAFETY: as in `forward`; `NttTable::mac` checked that all buffers have N elements.
    unsafe { x86::mac(low, high, pairs) }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
    // SAFETY: as in `forward`; `NttTable::reduce_acc` checked that both buffers have N elements.
    unsafe { x86::reduce_acc(ntt, low, high) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{NttTable, Twiddles};
    use crate::words52::{Factor, Modulus52, V, fold, load, store};
    use std::arch::x86_64::*;

    /// Coefficients in a block, eight vectors.
    const BLOCK: usize = 64;
    /// Words of the factors of a block: 7 vectors, each followed by its quotients.
    const BLOCK_FACTORS: usize = 112;

    /// One prime's constants and factors.
    #[derive(Clone, Copy)]
    struct Tables<'a> {
        m: Modulus52,
        t: &'a Twiddles,
        four_p: V,
        /// Number of blocks: block b is node `blocks + b`.
        blocks: usize,
    }

    impl<'a> Tables<'a> {
        #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
        fn new(ntt: &NttTable, t: &'a Twiddles) -> Self {
            let m = Modulus52::new(&ntt.modulus);
            Self { m, t, four_p: _mm512_add_epi64(m.two_p, m.two_p), blocks: ntt.degree / BLOCK }
        }

        /// The factor of a node, in every lane.
        ///
        /// # Safety
        /// `node` is below N / 8, the number of factors.
        #[inline]
        #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
        unsafe fn factor(self, node: usize) -> Factor {
            // SAFETY: both tables have N / 8 entries.
            unsafe {
                Factor {
                    value: _mm512_set1_epi64(*self.t.value.get_unchecked(node) as i64),
                    quotient: _mm512_set1_epi64(*self.t.quotient.get_unchecked(node) as i64),
                }
            }
        }

        /// The seven factors of three stages from node k on: its own, its two children's, their four.
        ///
        /// # Safety
        /// `4 k + 3` is below N / 8.
        #[inline]
        #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
        unsafe fn three_stages(self, k: usize) -> [Factor; 7] {
            // SAFETY: by the caller.
            unsafe {
                [
                    self.factor(k),
                    self.factor(2 * k),
                    self.factor(2 * k + 1),
                    self.factor(4 * k),
                    self.factor(4 * k + 1),
                    self.factor(4 * k + 2),
                    self.factor(4 * k + 3),
                ]
            }
        }

        /// The seven vectors of factors of the last three stages in the block of `node`.
        ///
        /// # Safety
        /// `node` is that of a block.
        #[inline]
        #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
        unsafe fn last_stages(self, node: usize) -> [Factor; 7] {
            // SAFETY: the table has `BLOCK_FACTORS` words for each block.
            unsafe {
                let at = self.t.block.as_ptr().add(BLOCK_FACTORS * (node - self.blocks));
                let mut all = [Factor { value: self.m.zero, quotient: self.m.zero }; 7];
                for (i, w) in all.iter_mut().enumerate() {
                    *w = Factor { value: load(at.add(16 * i)), quotient: load(at.add(16 * i + 8)) };
                }
                all
            }
        }
    }

    /// `(a, b) -> (a + w b, a - w b)`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn split<const SMALL: bool>(a: &mut V, b: &mut V, w: Factor, m: Modulus52) {
        let (s, t) = if SMALL { (*a, m.mul_loose(*b, w)) } else { (fold(*a, m.two_p), m.mul_lazy(*b, w)) };
        *a = _mm512_add_epi64(s, t);
        *b = _mm512_sub_epi64(_mm512_add_epi64(s, m.two_p), t);
    }

    /// Two stages.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn split_four<const SMALL: bool>([a, b, d, e]: [&mut V; 4], [wide, left, right]: [Factor; 3], m: Modulus52) {
        split::<SMALL>(a, d, wide, m);
        split::<SMALL>(b, e, wide, m);
        split::<SMALL>(a, b, left, m);
        split::<SMALL>(d, e, right, m);
    }

    /// Three stages on eight vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn split_eight<const SMALL: bool>(r: &mut [V; 8], w: [Factor; 7], m: Modulus52) {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
        let top = [w[0], w[1], w[2]];
        split_four::<SMALL>([r0, r2, r4, r6], top, m);
        split_four::<SMALL>([r1, r3, r5, r7], top, m);
        split::<SMALL>(r0, r1, w[3], m);
        split::<SMALL>(r2, r3, w[4], m);
        split::<SMALL>(r4, r5, w[5], m);
        split::<SMALL>(r6, r7, w[6], m);
    }

    /// `(a, b) -> (a + b, w (a - b))` for a and b below 4p (small) or 2p; the sum is not reduced if small.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn merge<const SMALL: bool>(a: &mut V, b: &mut V, w: Factor, bound: V, m: Modulus52) {
        let (sum, difference) = (_mm512_add_epi64(*a, *b), _mm512_sub_epi64(_mm512_add_epi64(*a, bound), *b));
        (*a, *b) =
            if SMALL { (sum, m.mul_loose(difference, w)) } else { (fold(sum, m.two_p), m.mul_lazy(difference, w)) };
    }

    /// Two stages. If small, the first result is below 16p, the second below 4p.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn merge_four<const SMALL: bool>([a, b, d, e]: [&mut V; 4], w: [Factor; 3], tables: Tables<'_>) {
        let (m, [wide, left, right]) = (tables.m, w);
        let (first, second) =
            if SMALL { (tables.four_p, _mm512_add_epi64(tables.four_p, tables.four_p)) } else { (m.two_p, m.two_p) };
        merge::<SMALL>(a, b, left, first, m);
        merge::<SMALL>(d, e, right, first, m);
        merge::<SMALL>(a, d, wide, second, m);
        merge::<SMALL>(b, e, wide, m.two_p, m);
    }

    /// Three stages on eight vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn merge_eight<const SMALL: bool>(r: &mut [V; 8], w: [Factor; 7], tables: Tables<'_>) {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
        let first = if SMALL { tables.four_p } else { tables.m.two_p };
        for (a, b, w) in [
            (&mut *r0, &mut *r1, w[3]),
            (&mut *r2, &mut *r3, w[4]),
            (&mut *r4, &mut *r5, w[5]),
            (&mut *r6, &mut *r7, w[6]),
        ] {
            merge::<SMALL>(a, b, w, first, tables.m);
            if SMALL {
                *a = tables.m.reduce_loose(*a);
            }
        }
        let top = [w[0], w[1], w[2]];
        merge_four::<SMALL>([r0, r2, r4, r6], top, tables);
        merge_four::<SMALL>([r1, r3, r5, r7], top, tables);
        if SMALL {
            *r0 = tables.m.reduce_loose(*r0);
            *r1 = tables.m.reduce_loose(*r1);
        }
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
    /// `x` points to 64 words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn load_block(x: *const u64) -> [V; 8] {
        // SAFETY: by the caller.
        unsafe {
            let mut r = [_mm512_setzero_si512(); 8];
            for (i, v) in r.iter_mut().enumerate() {
                *v = load(x.add(8 * i));
            }
            r
        }
    }

    /// # Safety
    /// `x` points to four times `quarter` words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn load_quarters(x: *const u64, quarter: usize) -> [V; 4] {
        // SAFETY: by the caller.
        unsafe { [load(x), load(x.add(quarter)), load(x.add(2 * quarter)), load(x.add(3 * quarter))] }
    }

    /// # Safety
    /// As [`load_quarters`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn store_quarters(x: *mut u64, quarter: usize, values: [V; 4]) {
        // SAFETY: by the caller.
        unsafe {
            for (j, v) in values.into_iter().enumerate() {
                store(x.add(j * quarter), v);
            }
        }
    }

    /// All stages of the `len` words of `node` at `x`, to `[0, p)`.
    ///
    /// # Safety
    /// `x` points to `len` words, a power of two of at least 64, and `node` is one of that size.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn descend<const SMALL: bool>(x: *mut u64, len: usize, node: usize, tables: Tables<'_>) {
        let m = tables.m;
        // SAFETY: every part is inside the `len` words; a node of `len` words has a factor as long as it has
        // more than four, and children of half its size.
        unsafe {
            if len == BLOCK {
                let mut r = load_block(x);
                split_eight::<SMALL>(&mut r, tables.three_stages(node), m);
                transpose(&mut r);
                split_eight::<SMALL>(&mut r, tables.last_stages(node), m);
                for (i, &v) in r.iter().enumerate() {
                    store(x.add(8 * i), if SMALL { m.reduce(v) } else { fold(fold(v, m.two_p), m.p) });
                }
            } else if len == 2 * BLOCK {
                let w = tables.factor(node);
                for k in (0..BLOCK).step_by(8) {
                    let (mut a, mut b) = (load(x.add(k)), load(x.add(BLOCK + k)));
                    split::<SMALL>(&mut a, &mut b, w, m);
                    store(x.add(k), a);
                    store(x.add(BLOCK + k), b);
                }
                for j in 0..2 {
                    descend::<SMALL>(x.add(j * BLOCK), BLOCK, 2 * node + j, tables);
                }
            } else {
                let quarter = len / 4;
                let w = [tables.factor(node), tables.factor(2 * node), tables.factor(2 * node + 1)];
                for k in (0..quarter).step_by(8) {
                    let [mut a, mut b, mut d, mut e] = load_quarters(x.add(k), quarter);
                    split_four::<SMALL>([&mut a, &mut b, &mut d, &mut e], w, m);
                    store_quarters(x.add(k), quarter, [a, b, d, e]);
                }
                for j in 0..4 {
                    descend::<SMALL>(x.add(j * quarter), quarter, 4 * node + j, tables);
                }
            }
        }
    }

    /// Undoes [`descend`] but for the factor `len`: from below 4p (small) or 2p to that.
    ///
    /// # Safety
    /// As [`descend`].
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn ascend<const SMALL: bool>(x: *mut u64, len: usize, node: usize, tables: Tables<'_>) {
        let m = tables.m;
        // SAFETY: as in `descend`.
        unsafe {
            if len == BLOCK {
                let mut r = load_block(x);
                merge_eight::<SMALL>(&mut r, tables.last_stages(node), tables);
                transpose(&mut r);
                merge_eight::<SMALL>(&mut r, tables.three_stages(node), tables);
                for (i, &v) in r.iter().enumerate() {
                    store(x.add(8 * i), v);
                }
            } else if len == 2 * BLOCK {
                for j in 0..2 {
                    ascend::<SMALL>(x.add(j * BLOCK), BLOCK, 2 * node + j, tables);
                }
                let (w, bound) = (tables.factor(node), if SMALL { tables.four_p } else { m.two_p });
                for k in (0..BLOCK).step_by(8) {
                    let (mut a, mut b) = (load(x.add(k)), load(x.add(BLOCK + k)));
                    merge::<SMALL>(&mut a, &mut b, w, bound, m);
                    store(x.add(k), if SMALL { m.reduce_loose(a) } else { a });
                    store(x.add(BLOCK + k), b);
                }
            } else {
                let quarter = len / 4;
                for j in 0..4 {
                    ascend::<SMALL>(x.add(j * quarter), quarter, 4 * node + j, tables);
                }
                let w = [tables.factor(node), tables.factor(2 * node), tables.factor(2 * node + 1)];
                for k in (0..quarter).step_by(8) {
                    let [mut a, mut b, mut d, mut e] = load_quarters(x.add(k), quarter);
                    merge_four::<SMALL>([&mut a, &mut b, &mut d, &mut e], w, tables);
                    let a = if SMALL { m.reduce_loose(a) } else { a };
                    store_quarters(x.add(k), quarter, [a, b, d, e]);
                }
            }
        }
    }

    /// # Safety
    /// AVX-512F, DQ and IFMA present; `x` has N elements.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn forward<const SMALL: bool>(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
        // SAFETY: the root is the node of all N words.
        unsafe { descend::<SMALL>(x.as_mut_ptr(), x.len(), 1, Tables::new(ntt, t)) }
    }

    /// # Safety
    /// As [`forward`].
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn inverse<const SMALL: bool>(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
        let (n, data, tables) = (x.len(), x.as_mut_ptr(), Tables::new(ntt, t));
        let (m, scale) = (tables.m, Factor::splat(ntt.degree_inverse));
        let finish = |v: V| fold(m.mul_lazy(v, scale), m.p);
        // SAFETY: as in `forward`; all parts are inside the N words.
        unsafe {
            if n < 4 * BLOCK {
                ascend::<SMALL>(data, n, 1, tables);
                for k in (0..n).step_by(8) {
                    store(data.add(k), finish(load(data.add(k))));
                }
                return;
            }
            // The last two stages, with the division by N: in the factors where there are some.
            let quarter = n / 4;
            for j in 0..4 {
                ascend::<SMALL>(data.add(j * quarter), quarter, 4 + j, tables);
            }
            let w = [Factor::splat(t.last), tables.factor(2), tables.factor(3)];
            for k in (0..quarter).step_by(8) {
                let [mut a, mut b, mut d, mut e] = load_quarters(data.add(k), quarter);
                merge_four::<SMALL>([&mut a, &mut b, &mut d, &mut e], w, tables);
                let tight = |v: V| fold(if SMALL { m.tight(v) } else { v }, m.p);
                store_quarters(data.add(k), quarter, [finish(a), finish(b), tight(d), tight(e)]);
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

    /// # Safety
    /// AVX-512F, DQ and IFMA present; both buffers have the same length, a multiple of 8.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
        let m = Modulus52::new(&ntt.modulus);
        let [radix, square] = ntt.pointwise.radix52();
        let radix = [Factor::splat(radix), Factor::splat(square)];
        for k in (0..low.len()).step_by(8) {
            // SAFETY: `k + 7` is below the common length.
            unsafe {
                let (l, h) = (load(low.as_ptr().add(k)), load(high.as_ptr().add(k)));
                store(low.as_mut_ptr().add(k), m.join(l, h, radix));
                store(high.as_mut_ptr().add(k), m.zero);
            }
        }
    }
}
