//! Switching keys: hybrid gadget with digits of alpha primes ([HK20]).
//!
//! A key for `s' -> s` at level L with alpha special primes has `beta = ceil(L / alpha)` pairs `(b_j, a_j)`
//! mod `Q_L P` with `b_j + a_j s = e_j + P g_j s'`, where `g_j` is 1 mod the primes of digit j and 0 mod
//! the others. It serves every level up to L: lower levels use the first digits and primes.

use super::super::context::Context;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::secret::{uniform, uniform_limb, zero_under};
use crate::HeError;
use std::borrow::Cow;
use tacit_arith::pack;
use tacit_arith::pointwise::Pointwise;
use tacit_arith::prg::{PublicSeed, SplitPrg};

/// How a key is held in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// b packed to the width of each prime, a as a seed: as it travels.
    Packed,
    /// Both halves as words: two and a half times the bytes, nothing to draw or unpack.
    Expanded,
}

/// One digit's pair.
enum Digit {
    Packed { seed: PublicSeed, b: Vec<Vec<u8>> },
    Expanded { seed: PublicSeed, b: Poly<Ntt>, a: Poly<Ntt> },
}

/// A switching key. Public: it is encrypted under the secret that it switches to.
pub struct SwitchKey {
    level: usize,
    alpha: usize,
    digits: Vec<Digit>,
}

/// Digits of `level` primes with `alpha` each: the primes of digit j.
pub(in super::super) fn digit_range(level: usize, alpha: usize, j: usize) -> std::ops::Range<usize> {
    j * alpha..((j + 1) * alpha).min(level)
}

impl SwitchKey {
    /// A key from the secret `from` (at every prime) to `to`, for ciphertexts up to `level`.
    ///
    /// # Panics
    /// If the context has fewer primes.
    #[must_use]
    pub(in super::super) fn generate(
        from: &Poly<Ntt>,
        to: &Poly<Ntt>,
        context: &Context,
        level: usize,
        alpha: usize,
        prg: &mut SplitPrg,
    ) -> Self {
        use rayon::prelude::*;
        let shape = Shape { level, special: alpha };
        let digits = (0..level.div_ceil(alpha)).map(|j| {
            let seed = prg.public_seed();
            let a = uniform(context, shape, seed);
            let mut b = zero_under(context, to, &a, shape, prg.secret());
            let own = digit_range(level, alpha, j);
            b.limbs_mut().filter(|(k, _)| own.contains(k)).for_each(|(k, limb)| {
                let m = context.modulus(shape, k);
                let factor = m.shoup(context.special_product(shape, alpha, k));
                limb.iter_mut().zip(from.limb(k)).for_each(|(b, &s)| *b = m.add(*b, m.mul_shoup(s, factor)));
            });
            Digit::Packed { seed, b: pack_limbs(context, &b) }
        });
        Self { level, alpha, digits: digits.collect() }
    }

    /// Highest level it serves.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Number of special primes.
    #[must_use]
    pub fn alpha(&self) -> usize {
        self.alpha
    }

    /// Number of digits at its level (beta).
    #[must_use]
    pub fn digits(&self) -> usize {
        self.digits.len()
    }

