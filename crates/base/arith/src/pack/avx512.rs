//! Unpacking with AVX-512 and its byte permutations, eight values at a time.

use std::arch::x86_64::*;

/// Widest value: with up to seven bits before it, it fits in 8 bytes.
pub(super) const MAX_WIDTH: u32 = 57;

/// As `unpack` for AVX2.
///
/// # Safety
/// AVX-512 F, BW and VBMI must be present.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn unpack(bytes: &[u8], width: u32, max: u64, out: &mut [u64]) -> (usize, bool) {
    assert!((1..=MAX_WIDTH).contains(&width), "eight bytes hold a value");
    let step = width as usize;
    // Eight bytes for each value, from its first byte. The last eight end before byte 64.
    let places: [u8; 64] = std::array::from_fn(|i| (i / 8 * step / 8 + i % 8) as u8);
    let shifts: [u64; 8] = std::array::from_fn(|i| (i * step % 8) as u64);
    // Every read takes 64 bytes.
    let eights = bytes.len().checked_sub(64).map_or(0, |room| room / step + 1).min(out.len() / 8);
    let (mask, max) = (_mm512_set1_epi64((1 << width) - 1), _mm512_set1_epi64(max as i64));
    let mut excess = 0;
    // SAFETY: group i reads up to byte `i * step + 64`, and writes words `8 i` to `8 i + 7` of
    // `out`; the two arrays have 64 bytes.
    unsafe {
        let (places, shifts) = (_mm512_loadu_si512(places.as_ptr().cast()), _mm512_loadu_si512(shifts.as_ptr().cast()));
        for i in 0..eights {
            let window = _mm512_loadu_si512(bytes.as_ptr().add(i * step).cast());
            let aligned = _mm512_permutexvar_epi8(places, window);
            let values = _mm512_and_si512(_mm512_srlv_epi64(aligned, shifts), mask);
            excess |= _mm512_cmpgt_epu64_mask(values, max);
            _mm512_storeu_si512(out.as_mut_ptr().add(8 * i).cast(), values);
        }
    }
    (8 * eights, excess != 0)
}
