//! Polynomials over the first `level` primes and the first `special` special primes.

use super::context::Context;
use super::limb::Limb;
use super::shape::Shape;
use crate::HeError;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use tacit_arith::pack;
use tacit_arith::pointwise::Pointwise;
pub use tacit_arith::rns::{Coeff, Ntt};
use zeroize::Zeroize;

/// A polynomial `[limbs, N]`: N words in `[0, p)` for each prime of its shape, special primes last.
/// Clones share residues until they are written to.
pub struct Poly<R> {
    limbs: Vec<Arc<Limb>>,
    shape: Shape,
    representation: PhantomData<fn() -> R>,
}

impl<R> Clone for Poly<R> {
    fn clone(&self) -> Self {
        Self::from_limbs(self.limbs.clone(), self.shape)
    }
}

impl<R> PartialEq for Poly<R> {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.limbs.iter().zip(&other.limbs).all(|(x, y)| ***x == ***y)
    }
}

impl<R> Eq for Poly<R> {}

impl<R> Poly<R> {
    /// The zero polynomial.
    pub fn zero(context: &Context, shape: Shape) -> Self {
        Self::from_limbs((0..shape.limbs()).map(|_| Arc::new(context.spares().zero())).collect(), shape)
    }

    /// A polynomial with arbitrary words, which the caller must write.
    pub(super) fn scratch(context: &Context, shape: Shape) -> Self {
        Self::from_limbs((0..shape.limbs()).map(|_| Arc::new(context.spares().scratch())).collect(), shape)
    }

    /// As [`Poly::scratch`], with `own_limbs` of `source`, which must not be written to.
    pub(super) fn scratch_around<S>(
        context: &Context,
        shape: Shape,
        own_limbs: &Range<usize>,
        source: &Poly<S>,
    ) -> Self {
        let limbs = (0..shape.limbs()).map(|k| {
            if own_limbs.contains(&k) { source.limbs[k].clone() } else { Arc::new(context.spares().scratch()) }
        });
        Self::from_limbs(limbs.collect(), shape)
    }

    /// Makes a polynomial from words that `limb` writes.
    pub(super) fn read(
        context: &Context,
        shape: Shape,
        mut limb: impl FnMut(usize, &mut [u64]) -> Result<(), HeError>,
    ) -> Result<Self, HeError> {
        let mut poly = Self::scratch(context, shape);
        poly.slices_mut().enumerate().try_for_each(|(k, words)| limb(k, words))?;
        Ok(poly)
    }

    fn from_limbs(limbs: Vec<Arc<Limb>>, shape: Shape) -> Self {
        Self { limbs, shape, representation: PhantomData }
    }

    /// Primes of the polynomial.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The N words mod the `k`-th prime of its shape.
    ///
    /// # Panics
    /// If the shape has fewer primes.
    pub fn limb(&self, k: usize) -> &[u64] {
        &self.limbs[k]
    }

    pub(super) fn slices_mut(&mut self) -> impl Iterator<Item = &mut [u64]> {
        self.limbs.iter_mut().map(|limb| &mut **Arc::make_mut(limb))
    }

    pub(super) fn slices_around(&mut self, own_limbs: Range<usize>) -> impl Iterator<Item = (usize, &mut [u64])> {
        let others = self.limbs.iter_mut().enumerate().filter(move |(k, _)| !own_limbs.contains(k));
        others.map(|(k, limb)| (k, &mut **Arc::make_mut(limb)))
    }

    pub(super) fn limbs_mut(&mut self) -> impl IndexedParallelIterator<Item = (usize, &mut [u64])> {
        self.limbs.par_iter_mut().enumerate().map(|(k, limb)| (k, &mut **Arc::make_mut(limb)))
    }

    /// All limbs, each to be replaced as a whole.
    pub(super) fn places(&mut self) -> impl IndexedParallelIterator<Item = (usize, &mut Arc<Limb>)> {
        self.limbs.par_iter_mut().enumerate()
    }

    /// The residues of `shape`.
    ///
    /// # Panics
    /// If the polynomial lacks a prime of `shape`.
    #[must_use]
    pub fn restricted(&self, shape: Shape) -> Self {
        assert!(
            shape.level <= self.shape.level && shape.special <= self.shape.special,
            "a restriction has no more primes"
        );
        let special = &self.limbs[self.shape.level..][..shape.special];
        Self::from_limbs(self.limbs[..shape.level].iter().chain(special).cloned().collect(), shape)
    }

    /// Drops the primes above `level`, without special primes.
    pub(super) fn truncate(&mut self, level: usize) {
        debug_assert!(level <= self.shape.level && self.shape.special == 0);
        self.limbs.truncate(level);
        self.shape.level = level;
    }

