//! Unpacking with AVX2, four values at a time.

use std::arch::x86_64::*;

/// Widest value: with up to seven bits before it, it fits in 8 bytes.
pub(super) const MAX_WIDTH: u32 = 57;

/// Places of values 0 to 3 or 4 to 7 of eight, which take `width` bytes.
struct Quad {
    /// First bytes of values 0 and 2 of the four.
    starts: [usize; 2],
    /// For each half: 8 bytes of value 0 or 2, and 8 bytes of the next value.
    shuffle: [i8; 32],
    /// Bits before each value in its first byte.
    shifts: [i64; 4],
}

impl Quad {
    fn new(first: usize, width: usize) -> Self {
        let byte = |i: usize| (first + i) * width / 8;
        let starts = [byte(0), byte(2)];
        let shuffle = std::array::from_fn(|i| {
            let value = i / 8;
            (byte(value) - starts[value / 2] + i % 8) as i8
        });
        Self { starts, shuffle, shifts: std::array::from_fn(|i| ((first + i) * width % 8) as i64) }
    }
}

/// Unpacks groups of eight values from the front, as long as no read passes the end of `bytes`.
/// Returns the number of values, and whether one was above `max`.
///
/// # Safety
/// AVX2 must be present.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack(bytes: &[u8], width: u32, max: u64, out: &mut [u64]) -> (usize, bool) {
    assert!((1..=MAX_WIDTH).contains(&width), "eight bytes hold a value");
    let step = width as usize;
    let [low, high] = [Quad::new(0, step), Quad::new(4, step)];
    // The last read of a group takes 16 bytes, from the start of value 6.
    let reach = high.starts[1] + 16;
    let eights = bytes.len().checked_sub(reach).map_or(0, |room| room / step + 1).min(out.len() / 8);
    let mut excess = _mm256_setzero_si256();
    // SAFETY: group i reads up to byte `i * step + reach`, and writes words `8 i` to `8 i + 7` of
    // `out`.
    unsafe {
        for i in 0..eights {
            let (source, target) = (bytes.as_ptr().add(i * step), out.as_mut_ptr().add(8 * i));
            excess = _mm256_or_si256(excess, unpack_four(source, &low, width, max, target));
            excess = _mm256_or_si256(excess, unpack_four(source, &high, width, max, target.add(4)));
        }
    }
    (8 * eights, _mm256_testz_si256(excess, excess) == 0)
}

/// Unpacks four values. Returns ones in the lanes of values above `max`.
///
/// # Safety
/// 16 bytes are readable from each of the two starts, four words writable at `target`; `width` is at
/// most [`MAX_WIDTH`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn unpack_four(source: *const u8, quad: &Quad, width: u32, max: u64, target: *mut u64) -> __m256i {
    // SAFETY: by the caller.
    unsafe {
        let halves = quad.starts.map(|start| source.add(start).cast::<__m128i>());
        let windows = _mm256_loadu2_m128i(halves[1], halves[0]);
        let aligned = _mm256_shuffle_epi8(windows, _mm256_loadu_si256(quad.shuffle.as_ptr().cast()));
        let shifted = _mm256_srlv_epi64(aligned, _mm256_loadu_si256(quad.shifts.as_ptr().cast()));
        let values = _mm256_and_si256(shifted, _mm256_set1_epi64x((1 << width) - 1));
        _mm256_storeu_si256(target.cast(), values);
        // Values have fewer than 64 bits, so `max` may be limited to `i64::MAX`.
        _mm256_cmpgt_epi64(values, _mm256_set1_epi64x(max.min(i64::MAX as u64) as i64))
    }
}
