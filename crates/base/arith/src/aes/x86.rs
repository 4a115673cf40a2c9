//! x86-64 kernels: AES-NI, and VAES on vectors of 256 and 512 bits.

use std::arch::x86_64::*;

use crate::block::Block;
use crate::cpu::Cpu;

/// Round keys. A value exists only if AES-NI was detected.
#[derive(Clone)]
pub(super) struct Keys {
    round: [Block; 11],
    width: Width,
}

/// The widest kernels whose instructions were detected.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

/// Calls the function `$name` of the kernels for the width of `$keys`.
macro_rules! by_width {
    ($keys:ident, $name:ident($($argument:expr),*)) => {
        // SAFETY: a `Keys` exists only if AES-NI was detected, and has a larger width only if the
        // instructions of that width were detected.
        unsafe {
            match $keys.width {
                Width::One => narrow::$name(&$keys.round, $($argument),*),
                Width::Two => double::$name(&$keys.round, $($argument),*),
                Width::Four => wide::$name(&$keys.round, $($argument),*),
            }
        }
    };
}

impl Keys {
    /// `None` if `cpu` has no AES-NI.
    pub(super) fn expand(cpu: Cpu, key: Block) -> Option<Self> {
        if !cpu.has_aes() {
            return None;
        }
        let width = match (cpu.has_wide_blocks(), cpu.has_double_blocks()) {
            (true, _) => Width::Four,
            (false, true) => Width::Two,
            (false, false) => Width::One,
        };
        // SAFETY: AES-NI was detected.
        Some(Self { round: unsafe { expand(key) }, width })
    }

    pub(super) fn encrypt(&self, blocks: &mut [Block]) {
        by_width!(self, encrypt(blocks))
    }

    pub(super) fn stream(&self, counter: u64, out: &mut [u64]) -> usize {
        by_width!(self, stream(counter, out))
    }

    pub(super) fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        by_width!(self, hash(src, mask, dst))
    }

    pub(super) fn double(&self, left: &mut [Block], right: &mut [Block]) -> Block {
        by_width!(self, double(left, right))
    }

    pub(super) fn descend(&self, nodes: &mut [Block], corrections: &[Block], sides: &[u64], sums: &mut [Block]) {
        by_width!(self, descend(nodes, corrections, sides, sums))
    }

    pub(super) fn correct(&self, nodes: &mut [Block], deltas: &[Block], sides: &[u64], corrections: &mut [Block]) {
        by_width!(self, correct(nodes, deltas, sides, corrections))
    }

    pub(super) fn wipe(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.round);
    }
}

#[target_feature(enable = "aes,sse2")]
fn expand(key: Block) -> [Block; 11] {
    #[target_feature(enable = "aes,sse2")]
    fn next<const RCON: i32>(k: __m128i) -> __m128i {
        let g = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k, RCON), 0xff);
        let k = _mm_xor_si128(k, _mm_slli_si128(k, 4));
        let k = _mm_xor_si128(k, _mm_slli_si128(k, 8));
        _mm_xor_si128(k, g)
    }
    let k0 = set128(key);
    let k1 = next::<0x01>(k0);
    let k2 = next::<0x02>(k1);
    let k3 = next::<0x04>(k2);
    let k4 = next::<0x08>(k3);
    let k5 = next::<0x10>(k4);
    let k6 = next::<0x20>(k5);
    let k7 = next::<0x40>(k6);
    let k8 = next::<0x80>(k7);
    let k9 = next::<0x1b>(k8);
    let k10 = next::<0x36>(k9);
    [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10].map(unset128)
}

