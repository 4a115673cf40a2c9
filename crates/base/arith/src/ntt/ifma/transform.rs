//! The IFMA transforms.
//!
//! The transforms walk the stages depth first, two or three at a time, so that all but the first
//! passes find their words in the first-level cache. The last six stages of a block stay in registers.
//! Groups of butterflies are nodes of a tree: node k of a stage uses factor k, and contains the nodes
//! 2k and 2k + 1 of the next stage.
//!
//! Bounds. Values are loose everywhere (known mod 2^52, see `words52`) and must stay below 2^52. A
//! product by a factor is below 2p, and so is a reduced value. A forward butterfly adds 2p to its
//! first input; an inverse one adds both inputs. There are three kinds of moduli:
//! - `SMALL`: values grow through a forward transform, to at most `(2 log2 N + 1) p`, and through
//!   three stages of an inverse one, to at most 16p.
//! - `PAIRS`: values are reduced at every other stage: at most 6p forward, 8p inverse.
//! - `EACH`: values are reduced at every stage: at most 4p.

use super::super::NttTable;
use super::factors::{BLOCK_FACTORS, Factors};
use super::vectors::{load_all, store_all, transpose};
use crate::words52::{Factor, Modulus52, V, fold, load, store};
use std::arch::x86_64::*;

pub(super) const EACH: u8 = 0;
pub(super) const PAIRS: u8 = 1;
pub(super) const SMALL: u8 = 2;

/// Coefficients in a block, eight vectors.
pub(super) const BLOCK: usize = 64;
/// Words of the longest node that fits the first-level cache.
const CACHED: usize = 4096;

#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) m: Modulus52,
    pub(super) t: &'a Factors,
    four_p: V,
    eight_p: V,
    corners: [Factor; 3],
    /// Number of blocks; block b is node `blocks + b`.
    pub(super) blocks: usize,
}

impl<'a> Tables<'a> {
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) fn new(ntt: &NttTable, t: &'a Factors) -> Self {
        let m = Modulus52::new(&ntt.modulus);
        let four_p = _mm512_add_epi64(m.two_p, m.two_p);
        let [a, b, c] = t.corners;
        let corners = [Factor::splat(a), Factor::splat(b), Factor::splat(c)];
        Self { m, t, four_p, eight_p: _mm512_add_epi64(four_p, four_p), corners, blocks: ntt.degree / BLOCK }
    }

    /// The factor of a node, in every lane.
    ///
    /// # Safety
    /// `node` is below N / 8, the number of factors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn factor(self, node: usize) -> Factor {
        // SAFETY: both tables have N / 8 entries.
        unsafe {
            Factor {
                value: _mm512_set1_epi64(*self.t.value.get_unchecked(node) as i64),
                quotient: _mm512_set1_epi64(*self.t.quotient.get_unchecked(node) as i64),
            }
        }
    }

    /// The seven factors of three stages from node k on: those of the node, its two children and
    /// their four children.
    ///
    /// # Safety
    /// `4 k + 3` is below N / 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn three_stages(self, k: usize) -> [Factor; 7] {
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

    /// Multiplies vector l by `u^l` in the block of `node`; all results are below 2p.
    ///
    /// # Safety
    /// `node` is the node of a block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn twist(self, r: &mut [V; 8], node: usize) {
        r[0] = self.m.reduce_loose(r[0]);
        // SAFETY: the tables have `BLOCK_FACTORS` words for each block, and 16 for each of seven
        // powers.
        unsafe {
            let of_block = self.t.block.as_ptr().add(BLOCK_FACTORS * (node - self.blocks));
            let of_lane = self.t.lane.as_ptr();
            for (l, v) in r[1..].iter_mut().enumerate() {
                let broadcast = |i| _mm512_set1_epi64(*of_block.add(2 * l + i) as i64);
                let block = Factor { value: broadcast(0), quotient: broadcast(1) };
                let lane = Factor { value: load(of_lane.add(16 * l)), quotient: load(of_lane.add(16 * l + 8)) };
                *v = self.m.mul_loose(self.m.mul_loose(*v, block), lane);
            }
        }
    }
}

