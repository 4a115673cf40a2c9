//! Switching keys: hybrid gadget with digits of alpha primes ([HK20]).
//!
//! A key for `s' -> s` at level L with alpha special primes has `beta = ceil(L / alpha)` pairs
//! `(b_j, a_j)` mod `Q_L P` with `b_j + a_j s = e_j + P g_j s'`; `g_j` is 1 mod the primes of digit
//! j and 0 mod the others. Lower levels use the first digits and primes.

use super::super::context::Context;
use super::super::noise::fresh_deviation;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::gadget::Gadget;
use super::id::KeyId;
use super::secret::{PublicKey, uniform, uniform_parts, zero_under};
use crate::HeError;
use std::ops::Range;
use tacit_arith::modulus::Modulus;
use tacit_arith::pack;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::sample::UniformParts;

const WHAT: &str = "switching key";

/// Form of a key in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// As sent: b packed to the width of each prime, a as a seed.
    Packed,
    /// Both halves as words: two and a half times the bytes, ready to multiply.
    Expanded,
}

/// Which party made a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The client made and sent the key.
    Uploaded,
    /// The server made the key from masters; both halves are stored.
    Derived,
}

/// The pair of one digit. Derived keys have no seed.
enum Digit {
    Packed { seed: PublicSeed, b: Vec<Vec<u8>> },
    Derived { b: Vec<Vec<u8>>, a: Vec<Vec<u8>> },
    Expanded { seed: Option<PublicSeed>, b: Poly<Ntt>, a: Poly<Ntt> },
}

/// A switching key, encrypted under the secret that it switches to.
pub struct SwitchKey {
    id: KeyId,
    gadget: Gadget,
    /// Deviation of the key's error.
    deviation: f64,
    digits: Vec<Digit>,
}

/// The digits of `c`, transformed, at the primes that a key has at the level of `c`, by `beta (L +
/// alpha)` transforms.
pub(in super::super) fn raise_digits(context: &Context, c: &Poly<Ntt>, gadget: Gadget) -> Vec<Poly<Ntt>> {
    use rayon::prelude::*;
    let shape = gadget.at(c.shape().level).shape;
    let mut digits = lift_digits(context, c, gadget);
    // Prime by prime, because the factors of a transform take more memory than a limb.
    group_by_limb(&mut digits, shape.limbs()).into_par_iter().enumerate().for_each(|(k, limbs)| {
        limbs.into_iter().for_each(|(_, limb)| context.table(shape, k).forward(limb));
    });
    digits.into_iter().map(|digit| digit.poly).collect()
}

/// A digit before its transform.
struct Lifted {
    /// Limbs of this digit's primes: in NTT form. All others hold coefficients.
    digit_limbs: Range<usize>,
    poly: Poly<Ntt>,
}

fn lift_digits(context: &Context, c: &Poly<Ntt>, gadget: Gadget) -> Vec<Lifted> {
    let level = c.shape().level;
    let shape = gadget.at(level).shape;
    let coefficients = c.clone().into_coeff(context);
    let digits = gadget.digits_at(level).map(|(_, digit_limbs)| {
        let mut poly = Poly::<Ntt>::scratch_around(context, shape, &digit_limbs, c);
        let parts: Vec<&[u64]> = digit_limbs.clone().map(|k| coefficients.limb(k)).collect();
        let mut others: Vec<&mut [u64]> = poly.slices_around(digit_limbs.clone()).map(|(_, limb)| limb).collect();
        context.raise(shape, digit_limbs.start, &parts, &mut others);
        context.counters().count_ntts(others.len());
        Lifted { digit_limbs, poly }
    });
    digits.collect()
}