    /// The limb of `rhs` at the prime of limb `k` of `shape`.
    fn partner<S>(shape: Shape, rhs: &Poly<S>, k: usize) -> &[u64] {
        rhs.limb(if k < shape.level { k } else { rhs.shape.level + k - shape.level })
    }

    /// Applies a kernel to each limb and its partner.
    fn zip(&mut self, rhs: &Self, context: &Context, op: impl Fn(&Pointwise, &mut [u64], &[u64]) + Sync) {
        let shape = self.shape;
        debug_assert!(shape.level <= rhs.shape.level && shape.special <= rhs.shape.special);
        self.limbs_mut().for_each(|(k, limb)| op(context.pointwise(shape, k), limb, Self::partner(shape, rhs, k)));
    }

    /// `self + rhs`; `rhs` may have more primes.
    pub fn add_assign(&mut self, rhs: &Self, context: &Context) {
        self.zip(rhs, context, Pointwise::add);
    }

    /// `self - rhs`; `rhs` may have more primes.
    pub fn sub_assign(&mut self, rhs: &Self, context: &Context) {
        self.zip(rhs, context, Pointwise::sub);
    }

    /// `-self`.
    pub fn negate(&mut self, context: &Context) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| context.pointwise(shape, k).neg(limb));
    }

    /// Multiplies by an integer, `factor(k)` mod the `k`-th prime.
    pub(super) fn scale_assign(&mut self, context: &Context, factor: impl Fn(usize) -> u64 + Sync) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let op = context.pointwise(shape, k);
            op.scale(limb, op.modulus().shoup(factor(k)));
        });
    }
}

impl Poly<Coeff> {
    /// Reduces N signed coefficients, without branches on them.
    ///
    /// # Panics
    /// If there are not N coefficients.
    pub fn from_signed(context: &Context, shape: Shape, coefficients: &[i64]) -> Self {
        assert_eq!(coefficients.len(), context.degree(), "one value per coefficient");
        let mut poly = Self::scratch(context, shape);
        poly.limbs_mut().for_each(|(k, limb)| context.pointwise(shape, k).reduce_signed(coefficients, limb));
        poly
    }

    /// Transforms to NTT form in place.
    #[must_use]
    pub fn into_ntt(mut self, context: &Context) -> Poly<Ntt> {
        let shape = self.shape;
        context.counters().count_ntts(shape.limbs());
        self.limbs_mut().for_each(|(k, limb)| context.table(shape, k).forward(limb));
        Poly::from_limbs(self.limbs, shape)
    }
}

impl Poly<Ntt> {
    /// Transforms back to coefficients in place.
    #[must_use]
    pub fn into_coeff(mut self, context: &Context) -> Poly<Coeff> {
        let shape = self.shape;
        context.counters().count_ntts(shape.limbs());
        self.limbs_mut().for_each(|(k, limb)| context.table(shape, k).inverse(limb));
        Poly::from_limbs(self.limbs, shape)
    }

    /// Multiplies by `rhs`, which may have more primes.
    pub fn mul_assign(&mut self, rhs: &Self, context: &Context) {
        let shape = self.shape;
        debug_assert!(shape.level <= rhs.shape.level && shape.special <= rhs.shape.special);
        self.zip(rhs, context, Pointwise::mul);
    }

    /// Appends the packed limb `k`.
    pub(super) fn pack_limb(&self, context: &Context, k: usize, out: &mut Vec<u8>) {
        pack::pack(self.limb(k).iter().copied(), context.modulus(self.shape, k).bits(), out);
    }

    /// Adds an integer, `value(k)` mod the `k`-th prime, at every NTT point.
    pub(super) fn add_constant(&mut self, context: &Context, value: impl Fn(usize) -> u64 + Sync) {
        let shape = self.shape;
        self.limbs_mut().for_each(|(k, limb)| {
            let modulus = context.modulus(shape, k);
            let value = value(k);
            limb.iter_mut().for_each(|x| *x = modulus.add(*x, value));
        });
    }

    /// The image under `X -> X^element`, a permutation of the NTT order.
    #[must_use]
    pub fn automorphism(&self, context: &Context, element: u32) -> Self {
        let galois = context.galois(element);
        let mut image = Self::scratch(context, self.shape);
        image.limbs_mut().for_each(|(k, limb)| galois.apply(self.limb(k), limb));
        image
    }
}

impl<R> Zeroize for Poly<R> {
    fn zeroize(&mut self) {
        // Shared limbs are left to their other owners.
        self.limbs.iter_mut().filter_map(Arc::get_mut).for_each(|limb| (**limb).zeroize());
    }
}
