//! Bit planes: plane `j` of a list of words holds bit `j` of every word. Conversions take 64 words
//! at a time, by a bit matrix transposition (Warren, Hacker's Delight, section 7-3) or SIMD.

use super::Bits;
use super::lanes;
pub use super::lanes::transpose64;
use crate::block::Block;
use crate::cpu::Cpu;

/// Bit planes `0..width` of `values`: plane `j` has `values.len()` bits. Panics if `width > 64`.
pub fn planes(values: &[u64], width: usize) -> Vec<Bits> {
    assert!(width <= 64, "width {width} of a 64-bit word");
    let mut out = vec![Bits::zeros(values.len()); width];
    let mut m = [0; 64];
    for (w, chunk) in values.chunks(64).enumerate() {
        m[..chunk.len()].copy_from_slice(chunk);
        m[chunk.len()..].fill(0);
        transpose64(&mut m);
        for (plane, word) in out.iter_mut().zip(&m) {
            plane.words[w] = *word;
        }
    }
    out
}

/// Inverse of [`planes`]: bit `j` of value `i` is bit `i` of plane `j`; higher bits are 0. Panics
/// if there are more than 64 planes or their lengths differ.
pub fn from_planes(planes: &[Bits]) -> Vec<u64> {
    assert!(planes.len() <= 64, "{} planes of a 64-bit word", planes.len());
    let n = planes.first().map_or(0, Bits::len);
    assert!(planes.iter().all(|p| p.len() == n), "planes of unequal length");
    let mut out = vec![0; n];
    for (w, chunk) in out.chunks_mut(64).enumerate() {
        let mut m = [0; 64];
        for (word, plane) in m.iter_mut().zip(planes) {
            *word = plane.words[w];
        }
        transpose64(&mut m);
        chunk.copy_from_slice(&m[..chunk.len()]);
    }
    out
}

/// The lowest `out.len()` bit planes of 64 blocks: bit `i` of `out[j]` is bit `j` of `blocks[i]`.
/// Words of `out` beyond 64 become 0.
pub fn block_planes(cpu: Cpu, blocks: &[Block; 64], out: &mut [u64]) {
    let out = if out.len() > 64 {
        let (head, tail) = out.split_at_mut(64);
        tail.fill(0);
        head
    } else {
        out
    };
    lanes::block_planes(cpu, blocks, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::{Prg, Seed};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn planes_hold_the_bits(values in proptest::collection::vec(any::<u64>(), 0..200), width in 0usize..=64) {
            let p = planes(&values, width);
            prop_assert_eq!(p.len(), width);
            for (j, plane) in p.iter().enumerate() {
                for (i, v) in values.iter().enumerate() {
                    prop_assert_eq!(plane.get(i), v >> j & 1 == 1);
                }
            }
            let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            let restored = from_planes(&p);
            if width > 0 {
                prop_assert_eq!(restored, values.iter().map(|v| v & mask).collect::<Vec<_>>());
            }
        }

        #[test]
        fn block_planes_hold_the_low_bits(seed: u8, k in 0usize..70) {
            let mut blocks = [Block::ZERO; 64];
            Prg::from_seed(Seed([seed; 16])).fill_blocks(&mut blocks);
            for cpu in Cpu::available() {
                let mut out = vec![7; k];
                block_planes(cpu, &blocks, &mut out);
                for (j, word) in out.iter().enumerate() {
                    for (i, b) in blocks.iter().enumerate() {
                        let expected = if j < 64 { (b.0 >> j & 1) as u64 } else { 0 };
                        prop_assert_eq!(word >> i & 1, expected, "{:?} plane {} block {}", cpu, j, i);
                    }
                }
            }
        }
    }
}
