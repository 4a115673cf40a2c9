//! The secret key and the public key of a ring.

use super::{Ring, bytes, sample};
use crate::HeError;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_arith::rns::{Ntt, RnsPoly};
use tacit_arith::sample as draw;
use zeroize::Zeroizing;

const WHAT: &str = "public key";

/// A uniform ternary secret at the highest level, in NTT form. Wiped on drop; has neither `Debug`
/// nor serialization.
pub struct SecretKey {
    s: Zeroizing<RnsPoly<Ntt>>,
}

/// `(b, a)` at one level with `b + a s = e`, in NTT form; `a` is the uniform polynomial of `seed`.
pub struct PublicKey {
    seed: PublicSeed,
    b: RnsPoly<Ntt>,
    a: RnsPoly<Ntt>,
}

impl SecretKey {
    /// Draws a key.
    #[must_use]
    pub fn generate(ring: &Ring, prg: &mut Prg) -> Self {
        let s = draw::ternary(prg, ring.degree());
        Self { s: Zeroizing::new(sample::small(ring, ring.basis().levels(), &s)) }
    }

    /// The secret polynomial, at the highest level.
    pub(crate) fn s(&self) -> &RnsPoly<Ntt> {
        &self.s
    }

    /// Draws a public key for this secret at `level`.
    ///
    /// # Panics
    /// If the ring has fewer than `level` primes.
    #[must_use]
    pub fn public_key(&self, ring: &Ring, level: usize, prg: &mut SplitPrg) -> PublicKey {
        let seed = prg.public_seed();
        let a = sample::uniform(ring, level, seed);
        // `a` is public, so the product is as secret as the key.
        let mut product = Zeroizing::new(a.clone());
        product.mul_assign(&self.s, ring.basis());
        let mut b = sample::small(ring, level, &draw::error(prg.secret(), ring.degree()));
        b.sub_assign(&product, ring.basis());
        PublicKey { seed, b, a }
    }
}

impl PublicKey {
    /// `(b, a)` in NTT form.
    pub(crate) fn parts(&self) -> (&RnsPoly<Ntt>, &RnsPoly<Ntt>) {
        (&self.b, &self.a)
    }

    /// Bytes of a serialized key at `level`: a 16-byte seed and the packed `b`.
    ///
    /// # Panics
    /// If the ring has fewer than `level` primes.
    pub fn bytes_len(ring: &Ring, level: usize) -> usize {
        PublicSeed::BYTES + bytes::polynomial_bytes(ring, level)
    }

    /// Serializes the key: [`PublicKey::bytes_len`] bytes.
    pub fn to_bytes(&self, ring: &Ring) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::bytes_len(ring, self.b.level()));
        out.extend_from_slice(&self.seed.to_bytes());
        bytes::put_polynomial(ring, &self.b, &mut out);
        out
    }

    /// Reads a peer's key at `level`.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    ///
    /// # Panics
    /// If the ring has fewer than `level` primes.
    pub fn from_bytes(ring: &Ring, level: usize, bytes: &[u8]) -> Result<Self, HeError> {
        let (seed, packed) = bytes::take_seed(bytes, Self::bytes_len(ring, level), WHAT)?;
        let b = bytes::take_polynomial(ring, level, packed, WHAT)?;
        Ok(Self { seed, b, a: sample::uniform(ring, level, seed) })
    }
}
