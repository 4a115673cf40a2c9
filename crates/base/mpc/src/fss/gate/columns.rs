//! The client's constants, which hide what it sends in a gate or a widening, and the server's
//! material for them.
//!
//! A constant is a word with a tag. Both are longer than the values of the gate, as
//! [`mac::ring`](super::super::mac::ring) needs. The client draws its words from its seed; the
//! server's words are dealt.

use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use zeroize::Zeroizing;

use super::super::mac::ring::{Key, Ring, Share};
use super::spec::{Checked, word_bytes};
use crate::low_mask;

/// The client's constants of one kind, with their tags.
pub(super) struct Constants {
    blocks: Zeroizing<Vec<Block>>,
    ring: Ring,
}

impl Constants {
    pub(super) fn draw(prg: &mut Prg, ring: Ring, n: usize) -> Self {
        let mut blocks = Zeroizing::new(vec![Block::ZERO; 2 * n]);
        prg.fill_blocks(&mut blocks);
        Self { blocks, ring }
    }

    pub(super) fn get(&self, i: usize) -> Share {
        let mask = self.ring.mask();
        Share { value: self.blocks[2 * i].0 & mask, tag: self.blocks[2 * i + 1].0 & mask }
    }
}

/// Appends the low bytes of a word.
fn put(word: u128, bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_le_bytes()[..bytes]);
}

/// Writes the server's material for constants. If only the client is checked, each constant has the
/// difference to the needed word (`width` bits), and the key `b` of the tag. Otherwise it has the
/// server's shares of the word and of its tag.
pub(super) fn write(
    constants: &Constants,
    key: &Key,
    checked: Checked,
    needed: impl Fn(usize) -> u64,
    out: &mut Vec<u8>,
) {
    let ring = constants.ring;
    let width = ring.width();
    for i in 0..constants.blocks.len() / 2 {
        let constant = constants.get(i);
        match checked {
            Checked::Client => {
                let share = needed(i).wrapping_sub(constant.value as u64) & low_mask(width);
                put(u128::from(share), width.div_ceil(8) as usize, out);
                put(key.key_of(ring, &constant), word_bytes(ring), out);
            }
            Checked::Both => {
                let share = key.other_share(ring, u128::from(needed(i) & low_mask(width)), &constant);
                put(share.value, word_bytes(ring), out);
                put(share.tag, word_bytes(ring), out);
            }
        }
    }
}

/// A party's shares of constants of one kind, if both parties are checked.
pub(super) enum Shared<'a> {
    /// The client's shares.
    Drawn(Constants),
    /// The server's shares.
    Dealt(&'a [u8], Ring),
}

impl<'a> Shared<'a> {
    /// Splits the shares of `n` constants off `unread`, which has at least as many.
    pub(super) fn take(unread: &mut &'a [u8], ring: Ring, n: usize) -> Self {
        let (bytes, later) = unread.split_at(n * 2 * word_bytes(ring));
        *unread = later;
        Self::Dealt(bytes, ring)
    }

    pub(super) fn get(&self, i: usize) -> Share {
        match self {
            Self::Drawn(constants) => constants.get(i),
            Self::Dealt(bytes, ring) => {
                let word_len = word_bytes(*ring);
                let (value, tag) = bytes[2 * i * word_len..][..2 * word_len].split_at(word_len);
                Share { value: word(value) & ring.mask(), tag: word(tag) & ring.mask() }
            }
        }
    }
}

/// The server's words for constants of one kind.
pub(super) struct ServerConstants<'a> {
    bytes: &'a [u8],
    item_bytes: usize,
    share: usize,
    ring: Ring,
}

/// Reads a word of up to 16 bytes, lowest byte first.
fn word(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(word)
}

impl<'a> ServerConstants<'a> {
    /// Splits the words for `n` constants off `unread`, which has at least as many.
    pub(super) fn take(unread: &mut &'a [u8], ring: Ring, n: usize) -> Self {
        let share = ring.width().div_ceil(8) as usize;
        let item_bytes = share + word_bytes(ring);
        let (bytes, later) = unread.split_at(n * item_bytes);
        *unread = later;
        Self { bytes, item_bytes, share, ring }
    }

    /// The share, and the key of the client's tag.
    pub(super) fn get(&self, i: usize) -> (u64, u128) {
        let (share, key) = self.bytes[i * self.item_bytes..][..self.item_bytes].split_at(self.share);
        (word(share) as u64, word(key) & self.ring.mask())
    }
}
