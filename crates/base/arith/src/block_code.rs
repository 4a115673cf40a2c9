//! A random sparse linear code on blocks: every output is the sum of [`WEIGHT`] random entries of a
//! vector, as in primal LPN with a `WEIGHT`-local code (Ferret, eprint 2020/924 section 5).
//!
//! The matrix is public, so the access pattern may depend on it; the secret entries are only added.

use crate::aes::Aes128;
use crate::block::Block;
use crate::cpu::Cpu;

/// Entries per output.
pub const WEIGHT: usize = 10;
/// The number of outputs of a call is a multiple of this.
pub const GROUP: usize = 64;

/// Blocks of AES output that hold the `GROUP * WEIGHT` 32-bit indices of a group.
const INDEX_BLOCKS: usize = GROUP * WEIGHT / 4;

/// The matrix, stored as its seed.
pub struct LocalCode {
    aes: Aes128,
}

impl LocalCode {
    /// The matrix of a public seed.
    pub fn new(seed: Block) -> Self {
        Self { aes: Aes128::new(seed) }
    }

    /// Adds `(x * A)[GROUP * first_group + i]` to `out[i]`. Row `r` of `A` sums entries at `WEIGHT`
    /// independent uniform positions. Panics unless `x.len()` is a power of two below 2^28 and
    /// `out.len()` a multiple of [`GROUP`].
    pub fn add_rows(&self, x: &[Block], first_group: u64, out: &mut [Block]) {
        assert!(x.len().is_power_of_two() && x.len() < 1 << 28, "length {} of the vector", x.len());
        let mut indices = [Block::ZERO; INDEX_BLOCKS];
        for (g, out) in whole_groups(out).iter_mut().enumerate() {
            self.indices(first_group.wrapping_add(g as u64), &mut indices);
            add_group(x, &indices, out);
        }
    }

    /// [`LocalCode::add_rows`] for two vectors at once: one random memory access serves both. `x`
    /// holds the entries of both in alternation, best aligned to two blocks. Panics as
    /// [`LocalCode::add_rows`] for either vector, or if the numbers of outputs differ.
    pub fn add_row_pairs(&self, x: &[Block], first_group: u64, [left, right]: [&mut [Block]; 2]) {
        assert!(x.len().is_power_of_two() && (2..1 << 29).contains(&x.len()), "length {} of the vectors", x.len());
        assert_eq!(left.len(), right.len(), "both vectors have as many outputs");
        let mut indices = [Block::ZERO; INDEX_BLOCKS];
        for (g, out) in whole_groups(left).iter_mut().zip(whole_groups(right)).enumerate() {
            self.indices(first_group.wrapping_add(g as u64), &mut indices);
            add_group_pair(self.aes.cpu(), x, &indices, [out.0, out.1]);
        }
    }

    /// The positions of a group's rows, 32 bits each.
    fn indices(&self, group: u64, indices: &mut [Block; INDEX_BLOCKS]) {
        self.aes.counter(0, group.wrapping_mul(INDEX_BLOCKS as u64), indices);
    }
}

/// Splits outputs into groups. Panics if the last group is incomplete.
fn whole_groups(out: &mut [Block]) -> &mut [[Block; GROUP]] {
    let (groups, tail) = out.as_chunks_mut::<GROUP>();
    assert!(tail.is_empty(), "{} outputs beyond whole groups", tail.len());
    groups
}

/// Adds to each output of a group the [`WEIGHT`] entries of `x` that `indices` selects.
#[cfg(target_arch = "x86_64")]
fn add_group(x: &[Block], indices: &[Block; INDEX_BLOCKS], out: &mut [Block; GROUP]) {
    use std::arch::x86_64::*;
    let mask = x.len() - 1;
    let base = x.as_ptr().cast::<__m128i>();
    let indices = indices.as_ptr().cast::<u32>();
    for (i, o) in out.iter_mut().enumerate() {
        let o = std::ptr::from_mut(o).cast::<__m128i>();
        // SAFETY: SSE2 is part of x86-64. `o` is one valid block. Index i * WEIGHT + d < GROUP *
        // WEIGHT is inside `indices` read as 32-bit words. `mask` is x.len() - 1 with x.len() a
        // power of two, so the masked offset is inside `x`.
        unsafe {
            let mut acc = _mm_loadu_si128(o);
            for d in 0..WEIGHT {
                let index = *indices.add(i * WEIGHT + d) as usize & mask;
                acc = _mm_xor_si128(acc, _mm_loadu_si128(base.add(index)));
            }
            _mm_storeu_si128(o, acc);
        }
    }
}

/// As [`add_group`], for two vectors whose entries alternate in `x`.
#[cfg(target_arch = "x86_64")]
fn add_group_pair(cpu: Cpu, x: &[Block], indices: &[Block; INDEX_BLOCKS], out: [&mut [Block; GROUP]; 2]) {
    if cpu.has_fma() {
        // SAFETY: AVX2 was detected.
        unsafe { add_group_whole_pair(x, indices, out) }
    } else {
        add_group_half_pairs(x, indices, out);
    }
}