/// Computes `(a, b) -> (a + w b, a - w b)`, and reduces a first if `REDUCE`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) fn split<const REDUCE: bool>(a: &mut V, b: &mut V, w: Factor, m: Modulus52) {
    let (s, t) = (if REDUCE { m.reduce_loose(*a) } else { *a }, m.mul_loose(*b, w));
    *a = _mm512_add_epi64(s, t);
    *b = _mm512_sub_epi64(_mm512_add_epi64(s, m.two_p), t);
}

/// Computes `(a, b) -> (a + b, a - b)` for b up to `bound`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn cross(a: &mut V, b: &mut V, bound: V) {
    (*a, *b) = (_mm512_add_epi64(*a, *b), _mm512_sub_epi64(_mm512_add_epi64(*a, bound), *b));
}

/// Computes two stages; `PAIRS` go from 6p to 6p.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) fn split_four<const KIND: u8>([a, b, d, e]: [&mut V; 4], [wide, left, right]: [Factor; 3], m: Modulus52) {
    if KIND == SMALL {
        split::<false>(a, d, wide, m);
        split::<false>(b, e, wide, m);
    } else {
        split::<true>(a, d, wide, m);
        split::<true>(b, e, wide, m);
    }
    if KIND == EACH {
        split::<true>(a, b, left, m);
        split::<true>(d, e, right, m);
    } else {
        split::<false>(a, b, left, m);
        split::<false>(d, e, right, m);
    }
}

/// Computes three stages on eight vectors; `PAIRS` go from 6p to 4p. Each call site has a `PLACE` of
/// its own: the compiler inlines a function with one call site, with its vectors in registers.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn split_eight<const KIND: u8, const PLACE: u8>(r: &mut [V; 8], w: [Factor; 7], m: Modulus52) {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
    let top = [w[0], w[1], w[2]];
    split_four::<KIND>([r0, r2, r4, r6], top, m);
    split_four::<KIND>([r1, r3, r5, r7], top, m);
    for (a, b, w) in [(r0, r1, w[3]), (r2, r3, w[4]), (r4, r5, w[5]), (r6, r7, w[6])] {
        if KIND == SMALL {
            split::<false>(a, b, w, m);
        } else {
            split::<true>(a, b, w, m);
        }
    }
}

/// Computes three stages with 8th roots of 1 as factors, from 2p; `PLACE` as in [`split_eight`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) fn split_corners<const KIND: u8, const PLACE: u8>(r: &mut [V; 8], tables: Tables<'_>) {
    let (m, [i, j, ij]) = (tables.m, tables.corners);
    let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
    for (a, b) in [(&mut *r0, &mut *r4), (&mut *r1, &mut *r5), (&mut *r2, &mut *r6), (&mut *r3, &mut *r7)] {
        cross(a, b, m.two_p);
    }
    // All words are now below 4p.
    for (a, b) in [(&mut *r0, &mut *r2), (&mut *r1, &mut *r3)] {
        match KIND {
            SMALL => cross(a, b, tables.four_p),
            _ => {
                (*a, *b) = (if KIND == EACH { m.reduce_loose(*a) } else { *a }, m.reduce_loose(*b));
                cross(a, b, m.two_p);
            }
        }
    }
    if KIND == EACH {
        split::<true>(r4, r6, i, m);
        split::<true>(r5, r7, i, m);
    } else {
        split::<false>(r4, r6, i, m);
        split::<false>(r5, r7, i, m);
    }
    if KIND == SMALL {
        cross(r0, r1, tables.eight_p);
        split::<false>(r2, r3, i, m);
        split::<false>(r4, r5, j, m);
        split::<false>(r6, r7, ij, m);
    } else {
        (*r0, *r1) = (m.reduce_loose(*r0), m.reduce_loose(*r1));
        cross(r0, r1, m.two_p);
        split::<true>(r2, r3, i, m);
        split::<true>(r4, r5, j, m);
        split::<true>(r6, r7, ij, m);
    }
}

