//! Sums of products on AVX2, which multiplies halves of 32 bits: factors below 2^52 are split at bit
//! 26, and three sums (low, middle, high) stay in registers until the last pair.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::portable::{mac, mac_runs};

/// As [`NttTable::mac`](super::NttTable::mac), which checked the lengths.
#[cfg(target_arch = "x86_64")]
pub(super) fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
    for pairs in pairs.chunks(x86::MAX) {
        // SAFETY: an `NttTable` with the kernel that calls this exists only where AVX2 was
        // detected; `NttTable::mac` checked that all buffers have the same length, a multiple of
        // 64.
        unsafe { x86::mac(low, high, pairs) }
    }
}

/// As [`NttTable::mac_runs`](super::NttTable::mac_runs), which checked the lengths.
#[cfg(target_arch = "x86_64")]
pub(super) fn mac_runs(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])], run: usize) {
    for pairs in pairs.chunks(x86::MAX) {
        // SAFETY: as in `mac`; `NttTable::mac_runs` checked that there is a second factor for each
        // run.
        unsafe { x86::mac_runs(low, high, pairs, run) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Most pairs in one call: each adds less than 2^53 to a middle sum.
    pub(super) const MAX: usize = 1024;
    /// Words in a vector.
    const LEN: usize = 4;
    /// Bits of the lower half of a factor.
    const HALF: i32 = 26;

    /// Sums of products of halves: low with low, low with high, high with high.
    #[derive(Clone, Copy)]
    struct Sums([__m256i; 3]);

    impl Sums {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn zero() -> Self {
            Self([_mm256_setzero_si256(); 3])
        }

        /// Adds `x * y`, each given by its halves.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(&mut self, x: [__m256i; 2], y: [__m256i; 2]) {
            let cross = _mm256_add_epi64(_mm256_mul_epu32(x[0], y[1]), _mm256_mul_epu32(x[1], y[0]));
            self.0[0] = _mm256_add_epi64(self.0[0], _mm256_mul_epu32(x[0], y[0]));
            self.0[1] = _mm256_add_epi64(self.0[1], cross);
            self.0[2] = _mm256_add_epi64(self.0[2], _mm256_mul_epu32(x[1], y[1]));
        }

        /// Adds the sum to `low + 2^52 high`; `low` gets less than 2^52 of it.
        ///
        /// # Safety
        /// Four words can be read and written at both pointers.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn add_to(self, low: *mut u64, high: *mut u64) {
            let Self([lowest, middle, highest]) = self;
            let half = _mm256_set1_epi64x((1 << HALF) - 1);
            let low52 = _mm256_set1_epi64x((1 << (2 * HALF)) - 1);
            let l = _mm256_add_epi64(lowest, _mm256_slli_epi64::<HALF>(_mm256_and_si256(middle, half)));
            let carried = _mm256_add_epi64(_mm256_srli_epi64::<HALF>(middle), _mm256_srli_epi64::<{ 2 * HALF }>(l));
            let h = _mm256_add_epi64(highest, carried);
            // SAFETY: by the caller.
            unsafe {
                let (l, h) = (_mm256_and_si256(l, low52), h);
                _mm256_storeu_si256(low.cast(), _mm256_add_epi64(_mm256_loadu_si256(low.cast()), l));
                _mm256_storeu_si256(high.cast(), _mm256_add_epi64(_mm256_loadu_si256(high.cast()), h));
            }
        }
    }

    /// Splits four words below 2^52 into halves.
    ///
    /// # Safety
    /// Four words can be read at `source`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn halves(source: *const u64) -> [__m256i; 2] {
        // SAFETY: by the caller.
        let x = unsafe { _mm256_loadu_si256(source.cast()) };
        [_mm256_and_si256(x, _mm256_set1_epi64x((1 << HALF) - 1)), _mm256_srli_epi64::<HALF>(x)]
    }

    /// # Safety
    /// AVX2 present; every buffer has the same length, a multiple of 64; at most [`MAX`] pairs.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        for k in (0..low.len()).step_by(2 * LEN) {
            let mut sums = [Sums::zero(); 2];
            // SAFETY: `k + 7` is below the common length.
            unsafe {
                for (a, b) in pairs {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        sum.add(halves(a.as_ptr().add(k + LEN * j)), halves(b.as_ptr().add(k + LEN * j)));
                    }
                }
                for (j, sum) in sums.into_iter().enumerate() {
                    sum.add_to(low.as_mut_ptr().add(k + LEN * j), high.as_mut_ptr().add(k + LEN * j));
                }
            }
        }
    }

    /// # Safety
    /// The processor has AVX2. Sums and first factors have one length; `run` divides it and is a multiple
    /// of 32. Each of at most [`MAX`] pairs has a second factor for each run.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn mac_runs(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])], run: usize) {
        for k in (0..low.len()).step_by(4 * LEN) {
            let mut sums = [Sums::zero(); 4];
            // SAFETY: `k + 15` is below the common length, and `k / run` below the number of runs.
            unsafe {
                for (a, b) in pairs {
                    let y = *b.as_ptr().add(k / run);
                    let y = [y & ((1 << HALF) - 1), y >> HALF].map(|half| _mm256_set1_epi64x(half as i64));
                    for (j, sum) in sums.iter_mut().enumerate() {
                        sum.add(halves(a.as_ptr().add(k + LEN * j)), y);
                    }
                }
                for (j, sum) in sums.into_iter().enumerate() {
                    sum.add_to(low.as_mut_ptr().add(k + LEN * j), high.as_mut_ptr().add(k + LEN * j));
                }
            }
        }
    }
}
