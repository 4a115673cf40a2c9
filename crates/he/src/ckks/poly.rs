//! Polynomials over any subset of the chain: the first `level` primes and the first `special` special ones.

use super::context::Context;
use super::shape::Shape;
use rayon::prelude::*;
use std::marker::PhantomData;
pub use tacit_arith::rns::{Coeff, Ntt};
use zeroize::Zeroize;

/// A polynomial `[limbs, N]`: N words in `[0, p)` for each prime of its shape, special primes last, in one
/// buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct Poly<R> {
    words: Vec<u64>,
    shape: Shape,
    representation: PhantomData<fn() -> R>,
}

impl<R> Poly<R> {
    /// Zero.
    #[must_use]
    pub fn zero(context: &Context, shape: Shape) -> Self {
        Self::of(vec![0; shape.limbs() * context.degree()], shape)
    }

    pub(super) fn of(words: Vec<u64>, shape: Shape) -> Self {
        Self { words, shape, representation: PhantomData }
    }

    /// Its primes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    fn degree(&self) -> usize {
        self.words.len() / self.shape.limbs()
    }

    /// The N words mod the `k`-th prime of its shape.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn limb(&self, k: usize) -> &[u64] {
        let degree = self.degree();
        &self.words[k * degree..][..degree]
    }

    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Its limbs, to be written side by side.
    pub(super) fn limbs_mut(&mut self) -> impl IndexedParallelIterator<Item = (usize, &mut [u64])> {
        let degree = self.degree();
        self.words.par_chunks_exact_mut(degree).enumerate()
    }

    /// Forgets all residues but those of `shape`, which must be among them.
    ///
    /// # Panics
    /// If they are not.
    #[must_use]
    pub fn restricted(&self, shape: Shape) -> Self {
        assert!(
            shape.level <= self.shape.level && shape.special <= self.shape.special,
            "a restriction has no more primes"
        );
        let degree = self.degree();
        let mut words = Vec::with_capacity(shape.limbs() * degree);
        words.extend_from_slice(&self.words[..shape.level * degree]);
        words.extend_from_slice(&self.words[self.shape.level * degree..][..shape.special * degree]);
        Self::of(words, shape)
    }

    /// Lets go of the primes above `level` (and has no special ones).
    pub(super) fn truncate(&mut self, level: usize) {
        let degree = self.degree();
        debug_assert!(level <= self.shape.level && self.shape.special == 0);
        self.words.truncate(level * degree);
        self.shape.level = level;
    }

    /// The limb of `other` that has the same prime as limb `k` of `self`.
    fn partner<S>(shape: Shape, other: &Poly<S>, k: usize) -> &[u64] {
        other.limb(if k < shape.level { k } else { other.shape.level + k - shape.level })
    }

    fn zip(
        &mut self,
        other: &Self,
        context: &Context,
        op: impl Fn(&tacit_arith::modulus::Modulus, u64, u64) -> u64 + Sync,
    ) {
        let shape = self.shape;
        debug_assert!(shape.level <= other.shape.level && shape.special <= other.shape.special);
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            limb.iter_mut().zip(Self::partner(shape, other, k)).for_each(|(x, &y)| *x = op(modulus, *x, y));
        });
    }

    /// `self + other`; `other` may have more primes.
    pub fn add_assign(&mut self, other: &Self, context: &Context) {
        self.zip(other, context, |m, x, y| m.add(x, y));
    }

    /// `self - other`; `other` may have more primes.
    pub fn sub_assign(&mut self, other: &Self, context: &Context) {
        self.zip(other, context, |m, x, y| m.sub(x, y));
    }

    /// `-self`.
    pub fn negate(&mut self, context: &Context) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            limb.iter_mut().for_each(|x| *x = modulus.neg(*x));
        });
    }

    /// Multiplies by an integer, given mod each prime by `factor(k)`.
    pub(super) fn scale_assign(&mut self, context: &Context, factor: impl Fn(usize) -> u64 + Sync) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            let factor = modulus.shoup(factor(k));
            limb.iter_mut().for_each(|x| *x = modulus.mul_shoup(*x, factor));
        });
    }

    /// Adds `other` times an integer, given mod each prime by `factor(k)`; `other` may have more primes.
    pub(super) fn add_scaled(&mut self, other: &Self, context: &Context, factor: impl Fn(usize) -> u64 + Sync) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            let factor = modulus.shoup(factor(k));
            let other = Self::partner(shape, other, k);
            limb.iter_mut().zip(other).for_each(|(x, &y)| *x = modulus.add(*x, modulus.mul_shoup(y, factor)));
        });
    }
}

impl Poly<Coeff> {
    /// Reduces N signed coefficients mod each prime, without branches on them.
    ///
    /// # Panics
    /// If there are not N of them.
    #[must_use]
    pub fn from_signed(context: &Context, shape: Shape, coefficients: &[i64]) -> Self {
        assert_eq!(coefficients.len(), context.degree(), "one value per coefficient");
        let mut poly = Self::zero(context, shape);
        poly.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            limb.iter_mut().zip(coefficients).for_each(|(x, &v)| *x = modulus.reduce_i64(v));
        });
        poly
    }

    /// Transforms in place.
    #[must_use]
    pub fn into_ntt(mut self, context: &Context) -> Poly<Ntt> {
        let shape = self.shape;
        context.counters().count_ntts(shape.limbs());
        self.limbs_mut().for_each(|(k, limb)| context.table(shape, k).forward(limb));
        Poly::of(std::mem::take(&mut self.words), shape)
    }
}

impl Poly<Ntt> {
    /// Transforms back in place.
    #[must_use]
    pub fn into_coeff(mut self, context: &Context) -> Poly<Coeff> {
        let shape = self.shape;
        context.counters().count_ntts(shape.limbs());
        self.limbs_mut().for_each(|(k, limb)| context.table(shape, k).inverse(limb));
        Poly::of(std::mem::take(&mut self.words), shape)
    }

    /// Product; `other` may have more primes.
    pub fn mul_assign(&mut self, other: &Self, context: &Context) {
        let shape = self.shape;
        debug_assert!(shape.level <= other.shape.level && shape.special <= other.shape.special);
        self.limbs_mut().for_each(|(k, limb)| context.table(shape, k).mul_assign(limb, Self::partner(shape, other, k)));
    }

    /// Adds a real constant that has been rounded to an integer: its value is the same at every NTT point.
    pub(super) fn add_constant(&mut self, context: &Context, value: impl Fn(usize) -> u64 + Sync) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            let value = value(k);
            limb.iter_mut().for_each(|x| *x = modulus.add(*x, value));
        });
    }

    /// The image under `X -> X^element`, by a permutation of the NTT order.
    #[must_use]
    pub fn automorphism(&self, context: &Context, element: u32) -> Self {
        let galois = context.galois(element);
        let mut image = Self::zero(context, self.shape);
        image.limbs_mut().for_each(|(k, limb)| galois.apply(self.limb(k), limb));
        image
    }
}

impl<R> Zeroize for Poly<R> {
    fn zeroize(&mut self) {
        self.words.zeroize();
    }
}
