//! Rotations: Galois keys ([`core::Switching`](crate::core::Switching)).
//!
//! The key of an element g turns what decrypts under s into what decrypts under `sigma^-1(s)`, and the
//! automorphism comes last: two polynomials are permuted, not every digit. Digits of a ciphertext serve any
//! number of rotations (hoisting, [HS18]).

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, FRESH, FULL, ROW};
use crate::HeError;
use crate::core::{Raised, Room, SecretKey, SwitchingKey, permuted};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Ntt, RnsPoly};
use zeroize::Zeroizing;

const WHAT: &str = "Galois key";

/// Bytes of a serialized key: a seed, and for each of four digits N residues mod all five primes.
pub const GALOIS_KEY_BYTES: usize = PublicSeed::BYTES + FRESH * DEGREE * (50 + 50 + 30 + 30 + 50) / 8;

/// What is done to all slots of a ciphertext.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Turn {
    /// Both rows move to the left by so many slots (1 to N/2 - 1): slot i takes what slot i + k held.
    Left(usize),
    /// The rows change places.
    Swap,
}

impl Turn {
    /// The exponent g of the automorphism.
    fn element(self) -> u64 {
        let order = 2 * DEGREE as u64;
        match self {
            Self::Left(k) => (0..k % ROW).fold(1, |g, _| g * 5 % order),
            Self::Swap => order - 1,
        }
    }

    /// The exponent of the inverse automorphism.
    fn inverse(self) -> u64 {
        match self {
            Self::Left(k) => Self::Left(ROW - k % ROW).element(),
            Self::Swap => self.element(),
        }
    }
}

/// The key of one turn.
pub struct GaloisKey {
    galois: Galois,
    key: SwitchingKey,
}

/// A key for `turn` as bytes, [`GALOIS_KEY_BYTES`] of them: from s to `sigma^-1(s)`.
///
/// # Errors
/// None in practice.
pub fn galois_key(ctx: &Context, secret: &SecretKey, turn: Turn, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let inverse = Galois::new(DEGREE, turn.inverse())?;
    let mut out = Vec::with_capacity(GALOIS_KEY_BYTES);
    let turned = Zeroizing::new(permuted(ctx.basis(), secret.s(), &inverse));
    ctx.switching.put_key(ctx.ring(), [secret.s(), &turned], prg, &mut out);
    Ok(out)
}

impl GaloisKey {
    /// Reads a peer's key for `turn`.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn from_bytes(ctx: &Context, turn: Turn, bytes: &[u8]) -> Result<Self, HeError> {
        let key = ctx.switching.read_key(ctx.ring(), bytes, (GALOIS_KEY_BYTES, WHAT))?;
        Ok(Self { galois: Galois::new(DEGREE, turn.element())?, key })
    }

    /// Bytes a key occupies in memory.
    pub const MEMORY_BYTES: usize = FRESH * 2 * FULL * DEGREE * 8;
}

/// A polynomial's residues, one behind the other.
fn residues(poly: &RnsPoly<Ntt>) -> Vec<u64> {
    (0..poly.level()).flat_map(|k| poly.residue(k)).copied().collect()
}

/// The digits of `c`: once for all rotations of it.
#[must_use]
pub fn raise(ctx: &Context, c: &Ciphertext) -> Raised {
    let mut raised = Raised::default();
    ctx.switching.raise(ctx.basis(), &residues(&c.a), &mut raised);
    raised
}

/// The ciphertext with its slots turned; `raised` are its own digits.
#[must_use]
pub fn turned(ctx: &Context, c: &Ciphertext, raised: &Raised, key: &GaloisKey) -> Ciphertext {
    let (mut b, mut a) = (residues(&c.b), vec![0; FRESH * DEGREE]);
    ctx.switching.add(ctx.basis(), (raised, &key.key), [&mut b, &mut a], &mut Room::default());
    let [b, a] = [b, a].map(|half| permuted(ctx.basis(), &RnsPoly::new(ctx.basis(), half), &key.galois));
    Ciphertext { b, a }
}
