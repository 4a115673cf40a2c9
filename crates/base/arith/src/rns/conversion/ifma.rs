//! The AVX-512 IFMA kernel of conversions.

use super::{BLOCK, Source, Target};
use crate::words52::{Factor, LEN, Modulus52, fold, load, store};
use std::arch::x86_64::*;

/// Vectors of sums that are computed at once.
const ROW: usize = 4;

/// Most factors of a target whose sum of products needs no second carry.
const FEW_FACTORS: usize = 12;

/// Converts coefficients `start` to `start + block_end` of `from` to the first `block_end` of `to`;
/// `block_end` is a multiple of `BLOCK`.
pub(super) fn convert(
    sources: &[Source],
    targets: &[Target],
    from: &[&[u64]],
    start: usize,
    to: &mut [&mut [u64]],
    block_end: usize,
) {
    assert!(from.len() == sources.len() && to.len() == targets.len() && block_end.is_multiple_of(BLOCK));
    assert!(from.iter().all(|x| x.len() >= start + block_end) && to.iter().all(|x| x.len() >= block_end));
    let mut scaled = vec![0; (sources.len() + 1) * BLOCK];
    for offset in (0..block_end).step_by(BLOCK) {
        let places = from.iter().map(|x| x[start + offset..].as_ptr());
        // SAFETY: a conversion with this kernel exists only where AVX-512 F, DQ and IFMA were
        // detected; the assertions above checked the lengths.
        unsafe {
            scale(sources, places, scaled.as_mut_ptr());
            for (target, out) in targets.iter().zip(to.iter_mut()) {
                sum(target, scaled.as_ptr(), out.as_mut_ptr().add(offset));
            }
        }
    }
}

/// Computes `y_i` of each source, and the quotients in the last row.
///
/// # Safety
/// `words` yields a pointer to `BLOCK` words for each source; `scaled` has a row of `BLOCK` words
/// for each source, and one more.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn scale(sources: &[Source], words: impl Iterator<Item = *const u64>, scaled: *mut u64) {
    let mut quotients = [_mm512_setzero_pd(); BLOCK / LEN];
    for (i, (source, x)) in sources.iter().zip(words).enumerate() {
        let (m, w) = (Modulus52::new(&source.modulus), Factor::splat(source.factor));
        let reciprocal = _mm512_set1_pd(source.reciprocal);
        for (k, quotient) in quotients.iter_mut().enumerate() {
            // SAFETY: by the caller.
            unsafe {
                let y = fold(m.mul_lazy(load(x.add(LEN * k)), w), m.p);
                store(scaled.add(i * BLOCK + LEN * k), y);
                // The same two roundings as in the portable kernel.
                *quotient = _mm512_add_pd(*quotient, _mm512_mul_pd(_mm512_cvtepu64_pd(y), reciprocal));
            }
        }
    }
    for (k, quotient) in quotients.into_iter().enumerate() {
        let rounded = _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(quotient);
        // SAFETY: by the caller.
        unsafe { store(scaled.add(sources.len() * BLOCK + LEN * k), _mm512_cvtpd_epu64(rounded)) };
    }
}

/// Computes the inner products with the factors of one target.
///
/// # Safety
/// `scaled` has a row of `BLOCK` words for each factor, `out` has `BLOCK` words.
#[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
unsafe fn sum(target: &Target, scaled: *const u64, out: *mut u64) {
    let m = Modulus52::new(&target.modulus);
    let radix = [Factor::splat(target.radix52[0]), Factor::splat(target.radix52[1])];
    for k in (0..BLOCK).step_by(ROW * LEN) {
        let (mut low, mut high) = ([m.zero; ROW], [m.zero; ROW]);
        for (i, &factor) in target.factors.iter().enumerate() {
            let w = _mm512_set1_epi64(factor as i64);
            for j in 0..ROW {
                // SAFETY: by the caller.
                let y = unsafe { load(scaled.add(i * BLOCK + k + LEN * j)) };
                low[j] = _mm512_madd52lo_epu64(low[j], y, w);
                high[j] = _mm512_madd52hi_epu64(high[j], y, w);
            }
        }
        for j in 0..ROW {
            let is_small = target.factors.len() <= FEW_FACTORS;
            let sum = if is_small { m.join_few(low[j], high[j], radix[0]) } else { m.join(low[j], high[j], radix) };
            // SAFETY: by the caller.
            unsafe { store(out.add(k + LEN * j), sum) };
        }
    }
}
