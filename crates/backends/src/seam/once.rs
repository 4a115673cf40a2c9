//! A seed that one material is made from, once.

use tacit_arith::prg::Seed;
use zeroize::Zeroize;

use super::digest;

/// What all shares of one material follow from that a client chooses itself: its masks. Two materials of one
/// seed have the same masks, and whoever sees two inputs under one mask sees their difference. So it is used
/// by value, once, and can be neither copied nor written down; wiped on drop.
pub struct MaterialSeed(Seed);

impl MaterialSeed {
    /// Of 16 bytes that are used for one material and for nothing else. The bytes are wiped.
    #[must_use]
    pub fn new(bytes: &mut [u8; 16]) -> Self {
        let seed = Self(Seed(*bytes));
        bytes.zeroize();
        seed
    }

    /// What follows from `master`, 32 secret bytes, for the material that `of` names among all that are made
    /// from it. `BLAKE3` in its mode for deriving keys, cut to 16 bytes.
    #[must_use]
    pub fn derived(master: &[u8; 32], of: &[&[u8]]) -> Self {
        let parts: Vec<&[u8]> = std::iter::once(&master[..]).chain(of.iter().copied()).collect();
        let mut key = digest("tacit 2026-11 seed of a client's material", &parts);
        let mut half = [0; 16];
        half.copy_from_slice(&key[..16]);
        key.zeroize();
        Self::new(&mut half)
    }

    /// For whoever makes the material.
    #[must_use]
    pub fn into_seed(self) -> Seed {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_other_materials_and_masters_are_others() {
        let seed = |master: u8, of: &[&[u8]]| MaterialSeed::derived(&[master; 32], of).into_seed().0;
        assert_eq!(seed(1, &[b"ab", b"c"]), seed(1, &[b"ab", b"c"]));
        assert_ne!(seed(1, &[b"ab", b"c"]), seed(1, &[b"a", b"bc"]));
        assert_ne!(seed(1, &[b"ab", b"c"]), seed(2, &[b"ab", b"c"]));
        let mut bytes = [7; 16];
        assert_eq!(MaterialSeed::new(&mut bytes).into_seed().0, [7; 16]);
        assert_eq!(bytes, [0; 16]);
    }
}
