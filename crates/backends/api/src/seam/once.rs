//! The seed of one material, which cannot be used twice.

use tacit_arith::prg::Seed;
use zeroize::Zeroize;

use super::digest;

/// The seed of a client's masks in one material. Two inputs under one mask reveal their difference, so the
/// seed is passed by value, cannot be copied or stored, and is wiped on drop.
pub struct MaterialSeed(Seed);

impl MaterialSeed {
    /// Takes 16 bytes that serve one material alone, and wipes `bytes`.
    #[must_use]
    pub fn new(bytes: &mut [u8; 16]) -> Self {
        let seed = Self(Seed(*bytes));
        bytes.zeroize();
        seed
    }

    /// Derives the seed of the material that `name_parts` names from `master`, 32 secret bytes. The name must
    /// be unique among the materials of one master. Uses `BLAKE3` in its key derivation mode, cut to 16
    /// bytes.
    #[must_use]
    pub fn derive(master: &[u8; 32], name_parts: &[&[u8]]) -> Self {
        let parts: Vec<&[u8]> = std::iter::once(&master[..]).chain(name_parts.iter().copied()).collect();
        let mut key = digest("tacit 2026-11 seed of a client's material", &parts);
        let mut half = [0; 16];
        half.copy_from_slice(&key[..16]);
        key.zeroize();
        Self::new(&mut half)
    }

    /// The seed to make the material with.
    #[must_use]
    pub fn into_seed(self) -> Seed {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_depend_on_name_and_master() {
        let seed = |master: u8, name_parts: &[&[u8]]| MaterialSeed::derive(&[master; 32], name_parts).into_seed().0;
        assert_eq!(seed(1, &[b"ab", b"c"]), seed(1, &[b"ab", b"c"]));
        assert_ne!(seed(1, &[b"ab", b"c"]), seed(1, &[b"a", b"bc"]));
        assert_ne!(seed(1, &[b"ab", b"c"]), seed(2, &[b"ab", b"c"]));
        let mut bytes = [7; 16];
        assert_eq!(MaterialSeed::new(&mut bytes).into_seed().0, [7; 16]);
        assert_eq!(bytes, [0; 16]);
    }
}
