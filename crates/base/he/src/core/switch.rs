//! Key switching in a ring whose last prime P is special, with one digit for each other prime.
//!
//! A key from s' to s is a pair `(b_j, a_j)` for each digit j. `b_j` is `e - a_j s + P s'` mod prime j,
//! and `e - a_j s` mod all other primes, P included.
//!
//! Switching decomposes a polynomial that decrypts under s' into digits, adds up the digits times
//! these pairs, and divides the sum by P, rounded. The noise has variance `N * 10.5 * sum_j q_j^2 /
//! (12 P^2)`, and the rounding adds `(1 + |s|^2) / 12`.

use super::{Ring, put_polynomial, small, take_polynomial, take_seed, uniform};
use crate::HeError;
use tacit_arith::modulus::{Modulus, Shoup};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::SplitPrg;
use tacit_arith::rns::{Conversion, Ntt, RnsBasis, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

/// The image of a polynomial under an automorphism.
#[must_use]
pub fn permute(basis: &RnsBasis, poly: &RnsPoly<Ntt>, galois: &Galois) -> RnsPoly<Ntt> {
    let n = basis.degree();
    let mut words = vec![0; poly.level() * n];
    words.chunks_exact_mut(n).enumerate().for_each(|(i, target)| galois.apply(poly.residue(i), target));
    RnsPoly::new(basis, words)
}

/// The constants of key switching in one ring.
pub struct Switching {
    /// Number of primes without the special one.
    fresh: usize,
    /// For each of these primes, the conversion of its digit to all other primes, in order.
    digits: Vec<Conversion>,
    /// The conversion from the special prime to all others.
    special: Conversion,
    /// `P^-1` mod each prime but the special one.
    inverses: Vec<Shoup>,
}

/// A switching key: `(b, a)` for each digit, at the highest level.
pub struct SwitchingKey(Vec<[RnsPoly<Ntt>; 2]>);

/// The digits of a polynomial mod all primes, for any number of keys.
#[derive(Default)]
pub struct Raised {
    /// `[digits, primes, N]`
    digits: Vec<u64>,
    /// Coefficients of the polynomial.
    coefficients: Vec<u64>,
}

/// Reusable buffers of [`Switching::switch_and_add`].
#[derive(Default)]
pub struct SwitchScratch {
    /// Both halves of the sum, mod all primes.
    sums: Vec<u64>,
    /// The part that the division by P removes.
    low: Vec<u64>,
}

impl Switching {
    /// Key switching for `ring`, whose last prime is special.
    ///
    /// # Errors
    /// [`HeError::Lattice`] for a ring of one prime.
    pub fn new(ring: &Ring) -> Result<Self, HeError> {
        let moduli: Vec<Modulus> = (0..ring.basis().levels()).map(|k| *ring.basis().modulus(k)).collect();
        let fresh = moduli.len() - 1;
        let digits = (0..fresh).map(|j| {
            let others: Vec<Modulus> = moduli.iter().enumerate().filter(|(k, _)| *k != j).map(|(_, m)| *m).collect();
            Conversion::new(&moduli[j..=j], &others)
        });
        let digits = digits.collect::<Result<_, _>>()?;
        let special = Conversion::new(&moduli[fresh..], &moduli[..fresh])?;
        let inverses = moduli[..fresh].iter().map(|m| m.shoup(m.inv(m.reduce(moduli[fresh].value())))).collect();
        Ok(Self { fresh, digits, special, inverses })
    }

    /// Appends a key from `old_secret` to `new_secret`: a seed, and N residues mod all primes a
    /// digit.
    pub fn put_key(
        &self,
        ring: &Ring,
        old_secret: &RnsPoly<Ntt>,
        new_secret: &RnsPoly<Ntt>,
        prg: &mut SplitPrg,
        out: &mut Vec<u8>,
    ) {
        let (basis, full, n) = (ring.basis(), self.fresh + 1, ring.degree());
        let seed = prg.public_seed();
        out.extend_from_slice(&seed.to_bytes());
        for j in 0..self.fresh {
            let mut product = Zeroizing::new(uniform(ring, full, seed.fork(j as u64)));
            product.mul_assign(new_secret, basis);
            let mut b = small(ring, full, &sample::error(prg.secret(), n));
            b.sub_assign(&product, basis);
            let m = basis.modulus(j);
            let special = m.shoup(m.reduce(basis.modulus(self.fresh).value()));
            let mut gadget_term = Zeroizing::new(vec![0; full * n]);
            let part = gadget_term[j * n..][..n].iter_mut().zip(old_secret.residue(j));
            part.for_each(|(x, &s)| *x = m.mul_shoup(s, special));
            b.add_assign(&Zeroizing::new(RnsPoly::new(basis, gadget_term.to_vec())), basis);
            put_polynomial(ring, &b, out);
        }
    }

    /// Reads a peer's key of `expected` bytes; `what` names the key in errors.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    pub fn read_key(
        &self,
        ring: &Ring,
        bytes: &[u8],
        expected: usize,
        what: &'static str,
    ) -> Result<SwitchingKey, HeError> {
        let ((seed, packed), full) = (take_seed(bytes, expected, what)?, self.fresh + 1);
        let digits = packed.chunks_exact(packed.len() / self.fresh).enumerate().map(|(j, part)| {
            let b = take_polynomial(ring, full, part, what)?;
            Ok([b, uniform(ring, full, seed.fork(j as u64))])
        });
        Ok(SwitchingKey(digits.collect::<Result<_, HeError>>()?))
    }

    /// Computes the digits of a polynomial, given by its residues mod all primes but the special
    /// one (`[primes, N]`, NTT form).
    pub fn raise(&self, basis: &RnsBasis, residues: &[u64], raised: &mut Raised) {
        let (n, full) = (basis.degree(), self.fresh + 1);
        let Raised { digits, coefficients } = raised;
        coefficients.clear();
        coefficients.extend_from_slice(residues);
        coefficients.chunks_exact_mut(n).enumerate().for_each(|(j, part)| basis.table(j).inverse(part));
        digits.resize(self.fresh * full * n, 0);
        for (j, digit) in digits.chunks_exact_mut(full * n).enumerate() {
            let mut others: Vec<&mut [u64]> = digit.chunks_exact_mut(n).collect();
            // Mod its own prime, a digit equals the polynomial.
            others.remove(j).copy_from_slice(&residues[j * n..][..n]);
            self.digits[j].apply(&[&coefficients[j * n..][..n]], &mut others);
            let places = (0..full).filter(|&k| k != j);
            places.zip(others).for_each(|(k, part)| basis.table(k).forward(part));
        }
    }

    /// Switches a raised polynomial with `key` and adds the result to `halves` (b and a, each
    /// `[primes, N]` without the special prime). Up to noise, the result decrypts under s to the
    /// polynomial times s'.
    pub fn switch_and_add(
        &self,
        basis: &RnsBasis,
        raised: &Raised,
        key: &SwitchingKey,
        halves: [&mut [u64]; 2],
        scratch: &mut SwitchScratch,
    ) {
        let (n, full) = (basis.degree(), self.fresh + 1);
        let SwitchScratch { sums, low } = scratch;
        sums.clear();
        sums.resize(2 * full * n, 0);
        low.resize(self.fresh * n, 0);
        let (b, a) = sums.split_at_mut(full * n);
        for k in 0..full {
            let range = k * n..(k + 1) * n;
            let digits: Vec<&[u64]> = raised.digits.chunks_exact(full * n).map(|digit| &digit[range.clone()]).collect();
            let keys: Vec<[&[u64]; 2]> =
                key.0.iter().map(|digit_key| digit_key.each_ref().map(|poly| poly.residue(k))).collect();
            basis.table(k).pointwise().dot_pair(&digits, &keys, [&mut b[range.clone()], &mut a[range]]);
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
