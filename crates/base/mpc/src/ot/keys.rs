//! The public AES keys under which one direction hashes.
//!
//! An attacker can compare the hash of a guess under a key with every value hashed under that key.
//! With T values of `H(x ^ delta)` under one key, every AES call tries T values of `delta`. So no
//! key is used for more than one tree, or for more than [`PART_GROUPS`] groups of output
//! strings, in any connection. All keys follow from their position and from a public seed that the
//! OT sender draws at every bootstrap (for each new `delta`). Figures: `docs/parameters.md`,
//! section "OT hash".

use crate::hash::hash;
use tacit_arith::aes::Aes128;
use tacit_arith::block::Block;

/// Groups of output strings that share a key.
pub(super) const PART_GROUPS: usize = 8;

/// The hash keys that follow from a public seed.
pub(super) struct HashKeys(Aes128);

impl HashKeys {
    /// Derives the keys from the public seed of a bootstrap. The code takes its randomness from the
    /// seed itself, the keys from its SHA-256.
    pub(super) fn new(seed: Block) -> Self {
        Self(Aes128::new(hash(&[b"tacit OT hash keys 1", &seed.to_bytes()])))
    }

    pub(super) fn tree(&self, extension: u32, tree: usize) -> Block {
        self.derive_key(0, extension, tree, 0)
    }

    /// Key of the strings made from part `part` (of [`PART_GROUPS`] groups) of a tree's leaves.
    pub(super) fn strings(&self, extension: u32, tree: usize, part: usize) -> Block {
        self.derive_key(1, extension, tree, part)
    }

    /// The encrypted position: a permutation, so no two positions of a seed share a key.
    fn derive_key(&self, purpose: u128, extension: u32, tree: usize, part: usize) -> Block {
        let mut key = [Block(purpose << 96 | u128::from(extension) << 64 | (tree as u128) << 32 | part as u128)];
        self.0.encrypt(&mut key);
        key[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::output::GROUP;
    use crate::ot::params::{HUGE, LARGE, MEDIUM, SMALL};
    use std::collections::HashSet;

    #[test]
    fn every_place_and_every_seed_has_its_own_key() {
        let mut seen = HashSet::new();
        for seed in 0..3 {
            let keys = HashKeys::new(Block(seed));
            for extension in 0..3 {
                for tree in [0, 1, 2, HUGE.trees - 1, HUGE.lanes * HUGE.trees - 1] {
                    assert!(seen.insert(keys.tree(extension, tree).0));
                    for part in 0..HUGE.leaves() / GROUP / PART_GROUPS {
                        assert!(seen.insert(keys.strings(extension, tree, part).0));
                    }
                }
            }
        }
    }

    /// The figures of `docs/parameters.md`: values hashed under one key in the view of an attacker
    /// who knows everything except `delta`.
    #[test]
    fn targets_under_one_key_are_as_documented() {
        // Each level of a tree hashes one unknown node, except the first, which is not hashed.
        assert_eq!([SMALL, MEDIUM, LARGE, HUGE].map(|p| p.corrections() / p.lanes), [6, 8, 9, 10]);
        assert_eq!(PART_GROUPS * GROUP, 512);
    }
}