    /// Its primes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { level: self.level, special: self.alpha }
    }

    /// How it is held.
    #[must_use]
    pub fn form(&self) -> KeyForm {
        match self.digits.first() {
            Some(Digit::Expanded { .. }) => KeyForm::Expanded,
            _ => KeyForm::Packed,
        }
    }

    /// The same key with both halves as words.
    ///
    /// # Errors
    /// [`HeError::Range`] for packed bytes that are no residues.
    pub fn expanded(&self, context: &Context) -> Result<Self, HeError> {
        let digits = self.digits.iter().map(|digit| match digit {
            Digit::Packed { seed, b } => {
                let b = unpack_limbs(context, self.shape(), b)?;
                Ok(Digit::Expanded { seed: *seed, b, a: uniform(context, self.shape(), *seed) })
            }
            Digit::Expanded { seed, b, a } => Ok(Digit::Expanded { seed: *seed, b: b.clone(), a: a.clone() }),
        });
        Ok(Self { digits: digits.collect::<Result<_, HeError>>()?, ..*self })
    }

    /// Bytes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |digit: &Digit| match digit {
            Digit::Packed { b, .. } => PublicSeed::BYTES + b.iter().map(Vec::len).sum::<usize>(),
            Digit::Expanded { b, .. } => 16 * b.shape().limbs() * b.limb(0).len(),
        };
        self.digits.iter().map(of).sum()
    }

    /// Bytes of its packed form: per digit a seed and one limb per prime.
    #[must_use]
    pub fn packed_bytes(context: &Context, level: usize, alpha: usize) -> usize {
        let shape = Shape { level, special: alpha };
        let limbs: usize = (0..shape.limbs()).map(|k| limb_bytes(context, shape, k)).sum();
        level.div_ceil(alpha) * (PublicSeed::BYTES + limbs)
    }

    /// Appends the packed form.
    pub(in super::super) fn write(&self, context: &Context, out: &mut Vec<u8>) {
        for digit in &self.digits {
            let (seed, packed) = match digit {
                Digit::Packed { seed, b } => (seed, b),
                Digit::Expanded { seed, b, .. } => (seed, &pack_limbs(context, b)),
            };
            out.extend_from_slice(&seed.to_bytes());
            packed.iter().for_each(|limb| out.extend_from_slice(limb));
        }
    }

    /// Reads the packed form; every residue is checked.
    pub(in super::super) fn read(context: &Context, level: usize, alpha: usize, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = Self::packed_bytes(context, level, alpha);
        if bytes.len() != expected {
            return Err(HeError::Length { what: "switching key", got: bytes.len(), expected });
        }
        let shape = Shape { level, special: alpha };
        let mut rest = bytes;
        let mut digits = Vec::with_capacity(level.div_ceil(alpha));
        for _ in 0..level.div_ceil(alpha) {
            let (seed, after) = rest.split_first_chunk().expect("the length has been checked");
            rest = after;
            let mut b = Vec::with_capacity(shape.limbs());
            for k in 0..shape.limbs() {
                let (limb, after) = rest.split_at(limb_bytes(context, shape, k));
                unpack_limb(context, shape, k, limb)?;
                b.push(limb.to_vec());
                rest = after;
            }
            digits.push(Digit::Packed { seed: PublicSeed::from_bytes(*seed), b });
        }
        Ok(Self { level, alpha, digits })
    }

    /// `(sum digit_j b_j, sum digit_j a_j)` for digits of a ciphertext at or below the key's level, all of
    /// one shape with alpha special primes.
    ///
    /// # Panics
    /// If there are more digits than the key has, or their shape is not within the key's.
    pub(in super::super) fn inner_product(&self, context: &Context, digits: &[Poly<Ntt>]) -> [Poly<Ntt>; 2] {
        use rayon::prelude::*;
        let shape = digits[0].shape();
        assert!(
            digits.len() <= self.digits.len() && shape.level <= self.level && shape.special == self.alpha,
            "digits fit the key"
        );
        let mut sums = [Poly::zero(context, shape), Poly::zero(context, shape)];
        let [sum_b, sum_a] = &mut sums;
        sum_b.limbs_mut().zip(sum_a.limbs_mut()).for_each(|((k, sum_b), (_, sum_a))| {
            // The same prime in the key, which may have more of them.
            let at = if k < shape.level { k } else { self.level + k - shape.level };
            let own: Vec<&[u64]> = digits.iter().map(|digit| digit.limb(k)).collect();
            let halves: Vec<[Cow<'_, [u64]>; 2]> =
                self.digits[..digits.len()].iter().map(|pair| self.halves(context, pair, at)).collect();
            let pairs: Vec<[&[u64]; 2]> = halves.iter().map(|[b, a]| [&**b, &**a]).collect();
            Pointwise::new(*context.modulus(shape, k)).dot_pair(&own, &pairs, [sum_b, sum_a]);
        });
        let per_digit = self.memory_bytes() / self.digits.len().max(1);
        context.counters().count_key_switch(per_digit * digits.len() * shape.limbs() / self.shape().limbs());
        sums
    }

    /// Limb `at` of both halves of one digit, as words.
    fn halves<'a>(&self, context: &Context, pair: &'a Digit, at: usize) -> [Cow<'a, [u64]>; 2] {
        match pair {
            Digit::Expanded { b, a, .. } => [b.limb(at).into(), a.limb(at).into()],
            Digit::Packed { seed, b } => {
                let b = unpack_limb(context, self.shape(), at, &b[at]).expect("keys are checked when they are read");
                let mut a = vec![0; b.len()];
                uniform_limb(context, self.shape(), *seed, at, &mut a);
                [b.into(), a.into()]
            }
        }
    }
}

fn limb_bytes(context: &Context, shape: Shape, k: usize) -> usize {
    pack::packed_len(context.degree(), context.modulus(shape, k).bits()).expect("a residue fits one word")
}

fn pack_limbs(context: &Context, poly: &Poly<Ntt>) -> Vec<Vec<u8>> {
    let shape = poly.shape();
    let packed = |k: usize| {
        let mut out = Vec::with_capacity(limb_bytes(context, shape, k) + 8);
        pack::pack(poly.limb(k).iter().copied(), context.modulus(shape, k).bits(), &mut out);
        out
    };
    (0..shape.limbs()).map(packed).collect()
}

fn unpack_limb(context: &Context, shape: Shape, k: usize, bytes: &[u8]) -> Result<Vec<u64>, HeError> {
    let m = context.modulus(shape, k);
    pack::unpack(bytes, context.degree(), m.bits(), m.value() - 1).map_err(HeError::packed("switching key"))
}

fn unpack_limbs(context: &Context, shape: Shape, limbs: &[Vec<u8>]) -> Result<Poly<Ntt>, HeError> {
    let mut words = Vec::with_capacity(shape.limbs() * context.degree());
    for (k, bytes) in limbs.iter().enumerate() {
        words.extend(unpack_limb(context, shape, k, bytes)?);
    }
    Ok(Poly::of(words, shape))
}