/// Computes `(a, b) -> (a + b, w (a - b))` for b up to `bound`, and reduces the sum if `REDUCE`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn merge<const REDUCE: bool>(a: &mut V, b: &mut V, w: Factor, bound: V, m: Modulus52) {
    cross(a, b, bound);
    (*a, *b) = (if REDUCE { m.reduce_loose(*a) } else { *a }, m.mul_loose(*b, w));
}

/// Undoes two stages, from 4p to 4p, or from 2p to 2p for `EACH`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn merge_four<const KIND: u8>([a, b, d, e]: [&mut V; 4], [wide, left, right]: [Factor; 3], tables: Tables<'_>) {
    let (m, four_p) = (tables.m, tables.four_p);
    if KIND == SMALL {
        merge::<false>(a, b, left, four_p, m);
        merge::<false>(d, e, right, four_p, m);
        merge::<true>(a, d, wide, tables.eight_p, m);
        merge::<false>(b, e, wide, m.two_p, m);
        return;
    }
    let bound = if KIND == EACH { m.two_p } else { four_p };
    merge::<true>(a, b, left, bound, m);
    merge::<true>(d, e, right, bound, m);
    if KIND == EACH {
        merge::<true>(a, d, wide, m.two_p, m);
        merge::<true>(b, e, wide, m.two_p, m);
    } else {
        merge::<false>(a, d, wide, m.two_p, m);
        merge::<false>(b, e, wide, m.two_p, m);
    }
}

/// Undoes three stages on eight vectors, from 4p to 4p, or from 2p to 2p for `EACH`; `PLACE` as in
/// [`split_eight`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn merge_eight<const KIND: u8, const PLACE: u8>(r: &mut [V; 8], w: [Factor; 7], tables: Tables<'_>) {
    let m = tables.m;
    let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
    let bound = if KIND == EACH { m.two_p } else { tables.four_p };
    for (a, b, w) in
        [(&mut *r0, &mut *r1, w[3]), (&mut *r2, &mut *r3, w[4]), (&mut *r4, &mut *r5, w[5]), (&mut *r6, &mut *r7, w[6])]
    {
        merge::<true>(a, b, w, bound, m);
    }
    // All words are now below 2p; after the next stage below 4p, or 2p for `EACH`.
    for (a, b, w) in
        [(&mut *r0, &mut *r2, w[1]), (&mut *r1, &mut *r3, w[1]), (&mut *r4, &mut *r6, w[2]), (&mut *r5, &mut *r7, w[2])]
    {
        if KIND == EACH {
            merge::<true>(a, b, w, m.two_p, m);
        } else {
            merge::<false>(a, b, w, m.two_p, m);
        }
    }
    for (a, b) in [(r0, r4), (r1, r5), (r2, r6), (r3, r7)] {
        merge::<true>(a, b, w[0], bound, m);
    }
}

/// Undoes [`split_corners`], from words below p to any size that may be multiplied.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn merge_corners<const KIND: u8>(r: &mut [V; 8], tables: Tables<'_>) {
    let (m, [i, j, ij]) = (tables.m, tables.corners);
    let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
    // From words below p: sums below 2p.
    cross(r0, r1, m.p);
    for (a, b, w) in [(&mut *r2, &mut *r3, i), (&mut *r4, &mut *r5, j), (&mut *r6, &mut *r7, ij)] {
        merge::<false>(a, b, w, m.p, m);
    }
    // Sums below 4p.
    cross(r0, r2, m.two_p);
    cross(r1, r3, m.two_p);
    merge::<false>(r4, r6, i, m.two_p, m);
    merge::<false>(r5, r7, i, m.two_p, m);
    // Sums below 8p, or 4p for `EACH`.
    for (a, b) in [(r0, r4), (r1, r5), (r2, r6), (r3, r7)] {
        if KIND == EACH {
            (*a, *b) = (m.reduce_loose(*a), m.reduce_loose(*b));
            cross(a, b, m.two_p);
        } else {
            cross(a, b, tables.four_p);
        }
    }
}

