//! From one ciphertext of interleaved parts to a ciphertext of each part.
//!
//! With `B = 2^k` parts the plaintext is `sum_c X^c x_c(X^B)`. Step j halves: with `g = N / 2^(j-1) + 1`,
//! `sigma: X -> X^g` keeps `X^(2^j)` and negates `X^(2^(j-1))`, so that `m + sigma(m)` is twice the even part
//! of a polynomial m in `X^(2^(j-1))`, and `m - sigma(m)`, shifted, twice its odd part. The factors of two
//! are taken out beforehand: the client encrypts under `B s`, and the server multiplies b by `B^-1 mod q`.
//! So noise of fresh ciphertexts ends as it was. `sigma(ct)` decrypts under `sigma(s)`; digits of its second
//! half, base `2^14`, times a key bring it back under s.

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, DIGIT_BITS, DIGITS, FRESH};
use crate::HeError;
use crate::core::{SecretKey, put_polynomial, small, take_polynomial, uniform};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Accumulator, Coeff, Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "expansion key";

/// What lets the server expand ciphertexts: a switching key for each step.
pub struct ExpansionKeys(Vec<Step>);

struct Step {
    galois: Galois,
    /// For each digit `(b, a)`.
    digits: Vec<[RnsPoly<Ntt>; 2]>,
    /// `X^-(2^(j-1))`.
    shift: RnsPoly<Ntt>,
}

/// The automorphism of step `index`, counted from 0.
fn galois(index: usize) -> Result<Galois, HeError> {
    Ok(Galois::new(DEGREE, (DEGREE >> index) as u64 + 1)?)
}

fn permuted(ctx: &Context, poly: &RnsPoly<Ntt>, galois: &Galois) -> RnsPoly<Ntt> {
    let mut words = vec![0; poly.level() * DEGREE];
    words.chunks_exact_mut(DEGREE).enumerate().for_each(|(i, to)| galois.apply(poly.residue(i), to));
    RnsPoly::new(ctx.basis(), words)
}

/// Bytes of serialized keys for so many steps: a seed for each, and for each of five digits N residues mod
/// both primes.
#[must_use]
pub const fn expansion_key_bytes(steps: u32) -> usize {
    // 50 and 16 bits.
    steps as usize * (PublicSeed::BYTES + DIGITS * DEGREE * (50 + 16) / 8)
}

/// Bytes that keys for so many steps take in memory.
#[must_use]
pub const fn expansion_key_memory(steps: u32) -> usize {
    steps as usize * (2 * DIGITS + 1) * FRESH * DEGREE * 8
}

/// Keys for `steps` steps as bytes: for each step and digit i `b_i = e - a_i s + 2^(14 i) sigma(s)`.
///
/// # Errors
/// None in practice.
pub fn expansion_keys(ctx: &Context, secret: &SecretKey, steps: u32, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let (ring, basis) = (ctx.ring(), ctx.basis());
    let mut out = Vec::with_capacity(expansion_key_bytes(steps));
    for index in 0..steps as usize {
        let turned = Zeroizing::new(permuted(ctx, secret.s(), &galois(index)?));
        let seed = prg.public_seed();
        out.extend_from_slice(&seed.to_bytes());
        for digit in 0..DIGITS {
            let mut product = Zeroizing::new(uniform(ring, FRESH, seed.fork(digit as u64)));
            product.mul_assign(secret.s(), basis);
            let mut b = small(ring, FRESH, &sample::error(prg.secret(), DEGREE));
            b.sub_assign(&product, basis);
            let scaled = Zeroizing::new(scaled(ctx, &turned, 1 << (DIGIT_BITS as usize * digit)));
            b.add_assign(&scaled, basis);
            put_polynomial(ring, &b, &mut out);
        }
    }
    Ok(out)
}

/// `factor` times a polynomial.
fn scaled(ctx: &Context, poly: &RnsPoly<Ntt>, factor: u64) -> RnsPoly<Ntt> {
    let words = (0..poly.level()).flat_map(|i| {
        let m = ctx.basis().modulus(i);
        let factor = m.shoup(m.reduce(factor));
        poly.residue(i).iter().map(move |&x| m.mul_shoup(x, factor))
    });
    RnsPoly::new(ctx.basis(), words.collect())
}

