//! Rotations and Galois keys ([`core::Switching`](crate::core::Switching)).
//!
//! The key of an element g switches a ciphertext under s to one under `sigma^-1(s)`; the
//! automorphism sigma is applied afterwards, so two polynomials are permuted instead of every
//! digit. The digits serve any number of rotations (hoisting, [HS18]).

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, FRESH, FULL, ROW};
use crate::HeError;
use crate::core::{Raised, SecretKey, SwitchScratch, SwitchingKey, permute};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Ntt, RnsPoly};
use zeroize::Zeroizing;

const WHAT: &str = "Galois key";

/// Bytes of a serialized key: a seed, and for each of four digits N residues mod all five primes.
pub const GALOIS_KEY_BYTES: usize = PublicSeed::BYTES + FRESH * DEGREE * (50 + 50 + 30 + 30 + 50) / 8;

/// A permutation of the slots of a ciphertext.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Turn {
    /// Rotates both rows to the left by this many slots (1 to N/2 - 1): slot i receives the value
    /// of slot i + k.
    Left(usize),
    /// Exchanges the rows.
    Swap,
}

impl Turn {
    fn element(self) -> u64 {
        let order = 2 * DEGREE as u64;
        match self {
            Self::Left(k) => (0..k % ROW).fold(1, |g, _| g * 5 % order),
            Self::Swap => order - 1,
        }
    }

    fn inverse(self) -> u64 {
        match self {
            Self::Left(k) => Self::Left(ROW - k % ROW).element(),
            Self::Swap => self.element(),
        }
    }
}

/// A key for one turn.
pub struct GaloisKey {
    galois: Galois,
    key: SwitchingKey,
}

/// Serializes a new key for `turn`, from s to `sigma^-1(s)`: [`GALOIS_KEY_BYTES`].
///
/// # Errors
/// None in practice; every turn has an automorphism.
pub fn galois_key(ctx: &Context, secret: &SecretKey, turn: Turn, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let inverse = Galois::new(DEGREE, turn.inverse())?;
    let mut out = Vec::with_capacity(GALOIS_KEY_BYTES);
    let turned = Zeroizing::new(permute(ctx.basis(), secret.s(), &inverse));
    ctx.switching.put_key(ctx.ring(), secret.s(), &turned, prg, &mut out);
    Ok(out)
}

impl GaloisKey {
    /// Reads a peer's key for `turn`.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    pub fn from_bytes(ctx: &Context, turn: Turn, bytes: &[u8]) -> Result<Self, HeError> {
        let key = ctx.switching.read_key(ctx.ring(), bytes, GALOIS_KEY_BYTES, WHAT)?;
        Ok(Self { galois: Galois::new(DEGREE, turn.element())?, key })
    }

    /// Bytes in memory.
    pub const MEMORY_BYTES: usize = FRESH * 2 * FULL * DEGREE * 8;
}

fn residues(poly: &RnsPoly<Ntt>) -> Vec<u64> {
    (0..poly.level()).flat_map(|k| poly.residue(k)).copied().collect()
}

/// Computes the digits of `c`, for all its rotations.
pub fn raise(ctx: &Context, c: &Ciphertext) -> Raised {
    let mut raised = Raised::default();
    ctx.switching.raise(ctx.basis(), &residues(&c.a), &mut raised);
    raised
}

/// Returns `c` with its slots turned; `raised` holds the digits of `c`.
#[must_use]
pub fn turn_slots(ctx: &Context, c: &Ciphertext, raised: &Raised, key: &GaloisKey) -> Ciphertext {
    let (mut b, mut a) = (residues(&c.b), vec![0; FRESH * DEGREE]);
    ctx.switching.switch_and_add(ctx.basis(), raised, &key.key, [&mut b, &mut a], &mut SwitchScratch::default());
    let [b, a] = [b, a].map(|half| permute(ctx.basis(), &RnsPoly::new(ctx.basis(), half), &key.galois));
    Ciphertext { b, a }
}
