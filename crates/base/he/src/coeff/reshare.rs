//! One-bit approximate resharing ([Chee22] sec. 4, with half of the answer drawn from a seed).

use super::context::{ANSWER, Context, DEGREE, P1, P2};
use super::params::Params;
use crate::HeError;
use crate::core::{PublicKey, ReshareStreams, SecretKey, ToRing, small};
use tacit_arith::pack;
use tacit_arith::prg::PublicSeed;
use tacit_arith::rns::{Accumulator, Coeff, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "answer";

/// A sum of products of weight polynomials and ciphertexts.
pub struct Sum {
    pub(super) b: Accumulator,
    pub(super) a: Accumulator,
}

impl Sum {
    /// Turns the sum into shares: appends the answer ([`Params::down_bytes`] bytes) to `out` and
    /// returns the server's shares, mod `2^l`, of the coefficients at `positions`. The sum becomes
    /// zero.
    ///
    /// `streams.public` gives `c0'` at `positions`, in order.
    ///
    /// # Panics
    /// If a position is not below N.
    pub fn reshare(
        &mut self,
        ctx: &Context,
        key: &PublicKey,
        params: &Params,
        streams: ReshareStreams<'_>,
        positions: &[usize],
        out: &mut Vec<u8>,
    ) -> Vec<u64> {
        let ReshareStreams { secret, public } = streams;
        let (basis, m) = (ctx.basis(), ctx.basis().modulus(0));
        // u is scaled by P2, which later divides it again, exactly.
        let scaled: Zeroizing<Vec<i64>> =
            Zeroizing::new(sample::ternary(secret, DEGREE).iter().map(|&u| u * P2 as i64).collect());
        let u = Zeroizing::new(small(ctx.ring(), ANSWER, &scaled));
        let (key_b, key_a) = key.parts();
        self.b.add_products(basis, ANSWER, &[(&*u, key_b)]);
        self.a.add_products(basis, ANSWER, &[(&*u, key_a)]);
        let b = self.b.take(basis).into_coeff(basis);
        let mut a = self.a.take(basis).into_coeff(basis);
        a.rescale(basis);
        let e2 = sample::error(secret, DEGREE);
        let (drop, round) = (params.down_drop(), (1 << params.down_drop()) >> 1);
        let c1 = a.residue(0).iter().zip(e2.iter()).map(|(&a, &e)| (m.add(a, m.reduce_i64(e)) + round) >> drop);
        pack::pack(c1, params.down_bits(), out);
        let mut mask = vec![0; positions.len()];
        sample::uniform(&mut public.stream(), m, &mut mask);
        let ring = ToRing::new(P1, params.ring_bits());
        // Only the coefficients at `positions` are divided by P2.
        let (b1, b2) = (b.residue(0), b.residue(1));
        let shares = positions.iter().zip(&mask).map(|(&j, &c)| ring.apply(m.sub(ctx.rescale.apply(b1[j], b2[j]), c)));
        shares.collect()
    }
}

/// The client's side of resharing.
pub struct Opener<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
    params: Params,
}

impl<'a> Opener<'a> {
    /// Opens answers made with the same `params`.
    pub fn new(ctx: &'a Context, key: &'a SecretKey, params: Params) -> Self {
        Self { ctx, key, params }
    }

    /// The client's shares, mod `2^l`, of the coefficients at `positions`; `public` as in
    /// [`Sum::reshare`].
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    ///
    /// # Panics
    /// If a position is not below N.
    pub fn open(&self, answer: &[u8], public: PublicSeed, positions: &[usize]) -> Result<Vec<u64>, HeError> {
        let (basis, params) = (self.ctx.basis(), &self.params);
        let m = basis.modulus(0);
        let packed = pack::unpack(answer, DEGREE, params.down_bits(), params.down_max());
        let packed = packed.map_err(HeError::packed(WHAT))?;
        // With zeros for its dropped bits, a coefficient may exceed P1 by less than 2^down_drop.
        let c1 = packed.iter().map(|&v| m.reduce(v << params.down_drop())).collect();
        let mut product = RnsPoly::<Coeff>::new(basis, c1).into_ntt(basis);
        product.mul_assign(self.key.s(), basis);
        let phase = Zeroizing::new(product.into_coeff(basis));
        let mut mask = vec![0; positions.len()];
        sample::uniform(&mut public.stream(), m, &mut mask);
        let ring = ToRing::new(P1, params.ring_bits());
        Ok(positions.iter().zip(&mask).map(|(&j, &c)| ring.apply(m.add(phase.residue(0)[j], c))).collect())
    }
}
