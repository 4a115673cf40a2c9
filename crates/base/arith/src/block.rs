//! 128-bit blocks: the unit of oblivious transfer, of AES and of GGM trees.

use std::fmt;
use std::ops::{BitAnd, BitXor, BitXorAssign};

use zeroize::DefaultIsZeroes;

/// 128 bits. Bit `i` of the block is bit `i` of the integer; its little-endian bytes are the AES
/// state in FIPS-197 order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Block(pub u128);

impl Block {
    /// The all-zero block.
    pub const ZERO: Self = Self(0);
    /// Only bit 0 set.
    pub const ONE: Self = Self(1);

    /// The block with these little-endian bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// Little-endian bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Bit 0, as 0 or 1.
    pub fn lsb(self) -> u64 {
        (self.0 & 1) as u64
    }

    /// All ones if `bit` is 1, all zeros if 0, without a branch; `bit` must be 0 or 1.
    pub fn mask(bit: u64) -> Self {
        Self((bit as u128).wrapping_neg())
    }

    /// The linear orthomorphism `(hi, lo) -> (hi ^ lo, hi)` of eprint 2019/074, section 7.
    pub fn sigma(self) -> Self {
        let hi = self.0 >> 64;
        Self((self.0 << 64) ^ (hi << 64) ^ hi)
    }
}

impl fmt::Debug for Block {
    /// Prints no content: blocks may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block(..)")
    }
}

impl BitXor for Block {
    type Output = Self;
    fn bitxor(self, rhs: Self) -> Self {
        Self(self.0 ^ rhs.0)
    }
}

impl BitAnd for Block {
    type Output = Self;
    fn bitand(self, rhs: Self) -> Self {
        Self(self.0 & rhs.0)
    }
}

impl BitXorAssign for Block {
    fn bitxor_assign(&mut self, rhs: Self) {
        self.0 ^= rhs.0;
    }
}

impl DefaultIsZeroes for Block {}

/// Little-endian bytes, 16 a block.
pub fn to_bytes(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().flat_map(|b| b.to_bytes()).collect()
}

/// Inverse of [`to_bytes`]. Ignores fewer than 16 bytes at the end.
pub fn from_bytes(bytes: &[u8]) -> Vec<Block> {
    let (chunks, _) = bytes.as_chunks::<16>();
    chunks.iter().map(|c| Block::from_bytes(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_sigma_is_an_orthomorphism_on_samples() {
        let b = Block(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(Block::from_bytes(b.to_bytes()), b);
        assert_eq!(from_bytes(&to_bytes(&[b, Block::ONE])), vec![b, Block::ONE]);
        assert_eq!(b.sigma().0, ((b.0 >> 64) ^ (b.0 & u64::MAX as u128)) << 64 | (b.0 >> 64));
        // sigma and sigma + identity are injective: both have full rank on the unit vectors.
        for f in [|b: Block| b.sigma(), |b: Block| b.sigma() ^ b] {
            let mut rows: Vec<u128> = (0..128).map(|i| f(Block(1 << i)).0).collect();
            let mut rank = 0;
            for bit in 0..128 {
                if let Some(p) = (rank..128).find(|&r| rows[r] >> bit & 1 == 1) {
                    rows.swap(rank, p);
                    for r in 0..128 {
                        if r != rank && rows[r] >> bit & 1 == 1 {
                            rows[r] ^= rows[rank];
                        }
                    }
                    rank += 1;
                }
            }
            assert_eq!(rank, 128);
        }
        assert_eq!(Block::mask(1).0, u128::MAX);
        assert_eq!(Block::mask(0).0, 0);
        assert_eq!(format!("{b:?}"), "Block(..)");
    }
}