/// Whether a node of `len` words, more than two blocks, takes three stages at a time: if it does not
/// fit the cache, or has an odd number of stages left.
fn three_at_once(len: usize) -> bool {
    len >= 8 * BLOCK && (len > CACHED || !(len / BLOCK).trailing_zeros().is_multiple_of(2))
}

/// Computes the last three stages of a block, to `[0, p)`; `PLACE` as in [`split_eight`].
///
/// # Safety
/// `node` is the node of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) unsafe fn finish_block<const KIND: u8, const PLACE: u8>(r: &mut [V; 8], node: usize, tables: Tables<'_>) {
    transpose(r);
    // SAFETY: by the caller.
    unsafe { tables.twist(r, node) };
    split_corners::<KIND, PLACE>(r, tables);
    r.iter_mut().for_each(|v| *v = tables.m.reduce(*v));
}

/// Computes all stages of the `len` words of `node` at `x`, to `[0, p)`.
///
/// # Safety
/// `x` points to `len` words, a power of two of at least 64, and `node` has that size.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn descend<const KIND: u8>(x: *mut u64, len: usize, node: usize, tables: Tables<'_>) {
    let m = tables.m;
    // SAFETY: every part is inside the `len` words; a node of more than eight words has a factor,
    // and its children have half its size.
    unsafe {
        if len == BLOCK {
            let mut r = load_all::<8>(x, 8);
            split_eight::<KIND, 0>(&mut r, tables.three_stages(node), m);
            finish_block::<KIND, 0>(&mut r, node, tables);
            store_all(x, 8, r);
            return;
        }
        let parts = if len == 2 * BLOCK {
            let w = tables.factor(node);
            for k in (0..BLOCK).step_by(8) {
                let [mut a, mut b] = load_all::<2>(x.add(k), BLOCK);
                if KIND == SMALL {
                    split::<false>(&mut a, &mut b, w, m);
                } else {
                    split::<true>(&mut a, &mut b, w, m);
                }
                store_all(x.add(k), BLOCK, [a, b]);
            }
            2
        } else if three_at_once(len) {
            let w = tables.three_stages(node);
            for k in (0..len / 8).step_by(8) {
                let mut r = load_all::<8>(x.add(k), len / 8);
                split_eight::<KIND, 1>(&mut r, w, m);
                store_all(x.add(k), len / 8, r);
            }
            8
        } else {
            let w = [tables.factor(node), tables.factor(2 * node), tables.factor(2 * node + 1)];
            for k in (0..len / 4).step_by(8) {
                let mut r = load_all::<4>(x.add(k), len / 4);
                split_four::<KIND>(r.each_mut(), w, m);
                store_all(x.add(k), len / 4, r);
            }
            4
        };
        for j in 0..parts {
            descend::<KIND>(x.add(j * (len / parts)), len / parts, parts * node + j, tables);
        }
    }
}