/// Reads a pair as one vector: half the instructions, so the processor looks twice as far ahead.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_group_whole_pair(x: &[Block], indices: &[Block; INDEX_BLOCKS], [left, right]: [&mut [Block; GROUP]; 2]) {
    use std::arch::x86_64::*;
    let mask = x.len() / 2 - 1;
    let base = x.as_ptr().cast::<__m256i>();
    let indices = indices.as_ptr().cast::<u32>();
    for (i, (left, right)) in left.iter_mut().zip(right).enumerate() {
        let [left, right] = [left, right].map(|o| std::ptr::from_mut(o).cast::<__m128i>());
        // SAFETY: as in `add_group`; an entry of `x` is two blocks, one vector.
        unsafe {
            let mut acc = _mm256_set_m128i(_mm_loadu_si128(right), _mm_loadu_si128(left));
            for d in 0..WEIGHT {
                let index = *indices.add(i * WEIGHT + d) as usize & mask;
                acc = _mm256_xor_si256(acc, _mm256_loadu_si256(base.add(index)));
            }
            _mm_storeu_si128(left, _mm256_castsi256_si128(acc));
            _mm_storeu_si128(right, _mm256_extracti128_si256::<1>(acc));
        }
    }
}

/// As [`add_group_whole_pair`] without AVX2.
#[cfg(target_arch = "x86_64")]
fn add_group_half_pairs(x: &[Block], indices: &[Block; INDEX_BLOCKS], [left, right]: [&mut [Block; GROUP]; 2]) {
    use std::arch::x86_64::*;
    let mask = x.len() / 2 - 1;
    let base = x.as_ptr().cast::<__m128i>();
    let indices = indices.as_ptr().cast::<u32>();
    for (i, (left, right)) in left.iter_mut().zip(right).enumerate() {
        let outputs = [left, right].map(|o| std::ptr::from_mut(o).cast::<__m128i>());
        // SAFETY: as in `add_group`; an entry of `x` is two blocks.
        unsafe {
            let mut acc = [_mm_loadu_si128(outputs[0]), _mm_loadu_si128(outputs[1])];
            for d in 0..WEIGHT {
                let index = 2 * (*indices.add(i * WEIGHT + d) as usize & mask);
                acc[0] = _mm_xor_si128(acc[0], _mm_loadu_si128(base.add(index)));
                acc[1] = _mm_xor_si128(acc[1], _mm_loadu_si128(base.add(index + 1)));
            }
            _mm_storeu_si128(outputs[0], acc[0]);
            _mm_storeu_si128(outputs[1], acc[1]);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn add_group_pair(_: Cpu, x: &[Block], indices: &[Block; INDEX_BLOCKS], out: [&mut [Block; GROUP]; 2]) {
    for (lane, out) in out.into_iter().enumerate() {
        portable(|index| x[2 * index + lane], x.len() / 2 - 1, indices, out);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn add_group(x: &[Block], indices: &[Block; INDEX_BLOCKS], out: &mut [Block; GROUP]) {
    portable(|index| x[index], x.len() - 1, indices, out)
}

/// `x` returns an entry; `mask` is the number of entries less one.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable(x: impl Fn(usize) -> Block, mask: usize, indices: &[Block; INDEX_BLOCKS], out: &mut [Block; GROUP]) {
    for (i, o) in out.iter_mut().enumerate() {
        for d in 0..WEIGHT {
            let position = i * WEIGHT + d;
            let index = (indices[position / 4].0 >> (32 * (position % 4))) as usize;
            *o ^= x(index & mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::{Prg, Seed};

    #[test]
    fn kernels_agree_and_rows_do_not_depend_on_the_cut() {
        let mut prg = Prg::from_seed(Seed([1; 16]));
        let code = LocalCode::new(Block(9));
        let mut x = vec![Block::ZERO; 1 << 9];
        prg.fill_blocks(&mut x);
        let mut start = vec![Block::ZERO; 5 * GROUP];
        prg.fill_blocks(&mut start);
        let mut uncut = start.clone();
        code.add_rows(&x, 3, &mut uncut);
        let mut cut = start.clone();
        code.add_rows(&x, 3, &mut cut[..2 * GROUP]);
        code.add_rows(&x, 5, &mut cut[2 * GROUP..]);
        assert_eq!(cut, uncut);
        for g in 0..5 {
            let mut indices = [Block::ZERO; INDEX_BLOCKS];
            code.aes.counter(0, (3 + g as u64) * INDEX_BLOCKS as u64, &mut indices);
            let out = start[g * GROUP..].first_chunk_mut::<GROUP>().unwrap();
            portable(|index| x[index], x.len() - 1, &indices, out);
        }
        assert_eq!(start, uncut);
    }

    #[test]
    fn pairs_are_two_vectors_with_the_same_rows() {
        let mut prg = Prg::from_seed(Seed([2; 16]));
        let code = LocalCode::new(Block(7));
        let mut draw = |n: usize| {
            let mut blocks = vec![Block::ZERO; n];
            prg.fill_blocks(&mut blocks);
            blocks
        };
        let vectors = [draw(1 << 8), draw(1 << 8)];
        let pairs: Vec<Block> = vectors[0].iter().zip(&vectors[1]).flat_map(|(a, b)| [*a, *b]).collect();
        let start = [draw(3 * GROUP), draw(3 * GROUP)];
        let mut separate = start.clone();
        vectors.iter().zip(&mut separate).for_each(|(x, out)| code.add_rows(x, 11, out));
        for cpu in Cpu::available() {
            let code = LocalCode { aes: Aes128::with_cpu(cpu, Block(7)) };
            let mut paired = start.clone();
            let [left, right] = &mut paired;
            code.add_row_pairs(&pairs, 11, [left, right]);
            assert!(paired == separate, "{cpu:?}");
        }
    }
}
