//! Key switching in a ring whose last prime P is special: one digit for each other prime.
//!
//! A key from s' to s is, for each digit j, `b_j = e - a_j s + P s'` mod prime j and `b_j = e - a_j s` mod
//! all others, P included. What decrypts under s' is a sum of digits times these, divided by P with rounding:
//! the noise is `N * 10.5 * sum_j q_j^2 / (12 P^2)`, and `(1 + |s|^2) / 12` of the rounding.

use super::{Ring, put_polynomial, small, take_polynomial, uniform};
use crate::HeError;
use tacit_arith::modulus::{Modulus, Shoup};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Conversion, Ntt, RnsBasis, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

/// The image of a polynomial under an automorphism.
#[must_use]
pub fn permuted(basis: &RnsBasis, poly: &RnsPoly<Ntt>, galois: &Galois) -> RnsPoly<Ntt> {
    let n = basis.degree();
    let mut words = vec![0; poly.level() * n];
    words.chunks_exact_mut(n).enumerate().for_each(|(i, to)| galois.apply(poly.residue(i), to));
    RnsPoly::new(basis, words)
}

/// What switches keys in a ring.
pub struct Switching {
    /// Primes but the special one: the level of what is switched.
    fresh: usize,
    /// For each of them, its digit to all other primes, in order.
    digits: Vec<Conversion>,
    /// From the special prime to all others.
    special: Conversion,
    /// `P^-1` mod each of them.
    inverses: Vec<Shoup>,
}

/// A key: for each digit `(b, a)` at the highest level.
pub struct SwitchingKey(Vec<[RnsPoly<Ntt>; 2]>);

/// The digits of a polynomial at all primes: once for all keys that it meets.
#[derive(Default)]
pub struct Raised {
    /// `[digits, primes, N]`
    digits: Vec<u64>,
    /// Its coefficients, which the digits are made of.
    coefficients: Vec<u64>,
}

/// What a switch needs beside its results: made once for all of them.
#[derive(Default)]
pub struct Room {
    /// Both halves at all primes.
    sums: Vec<u64>,
    /// What is divided out, at all primes but the special one.
    low: Vec<u64>,
}

impl Switching {
    /// For `ring`, whose last prime is special.
    ///
    /// # Errors
    /// [`HeError::Lattice`] for a ring of one prime.
    pub fn new(ring: &Ring) -> Result<Self, HeError> {
        let moduli: Vec<Modulus> = (0..ring.basis().levels()).map(|k| *ring.basis().modulus(k)).collect();
        let fresh = moduli.len() - 1;
        let digit = |j: usize| {
            let others: Vec<Modulus> = moduli.iter().enumerate().filter(|(k, _)| *k != j).map(|(_, m)| *m).collect();
            Conversion::new(&moduli[j..=j], &others)
        };
        let digits = (0..fresh).map(digit).collect::<Result<_, _>>()?;
        let special = Conversion::new(&moduli[fresh..], &moduli[..fresh])?;
        let inverses = moduli[..fresh].iter().map(|m| m.shoup(m.inv(m.reduce(moduli[fresh].value())))).collect();
        Ok(Self { fresh, digits, special, inverses })
    }

    /// Appends a key from `from` to `to`: a seed, and for each digit N residues mod all primes.
    pub fn put_key(&self, ring: &Ring, [from, to]: [&RnsPoly<Ntt>; 2], prg: &mut SplitPrg, out: &mut Vec<u8>) {
        let (basis, full, n) = (ring.basis(), self.fresh + 1, ring.degree());
        let seed = prg.public_seed();
        out.extend_from_slice(&seed.to_bytes());
        for j in 0..self.fresh {
            let mut product = Zeroizing::new(uniform(ring, full, seed.fork(j as u64)));
            product.mul_assign(to, basis);
            let mut b = small(ring, full, &sample::error(prg.secret(), n));
            b.sub_assign(&product, basis);
            let m = basis.modulus(j);
            let special = m.shoup(m.reduce(basis.modulus(self.fresh).value()));
            let mut own = Zeroizing::new(vec![0; full * n]);
            let part = own[j * n..][..n].iter_mut().zip(from.residue(j));
            part.for_each(|(x, &s)| *x = m.mul_shoup(s, special));
            b.add_assign(&Zeroizing::new(RnsPoly::new(basis, own.to_vec())), basis);
            put_polynomial(ring, &b, out);
        }
    }

