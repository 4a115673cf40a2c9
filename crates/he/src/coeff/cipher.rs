//! Fresh ciphertexts, from client to server.

use super::context::{Context, DEGREE, FRESH, P1, P2};
use super::params::Params;
use crate::HeError;
use crate::core::{SecretKey, uniform};
use tacit_arith::pack;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Coeff, Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "ciphertext";

/// The client's symmetric encryption.
pub struct Encryptor<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
    params: Params,
}

/// A received ciphertext `(b, a)` in the NTT domain, mod P1 and mod P2.
pub struct Ciphertext {
    pub(super) b: RnsPoly<Ntt>,
    pub(super) a: RnsPoly<Ntt>,
}

impl<'a> Encryptor<'a> {
    /// Encrypts under `key` with the roundings of `params`.
    #[must_use]
    pub fn new(ctx: &'a Context, key: &'a SecretKey, params: Params) -> Self {
        Self { ctx, key, params }
    }

    /// Encrypts N values mod `2^l` (higher bits are ignored): seed and packed `b`, [`Params::up_bytes`]
    /// bytes.
    ///
    /// # Panics
    /// If there are not N values.
    #[must_use]
    pub fn encrypt(&self, message: &[u64], prg: &mut SplitPrg) -> Vec<u8> {
        assert_eq!(message.len(), DEGREE, "one value per coefficient");
        let params = &self.params;
        let seed = prg.public_seed();
        let error = sample::error(prg.secret(), DEGREE);
        let basis = self.ctx.basis();
        let mut product = uniform(self.ctx.ring(), FRESH, seed);
        product.mul_assign(self.key.s(), basis);
        let product = Zeroizing::new(product.into_coeff(basis));
        let (x1, x2) = (product.residue(0), product.residue(1));
        let (m1, m2) = (basis.modulus(0), basis.modulus(1));
        let q = u128::from(P1) * u128::from(P2);
        // What is taken apart is encrypted under as many times the secret.
        let parts = 1 << params.steps();
        let (mask, half) = ((1 << params.ring_bits()) - 1, 1u128 << (params.ring_bits() - 1));
        let values = (0..DEGREE).map(|i| {
            let noise = error[i];
            let b1 = m1.sub(m1.reduce_i64(noise), m1.mul(x1[i], parts));
            let b2 = m2.sub(m2.reduce_i64(noise), m2.mul(x2[i], parts));
            // q * m / 2^l, rounded: at most q, so one conditional subtraction brings the sum below q.
            let scaled = (q * u128::from(message[i] & mask) + half) >> params.ring_bits();
            let b = reduce_once(reduce_once(self.ctx.lift.apply([b1, b2]) + scaled, q), q);
            ((b + (1 << (params.up_drop() - 1))) >> params.up_drop()) as u64
        });
        let mut out = Vec::with_capacity(params.up_bytes());
        out.extend_from_slice(&seed.to_bytes());
        pack::pack(values, params.up_bits(), &mut out);
        out
    }
}

/// `x mod q` for `x < 2q < 2^127`, without a branch.
#[inline(always)]
fn reduce_once(x: u128, q: u128) -> u128 {
    x.min(x.wrapping_sub(q))
}

impl Ciphertext {
    /// Reads a peer's ciphertext.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn from_bytes(ctx: &Context, params: &Params, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = params.up_bytes();
        let Some((&seed, packed)) = bytes.split_first_chunk().filter(|_| bytes.len() == expected) else {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        };
        let values = pack::unpack(packed, DEGREE, params.up_bits(), params.up_max());
        let values = values.map_err(HeError::packed(WHAT))?;
        let a = uniform(ctx.ring(), FRESH, PublicSeed::from_bytes(seed));
        let mut words = Vec::with_capacity(FRESH * DEGREE);
        for (i, inverse) in ctx.inverse_parts(params.steps()).into_iter().enumerate() {
            let m = ctx.basis().modulus(i);
            let step = m.mul(m.reduce(1 << params.up_drop()), inverse);
            words.extend(values.iter().map(|&v| m.mul(m.reduce(v), step)));
        }
        let b = RnsPoly::<Coeff>::new(ctx.basis(), words).into_ntt(ctx.basis());
        Ok(Self { b, a })
    }
}
