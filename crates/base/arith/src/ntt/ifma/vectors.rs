//! Loads, stores and transpositions of vectors.

use crate::words52::{V, load, store};
use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(super) fn transpose(r: &mut [V; 8]) {
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

/// Loads `COUNT` vectors, `stride` words apart.
///
/// # Safety
/// `x` points to `COUNT` times `stride` words, and `stride` is at least 8.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(in super::super) unsafe fn load_all<const COUNT: usize>(x: *const u64, stride: usize) -> [V; COUNT] {
    // SAFETY: by the caller.
    std::array::from_fn(|i| unsafe { load(x.add(i * stride)) })
}

/// # Safety
/// As [`load_all`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
pub(in super::super) unsafe fn store_all<const COUNT: usize>(x: *mut u64, stride: usize, values: [V; COUNT]) {
    for (i, v) in values.into_iter().enumerate() {
        // SAFETY: by the caller.
        unsafe { store(x.add(i * stride), v) };
    }
}