/// The coefficients of all digits by limb, with the number of the digit.
fn group_by_limb(digits: &mut [Lifted], limbs: usize) -> Vec<Vec<(usize, &mut [u64])>> {
    let mut by_limb: Vec<Vec<(usize, &mut [u64])>> = (0..limbs).map(|_| Vec::new()).collect();
    for (j, digit) in digits.iter_mut().enumerate() {
        digit.poly.slices_around(digit.digit_limbs.clone()).for_each(|(k, limb)| by_limb[k].push((j, limb)));
    }
    by_limb
}

impl SwitchKey {
    /// Makes the key `id`, from the secret `old_secret` (at every prime) to `new_secret`.
    ///
    /// # Panics
    /// If the parameters do not admit `id`.
    #[must_use]
    pub(in super::super) fn generate(
        old_secret: &Poly<Ntt>,
        new_secret: &Poly<Ntt>,
        context: &Context,
        id: KeyId,
        prg: &mut SplitPrg,
    ) -> Self {
        use rayon::prelude::*;
        let gadget = Gadget::of(id, context.parameters());
        let shape = gadget.shape;
        let digits = (0..gadget.len()).map(|j| {
            let seed = prg.public_seed();
            let a = uniform(context, shape, seed);
            let mut b = zero_under(context, new_secret, &a, shape, prg.secret());
            let digit_limbs = gadget.digit(j);
            b.limbs_mut().filter(|(k, _)| digit_limbs.contains(k)).for_each(|(k, limb)| {
                let op = context.pointwise(shape, k);
                op.add_scaled(
                    limb,
                    old_secret.limb(context.index(shape, k)),
                    op.modulus().shoup(context.special_product(shape, gadget.own(), k)),
                );
            });
            Digit::Packed { seed, b: pack_limbs(context, &b) }
        });
        Self { id, gadget, deviation: fresh_deviation(), digits: digits.collect() }
    }

    /// The key's purpose, level and number of special primes.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Highest level that the key serves.
    pub fn level(&self) -> usize {
        self.id.level
    }

    /// Number of special primes (as in [`KeyId`]).
    pub fn alpha(&self) -> usize {
        self.id.alpha
    }

    /// Primes of the key.
    pub fn shape(&self) -> Shape {
        self.gadget.shape
    }

    /// Which party made the key.
    pub fn origin(&self) -> Origin {
        match self.digits.first() {
            Some(Digit::Derived { .. } | Digit::Expanded { seed: None, .. }) => Origin::Derived,
            _ => Origin::Uploaded,
        }
    }

    /// Deviation of a coefficient of the key's error.
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    /// The key with both halves as words.
    ///
    /// # Errors
    /// [`HeError::Range`] if packed bytes are not residues.
    pub fn expanded(&self, context: &Context) -> Result<Self, HeError> {
        let digits = self.digits.iter().map(|digit| match digit {
            Digit::Packed { seed, b } => {
                let b = unpack_limbs(context, self.shape(), b)?;
                Ok(Digit::Expanded { seed: Some(*seed), b, a: uniform(context, self.shape(), *seed) })
            }
            Digit::Derived { b, a } => {
                let [b, a] = [b, a].map(|half| unpack_limbs(context, self.shape(), half));
                Ok(Digit::Expanded { seed: None, b: b?, a: a? })
            }
            Digit::Expanded { seed, b, a } => Ok(Digit::Expanded { seed: *seed, b: b.clone(), a: a.clone() }),
        });
        Ok(Self { digits: digits.collect::<Result<_, HeError>>()?, ..*self })
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.digits.iter().map(|digit| match digit {
            Digit::Packed { b, .. } => PublicSeed::BYTES + b.iter().map(Vec::len).sum::<usize>(),
            Digit::Derived { b, a } => b.iter().chain(a).map(Vec::len).sum(),
            Digit::Expanded { b, .. } => 16 * b.shape().limbs() * b.limb(0).len(),
        });
        bytes.sum()
    }

