//! The client's key pair.

use super::context::{Context, DEGREE, P1};
use crate::HeError;
use tacit_arith::pack;
use tacit_arith::poly::{CoeffPoly, NttPoly};
use tacit_arith::prg::{Prg, Seed};
use tacit_arith::sample;
use zeroize::Zeroizing;

/// Bytes of a serialized public key: a 16-byte seed and N coefficients of 50 bits.
pub const PUBLIC_KEY_BYTES: usize = 16 + DEGREE * 50 / 8;

const WHAT: &str = "public key";

/// Ternary secret, kept transformed. Wiped on drop; neither printable nor serializable.
pub struct SecretKey {
    pub(super) s: [Zeroizing<NttPoly>; 2],
}

/// `(b, a)` mod P1 with `b + a s = e`, in the NTT domain.
pub struct PublicKey {
    seed: [u8; 16],
    pub(super) b: NttPoly,
    pub(super) a: NttPoly,
}

/// The uniform polynomial of `seed` for transform `i`, sampled in the NTT domain.
pub(super) fn expand(ctx: &Context, i: usize, prg: &mut Prg) -> NttPoly {
    let modulus = ctx.ntt()[i].modulus();
    let mut values = vec![0; DEGREE];
    sample::uniform(prg, modulus, &mut values);
    NttPoly::new(values, modulus)
}

/// Small signed coefficients, transformed for modulus `i`.
pub(super) fn small(ctx: &Context, i: usize, values: &[i64]) -> NttPoly {
    let ntt = &ctx.ntt()[i];
    CoeffPoly::from_signed(values, ntt.modulus()).into_ntt(ntt)
}

impl SecretKey {
    /// Draws a key.
    #[must_use]
    pub fn generate(ctx: &Context, prg: &mut Prg) -> Self {
        let s = sample::ternary(prg, DEGREE);
        Self { s: [0, 1].map(|i| Zeroizing::new(small(ctx, i, &s))) }
    }

    /// A fresh public key for this secret.
    #[must_use]
    pub fn public_key(&self, ctx: &Context, prg: &mut Prg) -> PublicKey {
        let (ntt, m) = (&ctx.ntt()[0], ctx.ntt()[0].modulus());
        let seed = prg.next_seed().0;
        let a = expand(ctx, 0, &mut Prg::from_seed(Seed(seed)));
        let mut product = a.clone();
        product.mul_assign(&self.s[0], ntt);
        let e = Zeroizing::new(small(ctx, 0, &sample::error(prg, DEGREE)));
        let b = e.values().iter().zip(product.values()).map(|(&e, &v)| m.sub(e, v)).collect();
        PublicKey { seed, b: NttPoly::new(b, m), a }
    }
}

impl PublicKey {
    /// Seed and packed `b`: [`PUBLIC_KEY_BYTES`] bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PUBLIC_KEY_BYTES);
        out.extend_from_slice(&self.seed);
        pack::pack(self.b.values().iter().copied(), 50, &mut out);
        out
    }

    /// Reads a peer's key.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`].
    pub fn from_bytes(ctx: &Context, bytes: &[u8]) -> Result<Self, HeError> {
        let Some((&seed, packed)) = bytes.split_first_chunk::<16>().filter(|_| bytes.len() == PUBLIC_KEY_BYTES) else {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected: PUBLIC_KEY_BYTES });
        };
        let b = pack::unpack(packed, DEGREE, 50, P1 - 1).map_err(HeError::packed(WHAT))?;
        let a = expand(ctx, 0, &mut Prg::from_seed(Seed(seed)));
        Ok(Self { seed, b: NttPoly::new(b, ctx.ntt()[0].modulus()), a })
    }
}
