//! The fixed ring of the scheme: one key pair serves a whole network.

use crate::HeError;
use crate::core::{PublicKey, Ring, SecretKey, Switching};
use tacit_arith::pack::packed_len;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_arith::rns::{Lift, Rescale, RnsBasis};

/// Ring degree N.
pub const DEGREE: usize = 4096;
/// The modulus of answers: `2^50 - 2^14 + 1`, the largest prime below `2^50` that is 1 mod `2^14`.
pub const P1: u64 = 1_125_899_906_826_241;
/// The modulus that is dropped after the linear combination: `5 * 2^13 + 1`, the smallest prime
/// that is 1 mod 2N.
pub const P2: u64 = 40_961;

/// The modulus q of fresh ciphertexts.
pub(super) const Q: u128 = P1 as u128 * P2 as u128;
/// The special modulus of key switching: the largest prime below `2^43` that is 1 mod `2^14`.
///
/// `P1 P2 P3` has 108.3 bits; the standard of 2018 allows 109 at this degree, the estimates of 2024
/// allow 106: keys have 124 to 125 bits of security (`docs/parameters.md`).
pub const P3: u64 = 8_796_092_858_369;

/// Most expansion steps of a ciphertext: up to 32 parts.
pub const MAX_STEPS: u32 = 5;
/// Level of fresh ciphertexts: mod P1 and P2.
pub(super) const FRESH: usize = 2;
/// Level of switching keys: mod P1, P2 and P3.
pub(super) const FULL: usize = 3;
/// Level of answers and of the public key: mod P1.
pub(super) const ANSWER: usize = 1;

/// Transforms and constants for `q = P1 * P2` (65.3 bits), and P3 for switching keys. Immutable.
pub struct Context {
    ring: Ring,
    /// Maps residues mod P1 and P2 to the integer in `[0, q)`.
    pub(super) lift: Lift<FRESH>,
    /// `round(x / P2) mod P1`.
    pub(super) rescale: Rescale,
    pub(super) switching: Switching,
}

impl Context {
    /// Builds the tables (about a millisecond).
    ///
    /// # Errors
    /// None in practice; the moduli are constant.
    pub fn new() -> Result<Self, HeError> {
        let ring = Ring::new(DEGREE, &[P1, P2, P3])?;
        let (lift, rescale) = (ring.basis().lift(), ring.basis().rescale(FRESH, 0));
        Ok(Self { switching: Switching::new(&ring)?, ring, lift, rescale })
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn basis(&self) -> &RnsBasis {
        self.ring.basis()
    }

    /// Draws a secret key.
    #[must_use]
    pub fn secret_key(&self, prg: &mut Prg) -> SecretKey {
        SecretKey::generate(&self.ring, prg)
    }

    /// Draws a public key for `secret`.
    #[must_use]
    pub fn public_key(&self, secret: &SecretKey, prg: &mut SplitPrg) -> PublicKey {
        secret.public_key(&self.ring, ANSWER, prg)
    }

    /// Reads a peer's public key: [`PUBLIC_KEY_BYTES`](super::PUBLIC_KEY_BYTES).
    ///
    /// # Errors
    /// [`HeError::Length`] or [`HeError::Range`] for bad bytes.
    pub fn read_public_key(&self, bytes: &[u8]) -> Result<PublicKey, HeError> {
        PublicKey::from_bytes(&self.ring, ANSWER, bytes)
    }
}

/// Bytes of N packed coefficients.
pub(super) fn polynomial_bytes(bits: u32) -> usize {
    packed_len(DEGREE, bits).expect("a coefficient fits one word")
}