    /// Bytes of the packed key `id`: per digit a seed and one limb per prime.
    ///
    /// # Panics
    /// If [`KeyId::admit`] refuses `id`.
    pub fn packed_bytes(context: &Context, id: KeyId) -> usize {
        let gadget = Gadget::of(id, context.parameters());
        gadget.len() * (PublicSeed::BYTES + context.packed_bytes(gadget.shape))
    }

    /// Bytes of the derived key `id`: per digit two limbs per prime.
    ///
    /// # Panics
    /// If [`KeyId::admit`] refuses `id`.
    pub fn derived_bytes(context: &Context, id: KeyId) -> usize {
        let gadget = Gadget::of(id, context.parameters());
        gadget.len() * 2 * context.packed_bytes(gadget.shape)
    }

    /// Appends the packed form.
    ///
    /// # Errors
    /// [`HeError::Format`] for a derived key, which has no seeds: send its masters instead.
    pub fn write(&self, context: &Context, out: &mut Vec<u8>) -> Result<(), HeError> {
        for digit in &self.digits {
            let (seed, packed) = match digit {
                Digit::Packed { seed, b } => (seed, b),
                Digit::Expanded { seed: Some(seed), b, .. } => (seed, &pack_limbs(context, b)),
                Digit::Derived { .. } | Digit::Expanded { seed: None, .. } => {
                    let why = format!("the key for {} is derived and has no seeds: write its masters", self.id.kind);
                    return Err(HeError::Format { what: WHAT, why });
                }
            };
            out.extend_from_slice(&seed.to_bytes());
            packed.iter().for_each(|limb| out.extend_from_slice(limb));
        }
        Ok(())
    }

    /// Reads a packed key and checks every residue.
    ///
    /// # Errors
    /// Those of [`KeyId::admit`]; [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`]
    /// for bad bytes.
    pub fn read(context: &Context, id: KeyId, bytes: &[u8]) -> Result<Self, HeError> {
        id.admit(context.parameters())?;
        let gadget = Gadget::of(id, context.parameters());
        let expected = Self::packed_bytes(context, id);
        if bytes.len() != expected {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        }
        let shape = gadget.shape;
        let mut unread = bytes;
        let mut checked = context.spares().scratch();
        let mut digits = Vec::with_capacity(gadget.len());
        for _ in 0..gadget.len() {
            let (seed, tail) = unread.split_first_chunk().expect("the length has been checked");
            unread = tail;
            let mut b = Vec::with_capacity(shape.limbs());
            for k in 0..shape.limbs() {
                let (limb, tail) = unread.split_at(context.limb_bytes(shape, k));
                context.unpack_limb(shape, k, limb, WHAT, &mut checked)?;
                b.push(limb.to_vec());
                unread = tail;
            }
            digits.push(Digit::Packed { seed: PublicSeed::from_bytes(*seed), b });
        }
        Ok(Self { id, gadget, deviation: fresh_deviation(), digits })
    }

    /// A key of pairs `(b_j, a_j)` that were computed from other keys.
    pub(super) fn derived(context: &Context, id: KeyId, deviation: f64, pairs: &[[Poly<Ntt>; 2]]) -> Self {
        let gadget = Gadget::of(id, context.parameters());
        let digits = pairs.iter().map(|pair| pair.each_ref().map(|half| pack_limbs(context, half)));
        Self { id, gadget, deviation, digits: digits.map(|[b, a]| Digit::Derived { b, a }).collect() }
    }

    pub(super) fn pair(&self, context: &Context, j: usize) -> Result<[Poly<Ntt>; 2], HeError> {
        Ok(match &self.digits[j] {
            Digit::Packed { seed, b } => {
                [unpack_limbs(context, self.shape(), b)?, uniform(context, self.shape(), *seed)]
            }
            Digit::Derived { b, a } => {
                [unpack_limbs(context, self.shape(), b)?, unpack_limbs(context, self.shape(), a)?]
            }
            Digit::Expanded { b, a, .. } => [b.clone(), a.clone()],
        })
    }

