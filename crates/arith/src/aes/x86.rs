//! x86-64 kernels: AES-NI, and VAES on 512-bit vectors.

use std::arch::x86_64::*;

use crate::block::Block;
use crate::cpu::Cpu;

/// Round keys; the value exists only where AES-NI was detected.
#[derive(Clone)]
pub(super) struct Keys {
    round: [Block; 11],
    /// The AVX-512 set was detected.
    wide: bool,
}

impl Keys {
    /// `None` if `cpu` has no AES-NI.
    pub(super) fn expand(cpu: Cpu, key: Block) -> Option<Self> {
        if !cpu.has_aes() {
            return None;
        }
        // SAFETY: AES-NI was detected.
        Some(Self { round: unsafe { expand(key) }, wide: cpu.has_wide_blocks() })
    }

    pub(super) fn encrypt(&self, blocks: &mut [Block]) {
        // SAFETY: the value says that AES-NI, and where `wide` is set also that the AVX-512 set was detected.
        unsafe { if self.wide { wide::encrypt(&self.round, blocks) } else { narrow::encrypt(&self.round, blocks) } }
    }

    pub(super) fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        // SAFETY: as in `encrypt`.
        unsafe {
            if self.wide { wide::hash(&self.round, src, mask, dst) } else { narrow::hash(&self.round, src, mask, dst) }
        }
    }

    pub(super) fn double(&self, left: &mut [Block], right: &mut [Block]) -> Block {
        // SAFETY: as in `encrypt`.
        unsafe {
            if self.wide { wide::double(&self.round, left, right) } else { narrow::double(&self.round, left, right) }
        }
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

/// The kernels for one vector type; the two instances differ in width only. Eight vectors are in flight,
/// which covers the latency of the AES unit. What does not fill eight vectors goes through a padded buffer.
macro_rules! kernels {
    ($name:ident, $features:literal, $vec:ty, $lanes:literal, $load:ident, $store:ident, $xor:ident, $and:ident,
     $swap:expr, $enc:ident, $last:ident, $set:ident) => {
        mod $name {
            use super::*;
            const CHUNK: usize = 8 * $lanes;

            #[inline]
            #[target_feature(enable = $features)]
            fn load(b: &[Block; CHUNK]) -> [$vec; 8] {
                // SAFETY: vector i reads blocks i*LANES .. (i+1)*LANES of the CHUNK = 8*LANES blocks;
                // unaligned load.
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

            fn padded(b: &[Block]) -> [Block; CHUNK] {
                let mut out = [Block::ZERO; CHUNK];
                out[..b.len()].copy_from_slice(b);
                out
            }

            #[target_feature(enable = $features)]
            pub(super) fn encrypt(keys: &[Block; 11], blocks: &mut [Block]) {
                let k = broadcast(keys);
                let (whole, rest) = blocks.as_chunks_mut::<CHUNK>();
                for c in whole {
                    store(aes(&k, load(c)), c);
                }
                if !rest.is_empty() {
                    let mut c = padded(rest);
                    store(aes(&k, load(&c)), &mut c);
                    rest.copy_from_slice(&c[..rest.len()]);
                }
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
                    let mut c = padded(src_rest);
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
                    let mut c = padded(left_rest);
                    store(mmo(&k, load(&c)), &mut c);
                    for i in 0..left_rest.len() {
                        right_rest[i] = c[i] ^ left_rest[i];
                        left_rest[i] = c[i];
                        sum ^= c[i];
                    }
                }
                sum
            }
        }
    };
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
    set128
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
    set512
);