impl ExpansionKeys {
    /// Reads a peer's keys for `steps` steps, [`expansion_key_bytes`] of them.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn from_bytes(ctx: &Context, steps: u32, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = expansion_key_bytes(steps);
        if bytes.len() != expected {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        }
        let parts = bytes.chunks_exact(expansion_key_bytes(1)).enumerate();
        Ok(Self(parts.map(|(index, part)| Step::from_bytes(ctx, index, part)).collect::<Result<_, _>>()?))
    }

    /// Steps that they are for.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.0.len() as u32
    }

    /// The `2^steps` parts of a ciphertext that was encrypted for so many steps.
    ///
    /// # Panics
    /// If there are no keys for them.
    #[must_use]
    pub fn expand(&self, ctx: &Context, ciphertext: Ciphertext, steps: u32) -> Vec<Ciphertext> {
        let mut parts = vec![ciphertext];
        for step in &self.0[..steps as usize] {
            let (mut even, mut odd) = (Vec::with_capacity(2 * parts.len()), Vec::with_capacity(parts.len()));
            for part in parts {
                let [e, o] = step.halves(ctx, part);
                even.push(e);
                odd.push(o);
            }
            // Bit j - 1 of a part's number is that of step j.
            even.append(&mut odd);
            parts = even;
        }
        parts
    }
}

impl Step {
    fn from_bytes(ctx: &Context, index: usize, bytes: &[u8]) -> Result<Self, HeError> {
        let (&seed, packed) = bytes.split_first_chunk().expect("the length was checked");
        let seed = PublicSeed::from_bytes(seed);
        let digit = |(i, part): (usize, &[u8])| {
            let b = take_polynomial(ctx.ring(), FRESH, part, WHAT)?;
            Ok([b, uniform(ctx.ring(), FRESH, seed.fork(i as u64))])
        };
        let digits = packed.chunks_exact(packed.len() / DIGITS).enumerate().map(digit);
        // X^-t is -X^(N - t).
        let mut shift = vec![0; DEGREE];
        shift[DEGREE - (1 << index)] = -1;
        Ok(Self {
            galois: galois(index)?,
            digits: digits.collect::<Result<_, HeError>>()?,
            shift: small(ctx.ring(), FRESH, &shift),
        })
    }

    /// Twice the even and twice the odd part, the latter shifted.
    fn halves(&self, ctx: &Context, mut c: Ciphertext) -> [Ciphertext; 2] {
        let basis = ctx.basis();
        let [mut b, a] = self.switched(ctx, &permuted(ctx, &c.a, &self.galois));
        b.add_assign(&permuted(ctx, &c.b, &self.galois), basis);
        let mut odd = Ciphertext { b: c.b.clone(), a: c.a.clone() };
        for (odd, turned) in [(&mut odd.b, &b), (&mut odd.a, &a)] {
            odd.sub_assign(turned, basis);
            odd.mul_assign(&self.shift, basis);
        }
        c.b.add_assign(&b, basis);
        c.a.add_assign(&a, basis);
        [c, odd]
    }

    /// What `(0, a)` is under s, for an `a` under `sigma(s)`.
    fn switched(&self, ctx: &Context, a: &RnsPoly<Ntt>) -> [RnsPoly<Ntt>; 2] {
        let digits = digits(ctx, a.clone().into_coeff(ctx.basis()));
        [0, 1].map(|half| {
            let mut sum = Accumulator::new(ctx.basis(), FRESH);
            let pairs: Vec<_> = digits.iter().zip(&self.digits).map(|(digit, key)| (digit, &key[half])).collect();
            sum.add_products(ctx.basis(), FRESH, &pairs);
            sum.take(ctx.basis())
        })
    }
}

/// Digits of all coefficients in `[0, q)`, in `[-2^13, 2^13)` and the highest in `[0, 2^10)`: public numbers.
fn digits(ctx: &Context, a: RnsPoly<Coeff>) -> Vec<RnsPoly<Ntt>> {
    let basis = ctx.basis();
    let half = 1 << (DIGIT_BITS - 1);
    let halves = (0..DIGITS - 1).map(|i| (half as u128) << (DIGIT_BITS as usize * i)).sum::<u128>();
    let mut words = vec![vec![0u64; FRESH * DEGREE]; DIGITS];
    let (m1, m2) = (basis.modulus(0).value(), basis.modulus(1).value());
    for at in 0..DEGREE {
        let value = ctx.lift.apply([a.residue(0)[at], a.residue(1)[at]]) + halves;
        for (i, words) in words.iter_mut().enumerate() {
            let digit = (value >> (DIGIT_BITS as usize * i)) as u64;
            let (digit, less) = if i + 1 < DIGITS { (digit & (2 * half - 1), half) } else { (digit, 0) };
            // Both primes are larger than a digit.
            let borrow = (digit < less) as u64;
            words[at] = (digit + borrow * m1) - less;
            words[DEGREE + at] = (digit + borrow * m2) - less;
        }
    }
    words.into_iter().map(|words| RnsPoly::<Coeff>::new(basis, words).into_ntt(basis)).collect()
}
