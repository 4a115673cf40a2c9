//! The MAC key of bits. `Delta` has 127 random bits, and bit 0 is 1. Two blocks that add up to
//! `b * Delta` are shares of the tag of `b`, and their least significant bits are shares of `b`. The
//! dealer draws one key for each material. **Neither party may ever hold it**, at any
//! level of security: with it and its own comparison key a party could compute the other's key.

use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The MAC key, at the dealer only. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Delta(Block);

/// A party's share of the MAC key. The two shares add up to it. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct DeltaShare(Block);

impl Delta {
    /// Draws a fresh key, from randomness of the dealer that is independent of the parties' seeds.
    pub fn draw(dealer: &mut Prg) -> Self {
        Self(Block(dealer.next_block().0 | 1))
    }

    /// Draws the seeded party's share from `seeded` and returns the other party's, which the dealer sends
    /// (16 bytes).
    pub fn split(&self, seeded: &mut Prg) -> DeltaShare {
        DeltaShare(seeded.next_block() ^ self.0)
    }

    /// The other party's tags of bits, 16 bytes each. With the blocks that the seeded party draws
    /// they add up to `b * Delta`. Each further call draws new blocks.
    pub fn deal_bits(&self, bits: &Bits, seeded: &mut Prg) -> Vec<Block> {
        let mut tags = vec![Block::ZERO; bits.len()];
        seeded.fill_blocks(&mut tags);
        for (i, tag) in tags.iter_mut().enumerate() {
            *tag ^= self.times(bits.words()[i / 64] >> (i % 64) & 1);
        }
        tags
    }

    /// `bit * Delta`, without a branch.
    pub(super) fn times(&self, bit: u64) -> Block {
        self.0 & Block::mask(bit)
    }

    pub(super) fn block(&self) -> Block {
        self.0
    }

    #[cfg(test)]
    pub(super) fn fixed(block: u128) -> Self {
        Self(Block(block | 1))
    }
}

impl DeltaShare {
    /// The seeded party's share: it is uniform.
    pub fn draw(seeded: &mut Prg) -> Self {
        Self(seeded.next_block())
    }

    /// The share that the dealer sent.
    pub fn from_block(block: Block) -> Self {
        Self(block)
    }

    /// The share's bytes, for sending to its owner.
    pub fn to_block(&self) -> Block {
        self.0
    }
}

/// A party's shares of bits: the least significant bits of its tags.
pub fn bits(tags: &[Block]) -> Bits {
    let mut words = vec![0; tags.len().div_ceil(64)];
    for (word, tags) in words.iter_mut().zip(tags.chunks(64)) {
        *word = tags.iter().rev().fold(0, |word, tag| word << 1 | tag.lsb());
    }
    Bits::from_words(tags.len(), words).expect("a word for every 64 tags")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::prg;

    #[test]
    fn shares_add_up_and_lowest_bits_are_shares_of_the_bits() {
        for n in [0, 1, 63, 64, 65, 200] {
            let delta = Delta::draw(&mut prg(n as u8));
            assert_eq!(delta.block().lsb(), 1);
            let peer_share = delta.split(&mut prg(7));
            assert!(DeltaShare::draw(&mut prg(7)).to_block() ^ peer_share.to_block() == delta.block());
            let values = Bits::random(&mut prg(3), n);
            let peer_tags = delta.deal_bits(&values, &mut prg(9));
            let mut own_tags = vec![Block::ZERO; n];
            prg(9).fill_blocks(&mut own_tags);
            assert!(bits(&own_tags).xor(&bits(&peer_tags)) == values);
            for (i, bit) in values.iter().enumerate() {
                assert!(own_tags[i] ^ peer_tags[i] == delta.times(u64::from(bit)));
            }
        }
    }
}
