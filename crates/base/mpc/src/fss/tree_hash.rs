//! The hash of all trees, under many keys.
//!
//! A party that knows a node `x` and sees a value masked with `H_k(x ^ Delta)` can compare each AES
//! call under `k` with **every** such mask under `k`. So no key serves more than one level of one
//! group of [`GROUP`] trees, in any material. Keys follow from the position and from a public seed
//! that the dealer draws afresh for each material. Mixing only a counter into the input would not
//! suffice: the attacker knows the counter, removes it, and has one list of guesses for all
//! positions.

use tacit_arith::aes::{Aes128, CcrHash};
use tacit_arith::block::Block;
use tacit_arith::prg::PublicSeed;

use super::group::GROUP;
use crate::hash::hash;

/// Position of trees in a material.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The batch, such as a layer of the network. No two batches under one seed share it.
    pub batch: u32,
    /// Number of the batch's first group; the groups of one call follow each other. A batch that is
    /// split into several calls is split at multiples of [`GROUP`], and the numbers continue.
    pub group: u32,
}

impl Place {
    /// The place `groups` groups further on.
    pub(super) fn after(self, groups: usize) -> Self {
        let group = u32::try_from(groups).ok().and_then(|more| self.group.checked_add(more));
        Self { group: group.expect("a batch has fewer than 2^40 trees"), ..self }
    }
}

/// Counted work, for comparison with the formulas.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work {
    /// AES keys made.
    pub keys: u64,
    /// Blocks hashed under these keys.
    pub hashes: u64,
}

impl Work {
    /// The work of `trees` trees in whole groups.
    pub(super) fn new(trees: usize, keys_per_group: usize, hashes_per_tree: usize) -> Self {
        Self { keys: (trees.div_ceil(GROUP) * keys_per_group) as u64, hashes: (trees * hashes_per_tree) as u64 }
    }
}

/// Purpose of a tree; no two purposes share a key.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Authenticated = 0,
    Dpf = 1,
    Leaf = 2,
}

/// The hash under all keys of one public seed, with a count of its work.
pub struct TreeHash {
    keys: Aes128,
    work: Work,
}

impl TreeHash {
    /// Derives the keys from the public seed of a material. The dealer must draw the seed after
    /// fixing all else about the material.
    pub fn new(seed: PublicSeed) -> Self {
        let key = hash(&[b"tacit fss hash keys 1", &seed.to_bytes()]);
        Self { keys: Aes128::new(key), work: Work::default() }
    }

    /// The work so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The hash of a level of a group. The key is the encrypted position: no two positions share a
    /// key.
    pub(super) fn at(&mut self, purpose: Purpose, place: Place, level: u32) -> CcrHash {
        let position = u128::from(place.batch) << 64 | u128::from(place.group) << 32 | u128::from(level);
        let mut key = [Block((purpose as u128) << 96 | position)];
        self.keys.encrypt(&mut key);
        self.work.keys += 1;
        CcrHash::new(key[0])
    }

    /// Counts blocks that were hashed under a key of [`Self::at`].
    pub(super) fn count(&mut self, hashes: usize) {
        self.work.hashes += hashes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_place_of_every_seed_has_its_own_function() {
        let mut seen = HashSet::new();
        for seed in 0..2 {
            let mut hash = TreeHash::new(PublicSeed::from_bytes([seed; 16]));
            for purpose in [Purpose::Authenticated, Purpose::Dpf, Purpose::Leaf] {
                for (batch, group, level) in
                    [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (u32::MAX, 0, 0), (0, u32::MAX, 0)]
                {
                    let mut out = [Block::ZERO];
                    hash.at(purpose, Place { batch, group }, level).hash(&[Block::ONE], Block::ZERO, &mut out);
                    assert!(seen.insert(out[0].0));
                }
            }
            assert_eq!(hash.work(), Work { keys: 18, hashes: 0 });
        }
    }
}
