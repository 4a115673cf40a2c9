//! The forward transform of polynomials with few columns of nonzero coefficients.
//!
//! The first stages join rows of columns. In those that follow, the second word of every butterfly is
//! zero, so the first is copied; only the last stages of every block remain. Bounds are those of
//! `transform`.

use super::super::NttTable;
use super::factors::{BLOCK_FACTORS, Factors};
use super::transform::{BLOCK, SMALL, Tables, finish_block, split, split_corners, split_four};
use super::vectors::{load_all, store_all};
use crate::words52::{Factor, V, load};
use std::arch::x86_64::*;

/// # Safety
/// AVX-512F, DQ and IFMA present. `out` has N elements. `columns` has a power of two of words, up
/// to N, in rows of `width` words: 8, 16, 32 or 64. `KIND` allows the modulus.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) unsafe fn forward<const KIND: u8>(
    ntt: &NttTable,
    t: &Factors,
    columns: &mut [u64],
    width: usize,
    out: &mut [u64],
) {
    let tables = Tables::new(ntt, t);
    let (x, rows) = (columns.as_mut_ptr(), columns.len() / width);
    let period = out.len() / rows;
    // SAFETY: all rows are inside `columns`. Groups of rows are nodes; each has a factor, since a
    // row has at least 8 words and there are fewer than N / 8 groups. Vector `i` of block `b` is in
    // row `(64 b + 8 i) / period`, below `rows`.
    unsafe {
        let mut groups = 1;
        if rows.trailing_zeros() % 2 == 1 {
            let (half, w) = (columns.len() / 2, tables.factor(1));
            for k in (0..half).step_by(8) {
                let [mut a, mut b] = load_all::<2>(x.add(k), half);
                join::<KIND>(&mut a, &mut b, tables, w);
                store_all(x.add(k), half, [a, b]);
            }
            groups = 2;
        }
        // Two stages at a time.
        while groups < rows {
            let quarter = columns.len() / (4 * groups);
            for group in 0..groups {
                let (node, source) = (groups + group, x.add(4 * group * quarter));
                let w = [tables.factor(node), tables.factor(2 * node), tables.factor(2 * node + 1)];
                for k in (0..quarter).step_by(8) {
                    let mut r = load_all::<4>(source.add(k), quarter);
                    split_four::<KIND>(r.each_mut(), w, tables.m);
                    store_all(source.add(k), quarter, r);
                }
            }
            groups *= 4;
        }
        for block in 0..tables.blocks {
            let (node, target) = (tables.blocks + block, out.as_mut_ptr().add(BLOCK * block));
            if width == 8 && period >= BLOCK {
                let v = load(x.add(BLOCK * block / period * width));
                store_all(target, 8, spread_block::<KIND>(v, node, tables));
                continue;
            }
            let word = |i: usize| (BLOCK * block + 8 * i) / period * width + 8 * i % width;
            let mut r: [V; 8] = std::array::from_fn(|i| load(x.add(word(i))));
            let w = tables.three_stages(node);
            last_stages::<KIND>(&mut r, width, w, tables);
            finish_block::<KIND, 1>(&mut r, node, tables);
            store_all(target, 8, r);
        }
    }
}

/// Computes those of the three stages on vectors that join columns.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn last_stages<const KIND: u8>(r: &mut [V; 8], width: usize, w: [Factor; 7], tables: Tables<'_>) {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = r;
    if width == BLOCK {
        for (a, b) in [(&mut *r0, &mut *r4), (&mut *r1, &mut *r5), (&mut *r2, &mut *r6), (&mut *r3, &mut *r7)] {
            join::<KIND>(a, b, tables, w[0]);
        }
    }
    if width >= BLOCK / 2 {
        for (a, b, w) in [
            (&mut *r0, &mut *r2, w[1]),
            (&mut *r1, &mut *r3, w[1]),
            (&mut *r4, &mut *r6, w[2]),
            (&mut *r5, &mut *r7, w[2]),
        ] {
            join::<KIND>(a, b, tables, w);
        }
    }
    if width >= BLOCK / 4 {
        for ((a, b), w) in [(r0, r1), (r2, r3), (r4, r5), (r6, r7)].into_iter().zip(&w[3..]) {
            join::<KIND>(a, b, tables, *w);
        }
    }
}

/// Computes the last three stages of a block whose eight vectors all equal `v`, to `[0, p)`.
///
/// # Safety
/// `node` is the node of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn spread_block<const KIND: u8>(v: V, node: usize, tables: Tables<'_>) -> [V; 8] {
    // SAFETY: by the caller.
    let mut r = unsafe { spread(v, node, tables) };
    split_corners::<KIND, 2>(&mut r, tables);
    r.map(|v| tables.m.reduce(v))
}

/// Returns eight vectors, below 2p: every lane of vector l holds word l of `v`, times `u^l` in the
/// block of `node` (see `factors`).
///
/// # Safety
/// As [`spread_block`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn spread(v: V, node: usize, tables: Tables<'_>) -> [V; 8] {
    // Places of the factors and quotients, which alternate in a block's table; lane 0 has no
    // factor.
    let values = _mm512_setr_epi64(0, 0, 2, 4, 6, 8, 10, 12);
    let quotients = _mm512_setr_epi64(1, 1, 3, 5, 7, 9, 11, 13);
    let m = tables.m;
    // SAFETY: the tables have `BLOCK_FACTORS` words for each block, and 16 for each of seven
    // powers.
    unsafe {
        let of_block = tables.t.block.as_ptr().add(BLOCK_FACTORS * (node - tables.blocks));
        let (low, high) = (load(of_block), load(of_block.add(8)));
        let value = _mm512_permutex2var_epi64(low, values, high);
        let quotient = _mm512_permutex2var_epi64(low, quotients, high);
        let (first, others) = (m.reduce_loose(v), m.mul_loose(v, Factor { value, quotient }));
        let of_lane = tables.t.lane.as_ptr();
        std::array::from_fn(|l| {
            let place = _mm512_set1_epi64(l as i64);
            if l == 0 {
                return _mm512_permutexvar_epi64(place, first);
            }
            let source = of_lane.add(16 * (l - 1));
            let lane = Factor { value: load(source), quotient: load(source.add(8)) };
            m.mul_loose(_mm512_permutexvar_epi64(place, others), lane)
        })
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
fn join<const KIND: u8>(a: &mut V, b: &mut V, tables: Tables<'_>, w: Factor) {
    if KIND == SMALL {
        split::<false>(a, b, w, tables.m);
    } else {
        split::<true>(a, b, w, tables.m);
    }
}
