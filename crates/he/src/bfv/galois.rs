//! Rotations: Galois keys, and key switching with one special prime and one digit for each other prime.
//!
//! The key of an element g turns what decrypts under `sigma^-1(s)` into what decrypts under s, and the
//! automorphism comes last: two polynomials are permuted, not every digit. Digits of a ciphertext serve any
//! number of rotations (hoisting, [HS18]).

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, FRESH, FULL, ROW};
use crate::HeError;
use crate::core::{SecretKey, put_polynomial, small, take_polynomial, uniform};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Accumulator, Ntt, RnsPoly};
use tacit_arith::sample;
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
    /// For each digit `(b, a)`.
    digits: Vec<[RnsPoly<Ntt>; 2]>,
}

/// The digits of a ciphertext's second half at all primes.
pub struct Raised(Vec<RnsPoly<Ntt>>);

/// A key for `turn` as bytes, [`GALOIS_KEY_BYTES`] of them: for each digit j `b_j = e - a_j sigma^-1(s) + P
/// s` mod prime j, without the last term mod the others.
///
/// # Errors
/// None in practice.
pub fn galois_key(ctx: &Context, secret: &SecretKey, turn: Turn, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let (ring, basis) = (ctx.ring(), ctx.basis());
    let turned = Zeroizing::new(permuted(ctx, secret.s(), &Galois::new(DEGREE, turn.inverse())?));
    let seed = prg.public_seed();
    let mut out = Vec::with_capacity(GALOIS_KEY_BYTES);
    out.extend_from_slice(&seed.to_bytes());
    for j in 0..FRESH {
        let mut product = Zeroizing::new(uniform(ring, FULL, seed.fork(j as u64)));
        product.mul_assign(&turned, basis);
        let mut b = small(ring, FULL, &sample::error(prg.secret(), DEGREE));
        b.sub_assign(&product, basis);
        let m = basis.modulus(j);
        let special = m.shoup(m.reduce(basis.modulus(FRESH).value()));
        let mut own = Zeroizing::new(vec![0; FULL * DEGREE]);
        let part = own[j * DEGREE..][..DEGREE].iter_mut().zip(secret.s().residue(j));
        part.for_each(|(x, &s)| *x = m.mul_shoup(s, special));
        b.add_assign(&Zeroizing::new(RnsPoly::new(basis, own.to_vec())), basis);
        put_polynomial(ring, &b, &mut out);
    }
    Ok(out)
}

impl GaloisKey {
    /// Reads a peer's key for `turn`.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn from_bytes(ctx: &Context, turn: Turn, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = GALOIS_KEY_BYTES;
        let Some((&seed, packed)) = bytes.split_first_chunk().filter(|_| bytes.len() == expected) else {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        };
        let seed = PublicSeed::from_bytes(seed);
        let digit = |(j, part): (usize, &[u8])| {
            let b = take_polynomial(ctx.ring(), FULL, part, WHAT)?;
            Ok([b, uniform(ctx.ring(), FULL, seed.fork(j as u64))])
        };
        let digits = packed.chunks_exact(packed.len() / FRESH).enumerate().map(digit);
        Ok(Self { galois: Galois::new(DEGREE, turn.element())?, digits: digits.collect::<Result<_, HeError>>()? })
    }

    /// Bytes a key occupies in memory.
    pub const MEMORY_BYTES: usize = FRESH * 2 * FULL * DEGREE * 8;
}

fn permuted(ctx: &Context, poly: &RnsPoly<Ntt>, galois: &Galois) -> RnsPoly<Ntt> {
    let mut words = vec![0; poly.level() * DEGREE];
    words.chunks_exact_mut(DEGREE).enumerate().for_each(|(i, to)| galois.apply(poly.residue(i), to));
    RnsPoly::new(ctx.basis(), words)
}

/// The digits of `c`: once for all rotations of it.
#[must_use]
pub fn raise(ctx: &Context, c: &Ciphertext) -> Raised {
    let basis = ctx.basis();
    let coefficients = c.a.clone().into_coeff(basis);
    let digit = |j: usize| {
        let mut words = vec![0; FULL * DEGREE];
        let mut others: Vec<&mut [u64]> = words.chunks_exact_mut(DEGREE).collect();
        // The digit's own residues are what they were.
        others.remove(j).copy_from_slice(c.a.residue(j));
        ctx.digits[j].apply(&[coefficients.residue(j)], &mut others);
        let places = (0..FULL).filter(|&k| k != j);
        places.zip(others).for_each(|(k, part)| basis.table(k).forward(part));
        RnsPoly::new(basis, words)
    };
    Raised((0..FRESH).map(digit).collect())
}

/// The ciphertext with its slots turned; `raised` are its own digits.
#[must_use]
pub fn turned(ctx: &Context, c: &Ciphertext, raised: &Raised, key: &GaloisKey) -> Ciphertext {
    let mut halves = [0, 1].map(|half| {
        let mut sum = Accumulator::new(ctx.basis(), FULL);
        let pairs: Vec<_> = raised.0.iter().zip(&key.digits).map(|(digit, key)| (digit, &key[half])).collect();
        sum.add_products(ctx.basis(), FULL, &pairs);
        without_special(ctx, &sum.take(ctx.basis()))
    });
    halves[0].add_assign(&c.b, ctx.basis());
    let [b, a] = halves.map(|half| permuted(ctx, &half, &key.galois));
    Ciphertext { b, a }
}

/// `round(x / P)` for the special prime P.
fn without_special(ctx: &Context, x: &RnsPoly<Ntt>) -> RnsPoly<Ntt> {
    let basis = ctx.basis();
    let mut last = x.residue(FRESH).to_vec();
    basis.table(FRESH).inverse(&mut last);
    let mut low = vec![0; FRESH * DEGREE];
    ctx.special.apply(&[&last], &mut low.chunks_exact_mut(DEGREE).collect::<Vec<_>>());
    let mut words = Vec::with_capacity(FRESH * DEGREE);
    for (k, low) in low.chunks_exact_mut(DEGREE).enumerate() {
        let (table, m) = (basis.table(k), basis.modulus(k));
        table.forward(low);
        words.extend_from_slice(x.residue(k));
        let inverse = m.shoup(m.inv(m.reduce(basis.modulus(FRESH).value())));
        table.pointwise().sub_scale(&mut words[k * DEGREE..], low, inverse);
    }
    RnsPoly::new(basis, words)
}
