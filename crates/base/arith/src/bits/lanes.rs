//! Kernels for bit planes of words and of blocks.

use crate::block::Block;
use crate::cpu::Cpu;

/// Transposes a 64 x 64 bit matrix in place: bit `c` of word `r` becomes bit `r` of word `c`.
pub fn transpose64(m: &mut [u64; 64]) {
    let mut width = 32;
    let mut mask = u64::MAX >> 32;
    while width != 0 {
        for base in (0..64).step_by(2 * width) {
            let (low, high) = m[base..base + 2 * width].split_at_mut(width);
            for (a, b) in low.iter_mut().zip(high) {
                let t = (*a >> width ^ *b) & mask;
                *a ^= t << width;
                *b ^= t;
            }
        }
        width /= 2;
        mask ^= mask << width;
    }
}

/// See [`super::transpose::block_planes`]; `out.len() <= 64`.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(super) fn block_planes(cpu: Cpu, blocks: &[Block; 64], out: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if cpu.has_wide_blocks() {
        // SAFETY: the AVX-512 set, VBMI included, was detected.
        return unsafe { wide::block_planes(blocks, out) };
    }
    portable(blocks, out)
}

fn portable(blocks: &[Block; 64], out: &mut [u64]) {
    if let [only] = out {
        *only = blocks.iter().enumerate().fold(0, |w, (i, b)| w | b.lsb() << i);
        return;
    }
    let mut m = blocks.map(|b| b.0 as u64);
    transpose64(&mut m);
    let n = out.len();
    out.copy_from_slice(&m[..n]);
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::*;
    use std::arch::x86_64::*;

    /// `TAKE[v]`: a two-source byte permutation that puts byte 0 of the four blocks of vector `v` at
    /// positions `4v..4v+4` and keeps the first source elsewhere.
    const TAKE: [[u8; 64]; 16] = {
        let mut t = [[0; 64]; 16];
        let mut v = 0;
        while v < 16 {
            let mut i = 0;
            while i < 64 {
                t[v][i] = if i / 4 == v { 64 + 16 * (i % 4) as u8 } else { i as u8 };
                i += 1;
            }
            v += 1;
        }
        t
    };

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
    pub(super) fn block_planes(blocks: &[Block; 64], out: &mut [u64]) {
        for (byte, words) in out.chunks_mut(8).enumerate() {
            let offset = _mm512_set1_epi8(byte as i8);
            let mut parts = [_mm512_setzero_si512(); 4];
            for (v, take) in TAKE.iter().enumerate() {
                // SAFETY: vector v covers blocks 4v..4v+4 of 64, and a row of TAKE is 64 bytes;
                // unaligned loads.
                let (x, take) = unsafe {
                    (_mm512_loadu_si512(blocks.as_ptr().add(4 * v).cast()), _mm512_loadu_si512(take.as_ptr().cast()))
                };
                let four = _mm512_cmpge_epu8_mask(take, _mm512_set1_epi8(64));
                let take = _mm512_mask_add_epi8(take, four, take, offset);
                parts[v % 4] = _mm512_permutex2var_epi8(parts[v % 4], take, x);
            }
            // Each part is zero at the positions of other parts, so OR merges them.
            let joined = _mm512_or_si512(_mm512_or_si512(parts[0], parts[1]), _mm512_or_si512(parts[2], parts[3]));
            for (j, word) in words.iter_mut().enumerate() {
                *word = _mm512_test_epi8_mask(joined, _mm512_set1_epi8((1u8 << j) as i8));
            }
        }
    }
}
