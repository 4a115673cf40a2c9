//! Switching keys: hybrid gadget with digits of alpha primes ([HK20]).
//!
//! A key for `s' -> s` at level L with alpha special primes has `beta = ceil(L / alpha)` pairs `(b_j, a_j)`
//! mod `Q_L P` with `b_j + a_j s = e_j + P g_j s'`, where `g_j` is 1 mod the primes of digit j and 0 mod
//! the others. It serves every level up to L: lower levels use the first digits and primes.

use super::super::context::Context;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::secret::{uniform, uniform_parts, zero_under};
use crate::HeError;
use std::ops::Range;
use tacit_arith::modulus::Modulus;
use tacit_arith::pack;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::sample::UniformParts;

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
pub(in super::super) fn digit_range(level: usize, alpha: usize, j: usize) -> Range<usize> {
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
                let op = context.pointwise(shape, k);
                op.add_scaled(limb, from.limb(k), op.modulus().shoup(context.special_product(shape, alpha, k)));
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
    pub fn write(&self, context: &Context, out: &mut Vec<u8>) {
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
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`], [`HeError::Padding`].
    pub fn read(context: &Context, level: usize, alpha: usize, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = Self::packed_bytes(context, level, alpha);
        if bytes.len() != expected {
            return Err(HeError::Length { what: "switching key", got: bytes.len(), expected });
        }
        let shape = Shape { level, special: alpha };
        let mut rest = bytes;
        let mut checked = context.pool().scratch();
        let mut digits = Vec::with_capacity(level.div_ceil(alpha));
        for _ in 0..level.div_ceil(alpha) {
            let (seed, after) = rest.split_first_chunk().expect("the length has been checked");
            rest = after;
            let mut b = Vec::with_capacity(shape.limbs());
            for k in 0..shape.limbs() {
                let (limb, after) = rest.split_at(limb_bytes(context, shape, k));
                unpack_limb(context, shape, k, limb, &mut checked)?;
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
            self.inner_limb(context, at, &own, [sum_b, sum_a]);
        });
        let per_digit = self.memory_bytes() / self.digits.len().max(1);
        context.counters().count_key_switch(per_digit * digits.len() * shape.limbs() / self.shape().limbs());
        sums
    }

    /// The inner products mod the prime of the key's limb `at`, part by part: what is unpacked or drawn is
    /// used while it is in the cache.
    fn inner_limb(&self, context: &Context, at: usize, own: &[&[u64]], [sum_b, sum_a]: [&mut [u64]; 2]) {
        let op = context.pointwise(self.shape(), at);
        let mut halves: Vec<Halves<'_>> =
            self.digits[..own.len()].iter().map(|d| self.halves(context, d, at)).collect();
        let mut room = vec![0; 2 * PART * own.len()];
        for start in (0..context.degree()).step_by(PART) {
            let end = (start + PART).min(context.degree());
            let parts: Vec<[&[u64]; 2]> = halves
                .iter_mut()
                .zip(room.chunks_exact_mut(2 * PART))
                .map(|(halves, room)| halves.part(op.modulus(), start..end, room))
                .collect();
            let digits: Vec<&[u64]> = own.iter().map(|digit| &digit[start..end]).collect();
            op.dot_pair(&digits, &parts, [&mut sum_b[start..end], &mut sum_a[start..end]]);
        }
    }

    /// Limb `at` of both halves of one digit.
    fn halves<'a>(&self, context: &Context, digit: &'a Digit, at: usize) -> Halves<'a> {
        match digit {
            Digit::Expanded { b, a, .. } => Halves::Expanded { b: b.limb(at), a: a.limb(at) },
            Digit::Packed { seed, b } => {
                Halves::Packed { b: &b[at], a: Box::new(uniform_parts(context, self.shape(), *seed, at)) }
            }
        }
    }
}

/// Words of a key's limb that are unpacked, drawn and multiplied together.
const PART: usize = 512;

/// Limbs of both halves of one digit, to be read from the front.
enum Halves<'a> {
    Packed { b: &'a [u8], a: Box<UniformParts> },
    Expanded { b: &'a [u64], a: &'a [u64] },
}

impl Halves<'_> {
    /// The words `part`, where the one before ended; `room` has space for those of both halves.
    fn part<'a>(&'a mut self, modulus: &Modulus, part: Range<usize>, room: &'a mut [u64]) -> [&'a [u64]; 2] {
        match self {
            Self::Expanded { b, a } => [&b[part.clone()], &a[part]],
            Self::Packed { b, a } => {
                let (of_b, of_a) = room.split_at_mut(PART);
                let (of_b, of_a) = (&mut of_b[..part.len()], &mut of_a[..part.len()]);
                // Parts have a multiple of eight words, so that they begin with a byte.
                let bytes = part.start / 8 * modulus.bits() as usize..part.end / 8 * modulus.bits() as usize;
                pack::unpack_into(&b[bytes], modulus.bits(), modulus.value() - 1, of_b)
                    .expect("keys are checked when they are read");
                a.next(of_a);
                [of_b, of_a]
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

fn unpack_limb(context: &Context, shape: Shape, k: usize, bytes: &[u8], out: &mut [u64]) -> Result<(), HeError> {
    let m = context.modulus(shape, k);
    pack::unpack_into(bytes, m.bits(), m.value() - 1, out).map_err(HeError::packed("switching key"))
}

fn unpack_limbs(context: &Context, shape: Shape, limbs: &[Vec<u8>]) -> Result<Poly<Ntt>, HeError> {
    Poly::read(context, shape, |k, limb| unpack_limb(context, shape, k, &limbs[k], limb))
}