/// The kernels for one vector type. Eight vectors are in flight, which covers the latency of the
/// AES unit. A padded buffer holds the blocks that do not fill eight vectors.
macro_rules! kernels {
    ($name:ident, $features:literal, $vec:ty, $lanes:literal, $load:ident, $store:ident, $xor:ident, $and:ident,
     $swap:expr, $enc:ident, $last:ident, $set:ident, $low:expr, $shl:expr, $sra:expr, $andnot:ident, $side:ident,
     $add:ident) => {
        mod $name {
            use super::*;
            const CHUNK: usize = 8 * $lanes;

            #[inline]
            #[target_feature(enable = $features)]
            fn load(b: &[Block; CHUNK]) -> [$vec; 8] {
                // SAFETY: vector i reads blocks i*LANES .. (i+1)*LANES of the CHUNK = 8*LANES
                // blocks; unaligned load.
                std::array::from_fn(|i| unsafe { $load(b.as_ptr().add(i * $lanes).cast()) })
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn store(v: [$vec; 8], b: &mut [Block; CHUNK]) {
                for (i, x) in v.into_iter().enumerate() {
                    // SAFETY: as in `load`; unaligned store.
                    unsafe { $store(b.as_mut_ptr().add(i * $lanes).cast(), x) }
                }
            }

            /// Encrypts a chunk under the round keys `k`.
            #[inline]
            #[target_feature(enable = $features)]
            fn aes(k: &[$vec; 11], mut b: [$vec; 8]) -> [$vec; 8] {
                for x in &mut b {
                    *x = $xor(*x, k[0]);
                }
                for key in &k[1..10] {
                    for x in &mut b {
                        *x = $enc(*x, *key);
                    }
                }
                for x in &mut b {
                    *x = $last(*x, k[10]);
                }
                b
            }

            /// Hashes a chunk: `AES_k(sigma(b)) ^ sigma(b)`.
            #[inline]
            #[target_feature(enable = $features)]
            fn mmo(k: &[$vec; 11], b: [$vec; 8]) -> [$vec; 8] {
                let high = $set(Block((u64::MAX as u128) << 64));
                let s: [$vec; 8] = std::array::from_fn(|i| $xor($swap(b[i]), $and(b[i], high)));
                let e = aes(k, s);
                std::array::from_fn(|i| $xor(e[i], s[i]))
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn broadcast(keys: &[Block; 11]) -> [$vec; 11] {
                std::array::from_fn(|i| $set(keys[i]))
            }

            fn pad(b: &[Block]) -> [Block; CHUNK] {
                let mut out = [Block::ZERO; CHUNK];
                out[..b.len()].copy_from_slice(b);
                out
            }

            #[target_feature(enable = $features)]
            pub(super) fn encrypt(keys: &[Block; 11], blocks: &mut [Block]) {
                let k = broadcast(keys);
                let (chunks, tail) = blocks.as_chunks_mut::<CHUNK>();
                for c in chunks {
                    store(aes(&k, load(c)), c);
                }
                if !tail.is_empty() {
                    let mut c = pad(tail);
                    store(aes(&k, load(&c)), &mut c);
                    tail.copy_from_slice(&c[..tail.len()]);
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn stream(keys: &[Block; 11], counter: u64, out: &mut [u64]) -> usize {
                let k = broadcast(keys);
                let mut next = load(&std::array::from_fn(|i| Block(counter.wrapping_add(i as u64).into())));
                let step = $set(Block(CHUNK as u128));
                let chunks = out.as_chunks_mut::<{ 2 * CHUNK }>().0;
                for words in chunks.iter_mut() {
                    let bytes = aes(&k, next);
                    for (i, x) in bytes.into_iter().enumerate() {
                        // SAFETY: vector i writes LANES blocks, two words each, of 8 * LANES.
                        unsafe { $store(words.as_mut_ptr().add(2 * i * $lanes).cast(), x) }
                    }
                    for x in &mut next {
                        *x = $add(*x, step);
                    }
                }
                2 * CHUNK * chunks.len()
            }

            #[target_feature(enable = $features)]
            pub(super) fn hash(keys: &[Block; 11], src: &[Block], mask: Block, dst: &mut [Block]) {
                let n = src.len().min(dst.len());
                let k = broadcast(keys);
                let mask = $set(mask);
                let (src, src_rest) = src[..n].as_chunks::<CHUNK>();
                let (dst, dst_rest) = dst[..n].as_chunks_mut::<CHUNK>();
                for (s, d) in src.iter().zip(dst) {
                    let x = load(s);
                    store(mmo(&k, std::array::from_fn(|i| $xor(x[i], mask))), d);
                }
                if !src_rest.is_empty() {
                    let mut c = pad(src_rest);
                    let x = load(&c);
                    store(mmo(&k, std::array::from_fn(|i| $xor(x[i], mask))), &mut c);
                    dst_rest.copy_from_slice(&c[..dst_rest.len()]);
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn double(keys: &[Block; 11], left: &mut [Block], right: &mut [Block]) -> Block {
                let k = broadcast(keys);
                let n = left.len();
                let (left, left_rest) = left.as_chunks_mut::<CHUNK>();
                let (right, right_rest) = right[..n].as_chunks_mut::<CHUNK>();
                let mut sum = Block::ZERO;
                if !left.is_empty() {
                    let mut acc = [$set(Block::ZERO); 8];
                    for (l, r) in left.iter_mut().zip(right) {
                        let x = load(l);
                        let h = mmo(&k, x);
                        store(h, l);
                        store(std::array::from_fn(|i| $xor(h[i], x[i])), r);
                        acc = std::array::from_fn(|i| $xor(acc[i], h[i]));
                    }
                    let mut lanes = [Block::ZERO; CHUNK];
                    store(acc, &mut lanes);
                    sum = lanes.into_iter().fold(sum, |a, b| a ^ b);
                }
                if !left_rest.is_empty() {
                    let mut c = pad(left_rest);
                    store(mmo(&k, load(&c)), &mut c);
                    for i in 0..left_rest.len() {
                        right_rest[i] = c[i] ^ left_rest[i];
                        left_rest[i] = c[i];
                        sum ^= c[i];
                    }
                }
                sum
            }

            /// Ones in every block whose bit 0 is set.
            #[inline]
            #[target_feature(enable = $features)]
            fn marks(x: $vec) -> $vec {
                $sra($shl($low(x)))
            }

            /// The children on the chosen sides, and the sums with the right siblings of chosen
            /// left children.
            #[inline]
            #[target_feature(enable = $features)]
            fn down(k: &[$vec; 11], x: [$vec; 8], c: [$vec; 8], sum: [$vec; 8], sides: u64) -> [[$vec; 8]; 2] {
                let h = mmo(k, x);
                let left: [$vec; 8] = std::array::from_fn(|i| $xor(h[i], $and(marks(x[i]), c[i])));
                let right: [$vec; 8] = std::array::from_fn(|i| $xor(left[i], x[i]));
                let side: [$vec; 8] = std::array::from_fn(|i| $side(sides >> (i * $lanes)));
                let next = std::array::from_fn(|i| $xor(left[i], $and(side[i], x[i])));
                [next, std::array::from_fn(|i| $xor(sum[i], $andnot(side[i], right[i])))]
            }

            #[target_feature(enable = $features)]
            pub(super) fn descend(
                keys: &[Block; 11],
                nodes: &mut [Block],
                corrections: &[Block],
                sides: &[u64],
                sums: &mut [Block],
            ) {
                let k = broadcast(keys);
                let (nodes, nodes_rest) = nodes.as_chunks_mut::<CHUNK>();
                let (corrections, corrections_rest) = corrections.as_chunks::<CHUNK>();
                let (sums, sums_rest) = sums.as_chunks_mut::<CHUNK>();
                for (i, ((x, c), sum)) in nodes.iter_mut().zip(corrections).zip(sums.iter_mut()).enumerate() {
                    let [next, total] = down(&k, load(x), load(c), load(sum), window(sides, i * CHUNK));
                    store(next, x);
                    store(total, sum);
                }
                if !nodes_rest.is_empty() {
                    let (mut x, c, mut sum) = (pad(nodes_rest), pad(corrections_rest), pad(sums_rest));
                    let [next, total] = down(&k, load(&x), load(&c), load(&sum), window(sides, nodes.len() * CHUNK));
                    store(next, &mut x);
                    store(total, &mut sum);
                    nodes_rest.copy_from_slice(&x[..nodes_rest.len()]);
                    sums_rest.copy_from_slice(&sum[..sums_rest.len()]);
                }
            }

            /// The corrections of one level, and the first party's nodes on the next.
            #[inline]
            #[target_feature(enable = $features)]
            fn fit(k: &[$vec; 11], x: [$vec; 8], d: [$vec; 8], sides: u64) -> [[$vec; 8]; 2] {
                let h = mmo(k, x);
                let other = mmo(k, std::array::from_fn(|i| $xor(x[i], d[i])));
                let side: [$vec; 8] = std::array::from_fn(|i| $side(sides >> (i * $lanes)));
                let c: [$vec; 8] = std::array::from_fn(|i| $xor($xor(h[i], other[i]), $andnot(side[i], d[i])));
                let left: [$vec; 8] = std::array::from_fn(|i| $xor(h[i], $and(marks(x[i]), c[i])));
                [c, std::array::from_fn(|i| $xor(left[i], $and(side[i], x[i])))]
            }

            #[target_feature(enable = $features)]
            pub(super) fn correct(
                keys: &[Block; 11],
                nodes: &mut [Block],
                deltas: &[Block],
                sides: &[u64],
                corrections: &mut [Block],
            ) {
                let k = broadcast(keys);
                let (nodes, nodes_rest) = nodes.as_chunks_mut::<CHUNK>();
                let (deltas, deltas_rest) = deltas.as_chunks::<CHUNK>();
                let (corrections, corrections_rest) = corrections.as_chunks_mut::<CHUNK>();
                for (i, ((x, d), out)) in nodes.iter_mut().zip(deltas).zip(corrections).enumerate() {
                    let [c, next] = fit(&k, load(x), load(d), window(sides, i * CHUNK));
                    store(c, out);
                    store(next, x);
                }
                if !nodes_rest.is_empty() {
                    let (mut x, mut d) = (pad(nodes_rest), pad(deltas_rest));
                    let [c, next] = fit(&k, load(&x), load(&d), window(sides, nodes.len() * CHUNK));
                    store(next, &mut x);
                    store(c, &mut d);
                    nodes_rest.copy_from_slice(&x[..nodes_rest.len()]);
                    corrections_rest.copy_from_slice(&d[..corrections_rest.len()]);
                }
            }
        }
    };
}

/// Bits `bit_offset ..` of a bit vector; `bit_offset` is a multiple of the chunk's size, which divides 64.
#[inline]
fn window(words: &[u64], bit_offset: usize) -> u64 {
    words[bit_offset / 64] >> (bit_offset % 64)
}

#[inline]
fn set128(b: Block) -> __m128i {
    // SAFETY: both are plain 128-bit values; every bit pattern is valid for both.
    unsafe { std::mem::transmute::<u128, __m128i>(b.0) }
}

#[inline]
fn unset128(v: __m128i) -> Block {
    // SAFETY: as in `set128`.
    Block(unsafe { std::mem::transmute::<__m128i, u128>(v) })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn set512(b: Block) -> __m512i {
    _mm512_broadcast_i32x4(set128(b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn set256(b: Block) -> __m256i {
    _mm256_broadcastsi128_si256(set128(b))
}

/// Ones in block `i` if bit `i` is set, for bits 0 and 1.
#[inline]
#[target_feature(enable = "avx2")]
fn side256(bits: u64) -> __m256i {
    _mm256_set_m128i(side128(bits >> 1), side128(bits))
}

/// Ones in the block if bit 0 is set.
#[inline]
fn side128(bits: u64) -> __m128i {
    set128(Block::mask(bits & 1))
}

/// Ones in block `i` if bit `i` is set, for bits 0 to 3.
#[inline]
#[target_feature(enable = "avx512f")]
fn side512(bits: u64) -> __m512i {
    let apart = bits & 1 | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3;
    _mm512_maskz_set1_epi64((3 * apart) as u8, -1)
}

kernels!(
    narrow,
    "aes,sse2",
    __m128i,
    1,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_xor_si128,
    _mm_and_si128,
    _mm_shuffle_epi32::<0x4e>,
    _mm_aesenc_si128,
    _mm_aesenclast_si128,
    set128,
    _mm_shuffle_epi32::<0>,
    _mm_slli_epi32::<31>,
    _mm_srai_epi32::<31>,
    _mm_andnot_si128,
    side128,
    _mm_add_epi64
);
kernels!(
    double,
    "avx2,vaes,aes",
    __m256i,
    2,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_xor_si256,
    _mm256_and_si256,
    _mm256_shuffle_epi32::<0x4e>,
    _mm256_aesenc_epi128,
    _mm256_aesenclast_epi128,
    set256,
    _mm256_shuffle_epi32::<0>,
    _mm256_slli_epi32::<31>,
    _mm256_srai_epi32::<31>,
    _mm256_andnot_si256,
    side256,
    _mm256_add_epi64
);
kernels!(
    wide,
    "avx512f,avx512bw,avx512vl,vaes,aes",
    __m512i,
    4,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_xor_si512,
    _mm512_and_si512,
    _mm512_shuffle_epi32::<0x4e>,
    _mm512_aesenc_epi128,
    _mm512_aesenclast_epi128,
    set512,
    _mm512_shuffle_epi32::<0>,
    _mm512_slli_epi32::<31>,
    _mm512_srai_epi32::<31>,
    _mm512_andnot_si512,
    side512,
    _mm512_add_epi64
);