    /// The first pair at `level`: of a key that switches nothing, a public key.
    ///
    /// # Errors
    /// [`HeError::Range`] if packed bytes are not residues.
    ///
    /// # Panics
    /// If `level` is above the key's.
    pub(in super::super) fn public(&self, context: &Context, level: usize) -> Result<PublicKey, HeError> {
        let [b, a] = self.pair(context, 0)?.map(|half| half.restricted(Shape::level(level)));
        Ok(PublicKey { b, a })
    }

    /// `(sum digit_j b_j, sum digit_j a_j)` over the digits of `c` ([`raise_digits`]), plus `P`
    /// times each half of `plus`. Limbs of digits are transformed right before use.
    ///
    /// # Panics
    /// If `c` is above the key's level.
    pub(in super::super) fn inner_product(
        &self,
        context: &Context,
        c: &Poly<Ntt>,
        plus: [Option<&Poly<Ntt>>; 2],
    ) -> [Poly<Ntt>; 2] {
        use rayon::prelude::*;
        let shape = self.gadget.at(c.shape().level).shape;
        let mut digits = lift_digits(context, c, self.gadget);
        let count = digits.len();
        let mut sums = [Poly::scratch(context, shape), Poly::scratch(context, shape)];
        let [sum_b, sum_a] = &mut sums;
        let by_limb = group_by_limb(&mut digits, shape.limbs()).into_par_iter();
        by_limb.zip(sum_b.limbs_mut()).zip(sum_a.limbs_mut()).for_each(|((limbs, (k, sum_b)), (_, sum_a))| {
            let unchanged: &[u64] = if k < c.shape().limbs() { c.limb(k) } else { &[] };
            let mut digit_words = vec![unchanged; count];
            for (j, limb) in limbs {
                context.table(shape, k).forward(limb);
                digit_words[j] = limb;
            }
            let mut sums = [sum_b, sum_a];
            self.limb_product(context, shape, k, &digit_words, &mut sums);
            for (sum, half) in sums.into_iter().zip(plus) {
                if let Some(half) = half.filter(|_| k < shape.level) {
                    let op = context.pointwise(shape, k);
                    let product = context.special_product(shape, self.gadget.own(), k);
                    op.add_scaled(sum, half.limb(k), op.modulus().shoup(product));
                }
            }
        });
        self.count_use(context, shape);
        sums
    }

    pub(in super::super) fn count_use(&self, context: &Context, shape: Shape) {
        let per_digit = self.memory_bytes() / self.digits.len().max(1);
        let digits = self.gadget.digits_at(shape.level).count();
        context.counters().count_key_switch(per_digit * digits * shape.limbs() / self.shape().limbs());
    }

    /// Limb `k` of `shape` of both inner products; `digit_words` holds that of each digit.
    ///
    /// # Panics
    /// If the digits are of a polynomial above the key's level.
    pub(in super::super) fn limb_product(
        &self,
        context: &Context,
        shape: Shape,
        k: usize,
        digit_words: &[&[u64]],
        sums: &mut [&mut [u64]; 2],
    ) {
        let fits = shape.level <= self.id.level && shape.special == self.shape().special;
        assert!(fits && self.gadget.digits_at(shape.level).count() == digit_words.len(), "digits fit the key");
        let used: Vec<usize> = self.gadget.digits_at(shape.level).map(|(j, _)| j).collect();
        // The key may have more primes than `shape`.
        let key_limb = if k < shape.level { k } else { self.id.level + k - shape.level };
        self.inner_limb(context, key_limb, &used, digit_words, sums);
    }

