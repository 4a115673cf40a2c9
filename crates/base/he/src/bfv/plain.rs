//! The plaintext field: its slots, and conversions to and from the modulus of ciphertexts.

use super::context::{ANSWER, Context, DEGREE, FRESH};
use crate::HeError;
use tacit_arith::modulus::{Modulus, Shoup, is_prime};
use tacit_arith::ntt::NttTable;
use tacit_arith::rns::{Coeff, Ntt, RnsPoly};

/// The smallest prime from `2^log2` on that is 1 mod `2N`; `None` above 50 bits.
pub fn plain_prime(log2: f64) -> Option<u64> {
    let step = 2 * DEGREE as u64;
    let least = log2.clamp(16.0, 63.0).exp2() as u64;
    let first = least.div_ceil(step) * step + 1;
    (first..1 << 50).step_by(step as usize).find(|&p| is_prime(p))
}

/// A plaintext prime p with its transform. Immutable.
pub struct Plain {
    table: NttTable,
    /// Transforms of weights, at both small degrees.
    pub(super) small: [NttTable; 2],
    /// q mod p
    factor: Shoup,
    /// `-1/p` modulo each prime of a fresh ciphertext
    minus_inverse: Vec<Shoup>,
    /// Constants of each prime of an answer.
    parts: [Part; ANSWER],
}

/// One prime's part of `p x / q'`: with `y = x (q' / p_i)^-1 mod p_i`, the part is `p y / p_i`.
struct Part {
    modulus: Modulus,
    inverse: Shoup,
    /// `floor(2^76 p / p_i)`
    quotient: u128,
    /// `floor(2^112 / p_i)`
    fraction: u128,
}

impl Plain {
    /// Builds the tables for `prime` ([`plain_prime`]).
    ///
    /// # Errors
    /// [`HeError::Lattice`] if `prime` is no prime that is 1 mod 2N.
    pub fn new(ctx: &Context, prime: u64) -> Result<Self, HeError> {
        let modulus = Modulus::new(prime)?;
        let basis = ctx.basis();
        let q = (0..FRESH).fold(1, |q, k| modulus.mul(q, modulus.reduce(basis.modulus(k).value())));
        let minus_inverse = (0..FRESH).map(|k| {
            let m = basis.modulus(k);
            m.shoup(m.neg(m.inv(m.reduce(prime))))
        });
        let parts = std::array::from_fn(|i| {
            let (m, other_modulus) = (basis.modulus(i), basis.modulus(1 - i));
            let value = u128::from(m.value());
            Part {
                modulus: *m,
                inverse: m.shoup(m.inv(m.reduce(other_modulus.value()))),
                quotient: (u128::from(prime) << 76) / value,
                fraction: (1 << 112) / value,
            }
        });
        Ok(Self {
            table: NttTable::new(DEGREE, modulus)?,
            small: [NttTable::new(ctx.small[0].degree, modulus)?, NttTable::new(ctx.small[1].degree, modulus)?],
            factor: modulus.shoup(q),
            minus_inverse: minus_inverse.collect(),
            parts,
        })
    }

    /// The field.
    pub fn modulus(&self) -> &Modulus {
        self.table.modulus()
    }

    /// The polynomial with these slots (`[2, N / 2]`, reduced), coefficients in `[0, p)`.
    ///
    /// # Panics
    /// If there are not N values.
    pub fn encode(&self, ctx: &Context, slots: &[u64]) -> Vec<u64> {
        assert_eq!(slots.len(), DEGREE, "one value per slot");
        let mut values = vec![0; DEGREE];
        slots.iter().zip(&ctx.places).for_each(|(&v, &position)| values[position as usize] = v);
        self.table.inverse(&mut values);
        values
    }

    /// The slots of a polynomial, given by N reduced coefficients.
    ///
    /// # Panics
    /// If there are not N coefficients.
    pub fn decode(&self, ctx: &Context, mut coefficients: Vec<u64>) -> Vec<u64> {
        self.table.forward(&mut coefficients);
        ctx.places.iter().map(|&position| coefficients[position as usize]).collect()
    }

    /// `round(q m / p)` for every coefficient m, at the level of a fresh ciphertext: with t = q m
    /// mod p, centred, this is `(q m - t) / p`, and q vanishes modulo each of its primes.
    pub(super) fn scaled(&self, ctx: &Context, coefficients: &[u64]) -> RnsPoly<Ntt> {
        let p = self.modulus();
        let centred: Vec<i64> = coefficients.iter().map(|&m| p.centred(p.mul_shoup(m, self.factor))).collect();
        let mut words = Vec::with_capacity(FRESH * DEGREE);
        for (k, &factor) in self.minus_inverse.iter().enumerate() {
            let m = ctx.basis().modulus(k);
            words.extend(centred.iter().map(|&t| m.mul_shoup(m.reduce_i64(t), factor)));
        }
        RnsPoly::<Coeff>::new(ctx.basis(), words).into_ntt(ctx.basis())
    }

    /// `round(p x / q') mod p` for the x mod q' with these residues, with q' the modulus of
    /// answers. The error before rounding is at most 2^-60.
    #[inline(always)]
    pub(super) fn share(&self, residues: [u64; ANSWER]) -> u64 {
        let p = self.modulus();
        let (mut quotient, mut fraction) = (0, 0u64);
        for (part, x) in self.parts.iter().zip(residues) {
            let (y, m) = (part.modulus.mul_shoup(x, part.inverse), part.modulus.value());
            // floor(p y / p_i), or one less; p y < 2^100, so the product stays below 2^127.
            let estimate = ((u128::from(y) * part.quotient) >> 76) as u64;
            let remainder = p.value().wrapping_mul(y).wrapping_sub(estimate.wrapping_mul(m));
            let over = (m.wrapping_sub(1).wrapping_sub(remainder)) >> 63;
            let remainder = remainder - (m & over.wrapping_neg());
            quotient += estimate + over;
            // In units of 2^-62.
            fraction += ((u128::from(remainder) * part.fraction) >> 50) as u64;
        }
        p.reduce(quotient + ((fraction + (1 << 61)) >> 62))
    }
}