/// Undoes [`descend`] except for the division by `len`; results are below 4p, or 2p for `EACH`.
///
/// # Safety
/// As [`descend`].
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn ascend<const KIND: u8>(x: *mut u64, len: usize, node: usize, tables: Tables<'_>) {
    let m = tables.m;
    // SAFETY: as in `descend`.
    unsafe {
        if len == BLOCK {
            let mut r = load_all::<8>(x, 8);
            merge_corners::<KIND>(&mut r, tables);
            tables.twist(&mut r, node);
            transpose(&mut r);
            merge_eight::<KIND, 0>(&mut r, tables.three_stages(node), tables);
            store_all(x, 8, r);
            return;
        }
        let parts = if len == 2 * BLOCK {
            2
        } else if three_at_once(len) {
            8
        } else {
            4
        };
        let part = len / parts;
        for j in 0..parts {
            ascend::<KIND>(x.add(j * part), part, parts * node + j, tables);
        }
        if parts == 2 {
            let (w, bound) = (tables.factor(node), if KIND == EACH { m.two_p } else { tables.four_p });
            for k in (0..part).step_by(8) {
                let [mut a, mut b] = load_all::<2>(x.add(k), part);
                merge::<true>(&mut a, &mut b, w, bound, m);
                store_all(x.add(k), part, [a, b]);
            }
        } else if parts == 8 {
            let w = tables.three_stages(node);
            for k in (0..part).step_by(8) {
                let mut r = load_all::<8>(x.add(k), part);
                merge_eight::<KIND, 1>(&mut r, w, tables);
                store_all(x.add(k), part, r);
            }
        } else {
            let w = [tables.factor(node), tables.factor(2 * node), tables.factor(2 * node + 1)];
            for k in (0..part).step_by(8) {
                let mut r = load_all::<4>(x.add(k), part);
                merge_four::<KIND>(r.each_mut(), w, tables);
                store_all(x.add(k), part, r);
            }
        }
    }
}

/// # Safety
/// AVX-512F, DQ and IFMA present; `x` has N elements; `KIND` allows the modulus.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) unsafe fn forward<const KIND: u8>(ntt: &NttTable, t: &Factors, x: &mut [u64]) {
    // SAFETY: the root is the node of all N words.
    unsafe { descend::<KIND>(x.as_mut_ptr(), x.len(), 1, Tables::new(ntt, t)) }
}

/// # Safety
/// As [`forward`].
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) unsafe fn inverse<const KIND: u8>(ntt: &NttTable, t: &Factors, x: &mut [u64]) {
    let (n, data, tables) = (x.len(), x.as_mut_ptr(), Tables::new(ntt, t));
    let (m, scale) = (tables.m, Factor::splat(ntt.degree_inverse));
    let finish = |v: V| fold(m.mul_lazy(v, scale), m.p);
    let last = Factor::splat(t.last);
    // Ends words with a factor in the last stage: that factor includes the division by N.
    let ends = |v: V| fold(m.tight(v), m.p);
    // SAFETY: as in `forward`; all parts are inside the N words.
    unsafe {
        if n < 4 * BLOCK {
            ascend::<KIND>(data, n, 1, tables);
            for k in (0..n).step_by(8) {
                store(data.add(k), finish(load(data.add(k))));
            }
        } else if three_at_once(n) {
            let part = n / 8;
            for j in 0..8 {
                ascend::<KIND>(data.add(j * part), part, 8 + j, tables);
            }
            let mut w = tables.three_stages(1);
            w[0] = last;
            for k in (0..part).step_by(8) {
                let mut r = load_all::<8>(data.add(k), part);
                merge_eight::<KIND, 2>(&mut r, w, tables);
                let r = std::array::from_fn(|i| if i < 4 { finish(r[i]) } else { ends(r[i]) });
                store_all::<8>(data.add(k), part, r);
            }
        } else {
            let part = n / 4;
            for j in 0..4 {
                ascend::<KIND>(data.add(j * part), part, 4 + j, tables);
            }
            let w = [last, tables.factor(2), tables.factor(3)];
            for k in (0..part).step_by(8) {
                let mut r = load_all::<4>(data.add(k), part);
                merge_four::<KIND>(r.each_mut(), w, tables);
                let [a, b, d, e] = r;
                store_all(data.add(k), part, [finish(a), finish(b), ends(d), ends(e)]);
            }
        }
    }
}