    /// The inner products mod the prime of the key's limb `limb`, part by part: words are used
    /// while in the cache.
    fn inner_limb(
        &self,
        context: &Context,
        limb: usize,
        used: &[usize],
        digit_words: &[&[u64]],
        [sum_b, sum_a]: &mut [&mut [u64]; 2],
    ) {
        let op = context.pointwise(self.shape(), limb);
        let mut halves: Vec<Halves<'_>> = used.iter().map(|&j| self.halves(context, &self.digits[j], limb)).collect();
        let mut room = vec![0; 2 * PART * digit_words.len()];
        for start in (0..context.degree()).step_by(PART) {
            let end = (start + PART).min(context.degree());
            let parts: Vec<[&[u64]; 2]> = halves
                .iter_mut()
                .zip(room.chunks_exact_mut(2 * PART))
                .map(|(halves, room)| halves.part(op.modulus(), start..end, room))
                .collect();
            let digits: Vec<&[u64]> = digit_words.iter().map(|digit| &digit[start..end]).collect();
            let mut sums = [&mut sum_b[start..end], &mut sum_a[start..end]];
            sums.iter_mut().for_each(|sum| sum.fill(0));
            op.dot_pair(&digits, &parts, sums);
        }
    }

    fn halves<'a>(&self, context: &Context, digit: &'a Digit, key_limb: usize) -> Halves<'a> {
        match digit {
            Digit::Expanded { b, a, .. } => Halves::Expanded { b: b.limb(key_limb), a: a.limb(key_limb) },
            Digit::Derived { b, a } => Halves::Derived { b: &b[key_limb], a: &a[key_limb] },
            Digit::Packed { seed, b } => {
                Halves::Packed { b: &b[key_limb], a: Box::new(uniform_parts(context, self.shape(), *seed, key_limb)) }
            }
        }
    }
}

const PART: usize = 512;

/// A limb of both halves of one digit, read in order.
enum Halves<'a> {
    Packed { b: &'a [u8], a: Box<UniformParts> },
    Derived { b: &'a [u8], a: &'a [u8] },
    Expanded { b: &'a [u64], a: &'a [u64] },
}

impl Halves<'_> {
    /// The words `part` of both halves, where the last call's ended; `room` has space for both.
    fn part<'a>(&'a mut self, modulus: &Modulus, part: Range<usize>, room: &'a mut [u64]) -> [&'a [u64]; 2] {
        match self {
            Self::Expanded { b, a } => [&b[part.clone()], &a[part]],
            Self::Packed { b, a } => {
                let [of_b, of_a] = split_room(room, part.len());
                unpack_part(modulus, b, &part, of_b);
                a.next(of_a);
                [of_b, of_a]
            }
            Self::Derived { b, a } => {
                let [of_b, of_a] = split_room(room, part.len());
                unpack_part(modulus, b, &part, of_b);
                unpack_part(modulus, a, &part, of_a);
                [of_b, of_a]
            }
        }
    }
}

fn split_room(room: &mut [u64], words: usize) -> [&mut [u64]; 2] {
    let (of_b, of_a) = room.split_at_mut(PART);
    [&mut of_b[..words], &mut of_a[..words]]
}

fn unpack_part(modulus: &Modulus, packed: &[u8], part: &Range<usize>, out: &mut [u64]) {
    // Each part begins at a whole byte.
    let bytes = part.start / 8 * modulus.bits() as usize..part.end / 8 * modulus.bits() as usize;
    pack::unpack_into(&packed[bytes], modulus.bits(), modulus.value() - 1, out)
        .expect("keys are checked when they are read");
}

fn pack_limbs(context: &Context, poly: &Poly<Ntt>) -> Vec<Vec<u8>> {
    let shape = poly.shape();
    let packed = (0..shape.limbs()).map(|k| {
        let mut out = Vec::with_capacity(context.limb_bytes(shape, k) + 8);
        poly.pack_limb(context, k, &mut out);
        out
    });
    packed.collect()
}

fn unpack_limbs(context: &Context, shape: Shape, limbs: &[Vec<u8>]) -> Result<Poly<Ntt>, HeError> {
    Poly::read(context, shape, |k, limb| context.unpack_limb(shape, k, &limbs[k], WHAT, limb))
}
