//! Words in which sums are computed, and the inner loops over them: written once, compiled for each
//! instruction set, and vectorized by the compiler.

use crate::cpu::Cpu;

/// Output positions of one block of sums: four 512-bit vectors of 64-bit words.
pub(super) const RUN: usize = 32;
const WINDOW: &str = "two runs of words follow the last plane";

/// A word of 32 or 64 bits.
pub(super) trait Word: Copy + Default + Send + Sync {
    /// The low bits of a value.
    fn of(value: u64) -> Self;
    /// A weight, sign-extended.
    fn of_weight(weight: i32) -> Self;
    /// `self + a * b`.
    fn plus(self, a: Self, b: Self) -> Self;
    /// The sums over all taps at [`RUN`] positions, for `C` output channels. Each tap has a column
    /// of `weights`, and the start of its run in `words` in `offsets`.
    fn sums<const C: usize>(cpu: Cpu, words: &[Self], offsets: &[usize], weights: &[[Self; C]]) -> [[Self; RUN]; C];
    /// The sum of `weights[i] * values[i]`.
    fn dot(cpu: Cpu, weights: &[i32], values: &[Self]) -> Self;
    /// `sums[i] += factors[i] * values[i]`.
    fn accumulate(cpu: Cpu, sums: &mut [Self], factors: &[i8], values: &[Self]);
}

/// [`Word::sums`], `R` positions at a time: as many as the registers hold sums of.
#[inline(always)]
fn sums<W: Word, const C: usize, const R: usize>(words: &[W], offsets: &[usize], weights: &[[W; C]]) -> [[W; RUN]; C] {
    let mut out = [[W::default(); RUN]; C];
    for part in (0..RUN).step_by(R) {
        let mut sums = [[W::default(); R]; C];
        for (&offset, column) in offsets.iter().zip(weights) {
            let window: &[W; R] = words[offset + part..].first_chunk().expect(WINDOW);
            for (sums, &w) in sums.iter_mut().zip(column) {
                for (s, &v) in sums.iter_mut().zip(window) {
                    *s = s.plus(v, w);
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            out[part..][..R].copy_from_slice(sums);
        }
    }
    out
}

#[inline(always)]
fn dot<W: Word>(weights: &[i32], values: &[W]) -> W {
    weights.iter().zip(values).fold(W::default(), |sum, (&w, &v)| sum.plus(v, W::of_weight(w)))
}

#[inline(always)]
fn accumulate<W: Word>(sums: &mut [W], factors: &[i8], values: &[W]) {
    for ((sum, &factor), &value) in sums.iter_mut().zip(factors).zip(values) {
        *sum = sum.plus(W::of_weight(i32::from(factor)), value);
    }
}

/// Implements [`Word`], with the positions that fit the registers: portable, AVX2, AVX-512.
macro_rules! word {
    ($word:ty, $signed:ty, $module:ident, $portable:literal, $avx2:literal, $avx512:literal) => {
        impl Word for $word {
            #[inline(always)]
            fn of(value: u64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn of_weight(weight: i32) -> Self {
                <$signed>::from(weight) as Self
            }

            #[inline(always)]
            fn plus(self, a: Self, b: Self) -> Self {
                self.wrapping_add(a.wrapping_mul(b))
            }

            #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
            fn sums<const C: usize>(
                cpu: Cpu,
                words: &[Self],
                offsets: &[usize],
                weights: &[[Self; C]],
            ) -> [[Self; RUN]; C] {
                #[cfg(target_arch = "x86_64")]
                if cpu.has_wide_words() {
                    // SAFETY: AVX-512 F, DQ and VL were detected.
                    return unsafe { $module::sums_avx512(words, offsets, weights) };
                } else if cpu.has_fma() {
                    // SAFETY: AVX2 was detected.
                    return unsafe { $module::sums_avx2(words, offsets, weights) };
                }
                sums::<Self, C, $portable>(words, offsets, weights)
            }

            #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
            fn dot(cpu: Cpu, weights: &[i32], values: &[Self]) -> Self {
                #[cfg(target_arch = "x86_64")]
                if cpu.has_wide_words() {
                    // SAFETY: AVX-512 F, DQ and VL were detected.
                    return unsafe { $module::dot_avx512(weights, values) };
                } else if cpu.has_fma() {
                    // SAFETY: AVX2 was detected.
                    return unsafe { $module::dot_avx2(weights, values) };
                }
                dot(weights, values)
            }

            #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
            fn accumulate(cpu: Cpu, sums: &mut [Self], factors: &[i8], values: &[Self]) {
                #[cfg(target_arch = "x86_64")]
                if cpu.has_wide_words() {
                    // SAFETY: AVX-512 F, DQ and VL were detected.
                    return unsafe { $module::accumulate_avx512(sums, factors, values) };
                } else if cpu.has_fma() {
                    // SAFETY: AVX2 was detected.
                    return unsafe { $module::accumulate_avx2(sums, factors, values) };
                }
                accumulate(sums, factors, values);
            }
        }

        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::RUN;

            /// # Safety
            /// AVX2 must be present.
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn sums_avx2<const C: usize>(
                words: &[$word],
                offsets: &[usize],
                weights: &[[$word; C]],
            ) -> [[$word; RUN]; C] {
                super::sums::<$word, C, $avx2>(words, offsets, weights)
            }

            /// # Safety
            /// AVX-512 F, DQ and VL must be present.
            #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
            pub(super) unsafe fn sums_avx512<const C: usize>(
                words: &[$word],
                offsets: &[usize],
                weights: &[[$word; C]],
            ) -> [[$word; RUN]; C] {
                super::sums::<$word, C, $avx512>(words, offsets, weights)
            }

            /// # Safety
            /// AVX2 must be present.
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn dot_avx2(weights: &[i32], values: &[$word]) -> $word {
                super::dot(weights, values)
            }

            /// # Safety
            /// AVX-512 F, DQ and VL must be present.
            #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
            pub(super) unsafe fn dot_avx512(weights: &[i32], values: &[$word]) -> $word {
                super::dot(weights, values)
            }

            /// # Safety
            /// AVX2 must be present.
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn accumulate_avx2(sums: &mut [$word], factors: &[i8], values: &[$word]) {
                super::accumulate(sums, factors, values);
            }

            /// # Safety
            /// AVX-512 F, DQ and VL must be present.
            #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
            pub(super) unsafe fn accumulate_avx512(sums: &mut [$word], factors: &[i8], values: &[$word]) {
                super::accumulate(sums, factors, values);
            }
        }
    };
}

// With more positions, the compiler stops unrolling, stores the sums in memory and does not
// vectorize (twenty times slower).
word!(u32, i32, narrow, 8, 8, 8);
word!(u64, i64, wide, 4, 8, 8);
