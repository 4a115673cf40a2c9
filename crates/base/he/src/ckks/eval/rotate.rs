//! Rotations and conjugation, single or many of one ciphertext (hoisted, [HS18]).

use super::super::cipher::Ciphertext;
use super::super::keys::{KeyKind, SwitchKey};
use super::super::limb::Limb;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::{Evaluator, Raised};
use crate::HeError;
use rayon::prelude::*;
use std::sync::Arc;
use tacit_arith::ntt::Galois;

impl Evaluator<'_> {
    /// Rotates the slots by `k` places to the left: slot 0 takes the value of slot k.
    ///
    /// # Errors
    /// [`HeError::MissingKey`] or [`HeError::KeyTooLow`] without a key for the level.
    pub fn rotate(&self, a: &Ciphertext, k: i64) -> Result<Ciphertext, HeError> {
        self.apply(a, self.rotation(a.slots, k))
    }

    /// Conjugates the slots.
    ///
    /// # Errors
    /// [`HeError::MissingKey`] or [`HeError::KeyTooLow`] without a key for the level.
    pub fn conjugate(&self, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.apply(a, self.context.conjugation_element())
    }

    pub(super) fn rotation(&self, slots: usize, k: i64) -> u32 {
        self.context.rotation_element(k.rem_euclid(slots as i64))
    }

    pub(in super::super) fn apply(&self, a: &Ciphertext, element: u32) -> Result<Ciphertext, HeError> {
        if element == 1 {
            return Ok(a.clone());
        }
        let key = self.key(KeyKind::Galois(element), a.level())?;
        let sums = key.inner_product(self.context, &a.c1, [None; 2]);
        Ok(self.switched(a, &sums, element, &key))
    }

    /// Rotates by several distances, and raises the digits once.
    ///
    /// # Errors
    /// [`HeError::MissingKey`], [`HeError::KeyTooLow`]; [`HeError::KeyAlpha`] if only keys with
    /// another number of special primes reach the level.
    pub fn rotate_many(&self, a: &Ciphertext, steps: &[i64]) -> Result<Vec<Ciphertext>, HeError> {
        let level = a.level();
        let alpha = self.context.parameters().alpha(level);
        let raised = self.raise(a, alpha);
        let rotated = steps.iter().map(|&k| match self.rotation(a.slots, k) {
            1 => Ok(a.clone()),
            element => {
                let key = self.keys.get_with(KeyKind::Galois(element), level, alpha)?;
                let sums = self.hoisted_product(&raised, &key);
                Ok(self.switched(a, &sums, element, &key))
            }
        });
        rotated.collect()
    }

    /// The inner products of raised digits and a key.
    fn hoisted_product(&self, raised: &Raised, key: &SwitchKey) -> [Poly<Ntt>; 2] {
        let shape = raised.digits()[0].shape();
        let mut sums = [Poly::scratch(self.context, shape), Poly::scratch(self.context, shape)];
        let [sum_b, sum_a] = &mut sums;
        sum_b.limbs_mut().zip(sum_a.limbs_mut()).for_each(|((k, sum_b), (_, sum_a))| {
            let digit_limbs: Vec<&[u64]> = raised.digits().iter().map(|digit| digit.limb(k)).collect();
            key.limb_product(self.context, shape, k, &digit_limbs, &mut [sum_b, sum_a]);
        });
        key.count_use(self.context, shape);
        sums
    }

    /// The permutation and the key of a rotation by `k`, for digits raised to `alpha` special
    /// primes.
    pub(super) fn hoisted_step(&self, a: &Ciphertext, k: i64, alpha: usize) -> Result<HoistedStep, HeError> {
        let element = self.rotation(a.slots, k);
        if element == 1 {
            return Ok(HoistedStep { galois: None, key: None });
        }
        let key = self.keys.get_with(KeyKind::Galois(element), a.level(), alpha)?;
        Ok(HoistedStep { galois: Some(self.context.galois(element)), key: Some(key) })
    }

    /// Limb `k` of both halves of a rotation, `P` times too large. `digit_limbs` holds that of each
    /// digit.
    pub(super) fn hoisted_limb(
        &self,
        a: &Ciphertext,
        shape: Shape,
        k: usize,
        digit_limbs: &[&[u64]],
        step: &HoistedStep,
    ) -> [Limb; 2] {
        let (context, op) = (self.context, self.context.pointwise(shape, k));
        let product = op.modulus().shoup(context.special_product(shape, 0..shape.special, k));
        let (Some(galois), Some(key)) = (&step.galois, &step.key) else {
            return [&a.c0, &a.c1].map(|half| {
                if k >= shape.level {
                    return context.spares().zero();
                }
                let mut limb = context.spares().copy(half.limb(k));
                op.scale(&mut limb, product);
                limb
            });
        };
        let mut sums = [(); 2].map(|()| context.spares().scratch());
        let [sum_b, sum_a] = &mut sums;
        key.limb_product(context, shape, k, digit_limbs, &mut [&mut *sum_b, &mut *sum_a]);
        if k < shape.level {
            op.add_scaled(sum_b, a.c0.limb(k), product);
        }
        sums.map(|sum| {
            let mut image = context.spares().scratch();
            galois.apply(&sum, &mut image);
            image
        })
    }

    /// Adds to `sum` the rotation by `k` of an unfinished pair `half`, at the primes of the key and
    /// `P` times too large.
    pub(super) fn add_rotated(
        &self,
        slots: usize,
        half: &[Poly<Ntt>; 2],
        alpha: usize,
        k: i64,
        sum: &mut [Poly<Ntt>; 2],
    ) -> Result<(), HeError> {
        let context = self.context;
        let element = self.rotation(slots, k);
        let low = context.divide(&half[1], 0);
        let key = self.keys.get_with(KeyKind::Galois(element), low.shape().level, alpha)?;
        let galois = context.galois(element);
        let mut rotated = key.inner_product(context, &low, [None; 2]);
        rotated[0].add_assign(&half[0], context);
        for (sum, rotated) in sum.iter_mut().zip(&rotated) {
            let shape = sum.shape();
            sum.limbs_mut().for_each(|(k, sum)| {
                let mut image = context.spares().scratch();
                galois.apply(rotated.limb(k), &mut image);
                context.pointwise(shape, k).add(sum, &image);
            });
        }
        Ok(())
    }
}

/// One of several rotations of one ciphertext: the identity, or a permutation and a key.
pub(super) struct HoistedStep {
    galois: Option<Arc<Galois>>,
    pub(super) key: Option<Arc<SwitchKey>>,
}
