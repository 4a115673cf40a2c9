//! Fresh ciphertexts, sent by the client to the server.

use super::context::{Context, DEGREE, FRESH, FRESH_BYTES};
use super::plain::Plain;
use crate::HeError;
use crate::core::{SecretKey, put_polynomial, small, take_polynomial, take_seed, uniform};
use tacit_arith::prg::SplitPrg;
use tacit_arith::rns::{Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "ciphertext";

/// The client's symmetric encryption.
pub struct Encryptor<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
}

/// A ciphertext `(b, a)` in the NTT domain.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) b: RnsPoly<Ntt>,
    pub(super) a: RnsPoly<Ntt>,
}

impl<'a> Encryptor<'a> {
    /// Encryption under `key`.
    pub fn new(ctx: &'a Context, key: &'a SecretKey) -> Self {
        Self { ctx, key }
    }

    /// Encrypts N slots (`[2, N / 2]`, reduced mod p) to the seed and the packed `b`:
    /// [`FRESH_BYTES`].
    ///
    /// # Panics
    /// If there are not N values.
    #[must_use]
    pub fn encrypt(&self, plain: &Plain, slots: &[u64], prg: &mut SplitPrg) -> Vec<u8> {
        let (ring, basis) = (self.ctx.ring(), self.ctx.basis());
        let message = Zeroizing::new(plain.encode(self.ctx, slots));
        let seed = prg.public_seed();
        let mut product = Zeroizing::new(uniform(ring, FRESH, seed));
        product.mul_assign(self.key.s(), basis);
        let mut b = small(ring, FRESH, &sample::error(prg.secret(), DEGREE));
        b.add_assign(&Zeroizing::new(plain.scaled(self.ctx, &message)), basis);
        b.sub_assign(&product, basis);
        let mut out = Vec::with_capacity(FRESH_BYTES);
        out.extend_from_slice(&seed.to_bytes());
        put_polynomial(ring, &b, &mut out);
        out
    }
}

impl Ciphertext {
    /// Reads a peer's ciphertext.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    pub fn from_bytes(ctx: &Context, bytes: &[u8]) -> Result<Self, HeError> {
        let (seed, packed) = take_seed(bytes, FRESH_BYTES, WHAT)?;
        Ok(Self { b: take_polynomial(ctx.ring(), FRESH, packed, WHAT)?, a: uniform(ctx.ring(), FRESH, seed) })
    }

    /// Bytes in memory.
    pub const MEMORY_BYTES: usize = 2 * FRESH * DEGREE * 8;
}
