//! Writes one block at a secret position: touches every block at public addresses.

use crate::block::Block;
use crate::cpu::Cpu;

/// Sets `nodes[i] = value` for `i == position`, and `nodes[i] &= keep` for all others, in time
/// independent of `position`. Writes `value` nowhere if the position is outside the slice.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn replace(cpu: Cpu, nodes: &mut [Block], position: u64, value: Block, keep: Block) {
    #[cfg(target_arch = "x86_64")]
    if cpu.has_wide_blocks() {
        // SAFETY: the AVX-512 set was detected.
        return unsafe { wide(nodes, position, value, keep) };
    }
    portable(nodes, 0, position, value, keep)
}

/// `first` is the position of `nodes[0]`.
fn portable(nodes: &mut [Block], first: u64, position: u64, value: Block, keep: Block) {
    for (i, b) in nodes.iter_mut().enumerate() {
        let apart = (first + i as u64) ^ position;
        let equal = 1 ^ ((apart | apart.wrapping_neg()) >> 63);
        let mask = Block::mask(std::hint::black_box(equal));
        *b = (*b & keep) ^ ((*b & keep ^ value) & mask);
    }
}

/// Four blocks in a vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn wide(nodes: &mut [Block], position: u64, value: Block, keep: Block) {
    use std::arch::x86_64::*;
    let pair = |b: Block| _mm512_broadcast_i32x4(_mm_set_epi64x((b.0 >> 64) as i64, b.0 as i64));
    let (value, keep, position_v) = (pair(value), pair(keep), _mm512_set1_epi64(position as i64));
    let mut index = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
    let (fours, tail) = nodes.as_chunks_mut::<4>();
    let processed = 4 * fours.len() as u64;
    for four in fours {
        let hit = _mm512_cmpeq_epi64_mask(index, position_v);
        // SAFETY: `four` is 64 valid bytes; unaligned load and store.
        unsafe {
            let x = _mm512_and_si512(_mm512_loadu_si512(four.as_ptr().cast()), keep);
            _mm512_storeu_si512(four.as_mut_ptr().cast(), _mm512_mask_mov_epi64(x, hit, value));
        }
        index = _mm512_add_epi64(index, _mm512_set1_epi64(4));
    }
    let unpair = |v: __m512i| {
        let low = _mm512_castsi512_si128(v);
        Block((_mm_extract_epi64::<1>(low) as u64 as u128) << 64 | _mm_cvtsi128_si64(low) as u64 as u128)
    };
    portable(tail, processed, position, unpair(value), unpair(keep));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn replaces_one_and_masks_the_rest(nodes in proptest::collection::vec(any::<u128>(), 0..40), position in 0u64..45, value: u128, keep: u128) {
            for cpu in Cpu::available() {
                let mut actual: Vec<Block> = nodes.iter().copied().map(Block).collect();
                replace(cpu, &mut actual, position, Block(value), Block(keep));
                for (i, b) in actual.iter().enumerate() {
                    prop_assert_eq!(b.0, if i as u64 == position { value } else { nodes[i] & keep }, "{:?}", cpu);
                }
            }
        }
    }
}