    /// Reads a peer's key, of `expected` bytes; `what` names it.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn read_key(
        &self,
        ring: &Ring,
        bytes: &[u8],
        (expected, what): (usize, &'static str),
    ) -> Result<SwitchingKey, HeError> {
        let Some((&seed, packed)) = bytes.split_first_chunk().filter(|_| bytes.len() == expected) else {
            return Err(HeError::Length { what, got: bytes.len(), expected });
        };
        let (seed, full) = (PublicSeed::from_bytes(seed), self.fresh + 1);
        let digit = |(j, part): (usize, &[u8])| {
            let b = take_polynomial(ring, full, part, what)?;
            Ok([b, uniform(ring, full, seed.fork(j as u64))])
        };
        let digits = packed.chunks_exact(packed.len() / self.fresh).enumerate().map(digit);
        Ok(SwitchingKey(digits.collect::<Result<_, HeError>>()?))
    }

    /// The digits of a polynomial, given by its residues mod all primes but the special one (`[primes, N]`).
    pub fn raise(&self, basis: &RnsBasis, residues: &[u64], raised: &mut Raised) {
        let (n, full) = (basis.degree(), self.fresh + 1);
        let Raised { digits, coefficients } = raised;
        coefficients.clear();
        coefficients.extend_from_slice(residues);
        coefficients.chunks_exact_mut(n).enumerate().for_each(|(j, part)| basis.table(j).inverse(part));
        digits.resize(self.fresh * full * n, 0);
        for (j, digit) in digits.chunks_exact_mut(full * n).enumerate() {
            let mut others: Vec<&mut [u64]> = digit.chunks_exact_mut(n).collect();
            // The digit's own residues are what they were.
            others.remove(j).copy_from_slice(&residues[j * n..][..n]);
            self.digits[j].apply(&[&coefficients[j * n..][..n]], &mut others);
            let places = (0..full).filter(|&k| k != j);
            places.zip(others).for_each(|(k, part)| basis.table(k).forward(part));
        }
    }

    /// Adds to `halves` (b and a, each `[primes, N]` without the special one) what the raised polynomial,
    /// times s', is under s.
    pub fn add(
        &self,
        basis: &RnsBasis,
        (raised, key): (&Raised, &SwitchingKey),
        halves: [&mut [u64]; 2],
        room: &mut Room,
    ) {
        let (n, full) = (basis.degree(), self.fresh + 1);
        let Room { sums, low } = room;
        sums.clear();
        sums.resize(2 * full * n, 0);
        low.resize(self.fresh * n, 0);
        let (b, a) = sums.split_at_mut(full * n);
        for k in 0..full {
            let at = k * n..(k + 1) * n;
            let digits: Vec<&[u64]> = raised.digits.chunks_exact(full * n).map(|digit| &digit[at.clone()]).collect();
            let keys: Vec<[&[u64]; 2]> = key.0.iter().map(|half| [half[0].residue(k), half[1].residue(k)]).collect();
            basis.table(k).pointwise().dot_pair(&digits, &keys, [&mut b[at.clone()], &mut a[at]]);
        }
        for (sum, half) in [b, a].into_iter().zip(halves) {
            let (sum, last) = sum.split_at_mut(self.fresh * n);
            basis.table(self.fresh).inverse(last);
            self.special.apply(&[&*last], &mut low.chunks_exact_mut(n).collect::<Vec<_>>());
            let parts = sum.chunks_exact_mut(n).zip(low.chunks_exact_mut(n)).zip(half.chunks_exact_mut(n));
            for (k, ((sum, low), half)) in parts.enumerate() {
                let words = basis.table(k).pointwise();
                basis.table(k).forward(low);
                words.sub_scale(sum, low, self.inverses[k]);
                words.add(half, sum);
            }
        }
    }
}
