//! Linear combinations and one-bit approximate resharing ([Chee22] sec. 4, with the public half of the answer from a seed).

use super::cipher::{Ciphertext, WeightPoly};
use super::context::{Context, DEGREE, P1, P2};
use super::keys::{PublicKey, SecretKey, small};
use super::params::Params;
use crate::HeError;
use tacit_arith::pack;
use tacit_arith::poly::{Accumulator, CoeffPoly};
use tacit_arith::prg::Prg;
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "answer";

/// `round(2^l x / P1) mod 2^l` for x in `[0, P1)`, off by at most 2^-14 before rounding.
struct ToRing {
    factor: u64,
    mask: u64,
}

impl ToRing {
    fn new(ring_bits: u32) -> Self {
        // 2^(l + 63) / P1 < 2^59 for l <= 45; x times its error stays below 2^50, 2^-13 of 2^63.
        let factor = ((1u128 << (ring_bits + 63)) + u128::from(P1 / 2)) / u128::from(P1);
        Self { factor: factor as u64, mask: (1 << ring_bits) - 1 }
    }

    #[inline(always)]
    fn apply(&self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.factor) + (1 << 62)) >> 63) as u64 & self.mask
    }
}

/// A sum of products of weight polynomials and ciphertexts.
pub struct Sum {
    /// (b mod P1, b mod P2, a mod P1, a mod P2)
    parts: [Accumulator; 4],
}

impl Default for Sum {
    fn default() -> Self {
        Self { parts: [(); 4].map(|()| Accumulator::new(DEGREE)) }
    }
}

impl Sum {
    /// Adds `sum w_i * c_i`.
    pub fn add_products(&mut self, ctx: &Context, terms: &[(&WeightPoly, &Ciphertext)]) {
        for (k, part) in self.parts.iter_mut().enumerate() {
            let i = k % 2;
            let pairs: Vec<(&[u64], &[u64])> = terms
                .iter()
                .map(|(w, c)| (w.0[i].values(), if k < 2 { c.b[i].values() } else { c.a[i].values() }))
                .collect();
            part.add_products(&ctx.ntt()[i], &pairs);
        }
    }

    /// Ends the sum (which becomes zero): appends the answer ([`Params::down_bytes`] bytes) to `out` and returns the server's
    /// shares, mod `2^l`, of the coefficients at `positions`. `secret` hides the sum; `public` is the stream both parties know, from
    /// which `c0'` is drawn at `positions`, in their order.
    ///
    /// # Panics
    /// If a position is not below N.
    pub fn reshare(
        &mut self,
        ctx: &Context,
        key: &PublicKey,
        params: &Params,
        (secret, public): (&mut Prg, &mut Prg),
        positions: &[usize],
        out: &mut Vec<u8>,
    ) -> Vec<u64> {
        let (ntt, m) = (&ctx.ntt()[0], ctx.ntt()[0].modulus());
        // u is scaled by P2 and added before P2 is dropped, which divides it out again exactly.
        let scaled: Zeroizing<Vec<i64>> =
            Zeroizing::new(sample::ternary(secret, DEGREE).iter().map(|&u| u * P2 as i64).collect());
        let u = Zeroizing::new(small(ctx, 0, &scaled));
        self.parts[0].add_products(ntt, &[(u.values(), key.b.values())]);
        self.parts[2].add_products(ntt, &[(u.values(), key.a.values())]);
        let mut half = |k: usize| -> [CoeffPoly; 2] {
            [0, 1].map(|i| self.parts[k + i].take(&ctx.ntt()[i]).into_coeff(&ctx.ntt()[i]))
        };
        let ([b1, b2], [a1, a2]) = (half(0), half(2));
        let e2 = sample::error(secret, DEGREE);
        let (drop, round) = (params.down_drop(), (1 << params.down_drop()) >> 1);
        let c1 = (0..DEGREE).map(|j| {
            let v = m.add(ctx.drop_p2(a1.values()[j], a2.values()[j]), m.reduce_i64(e2[j]));
            (v + round) >> drop
        });
        pack::pack(c1, params.down_bits(), out);
        let mut mask = vec![0; positions.len()];
        sample::uniform(public, m, &mut mask);
        let ring = ToRing::new(params.ring_bits());
        let share = |(&j, &c): (&usize, &u64)| ring.apply(m.sub(ctx.drop_p2(b1.values()[j], b2.values()[j]), c));
        positions.iter().zip(&mask).map(share).collect()
    }
}

/// The client's end of resharing.
pub struct Opener<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
    params: Params,
}

impl<'a> Opener<'a> {
    /// Opens answers made with the same `params`.
    #[must_use]
    pub fn new(ctx: &'a Context, key: &'a SecretKey, params: Params) -> Self {
        Self { ctx, key, params }
    }

    /// The client's shares, mod `2^l`, of the coefficients at `positions`; `public` as in [`Sum::reshare`].
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    ///
    /// # Panics
    /// If a position is not below N.
    pub fn open(&self, answer: &[u8], public: &mut Prg, positions: &[usize]) -> Result<Vec<u64>, HeError> {
        let (ntt, params) = (&self.ctx.ntt()[0], &self.params);
        let m = ntt.modulus();
        let packed = pack::unpack(answer, DEGREE, params.down_bits(), params.down_max());
        let packed = packed.map_err(HeError::packed(WHAT))?;
        // Restoring the dropped bits may pass P1 by less than 2^down_drop.
        let c1 = packed.iter().map(|&v| m.reduce(v << params.down_drop())).collect();
        let mut product = CoeffPoly::new(c1, m).into_ntt(ntt);
        product.mul_assign(&self.key.s[0], ntt);
        let phase = Zeroizing::new(product.into_coeff(ntt));
        let mut mask = vec![0; positions.len()];
        sample::uniform(public, m, &mut mask);
        let ring = ToRing::new(params.ring_bits());
        Ok(positions.iter().zip(&mask).map(|(&j, &c)| ring.apply(m.add(phase.values()[j], c))).collect())
    }
}
