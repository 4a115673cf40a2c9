//! Sums, products and rescaling. Operands must agree in level, scale and slots.

use super::super::cipher::{Ciphertext, Plaintext, same_level, same_scale, same_slots};
use super::super::context::Context;
use super::super::keys::KeyKind;
use super::super::noise::{Estimate, rounding_deviation};
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::Evaluator;
use crate::HeError;
use rayon::prelude::*;
use tacit_arith::modulus::Modulus;

/// Least factor of a change of scale: rounding it changes it by at most 2^-20.
const LEAST_FACTOR: f64 = 524_288.0;

/// Rounds a real number to an integer mod a prime. Exact for any double.
pub(super) fn reduce_real(modulus: &Modulus, value: f64) -> u64 {
    let rounded = value.round_ties_even();
    // The exponent leaves at most 62 bits.
    let exponent = (rounded.abs().log2().floor() - 61.0).max(0.0) as i32;
    let mantissa = (rounded / 2f64.powi(exponent)) as i64;
    modulus.mul(modulus.reduce_i64(mantissa), modulus.pow_vartime(2, exponent as u64))
}

/// A product `c0 + c1 s + c2 s^2`. Others can still be added to the first two, a ciphertext.
pub(in super::super) struct Product {
    pub(in super::super) linear: Ciphertext,
    pub(super) c2: Poly<Ntt>,
}

impl Product {
    /// Adds a product of the same level and scale.
    pub(super) fn add_assign(&mut self, rhs: &Self, context: &Context) {
        self.linear.c0.add_assign(&rhs.linear.c0, context);
        self.linear.c1.add_assign(&rhs.linear.c1, context);
        self.c2.add_assign(&rhs.c2, context);
        self.linear.estimate = self.linear.estimate.plus(rhs.linear.estimate);
    }
}

impl Evaluator<'_> {
    fn check_match(what: &'static str, a: &Ciphertext, b: &Ciphertext) -> Result<(), HeError> {
        same_level(what, a.level(), b.level())?;
        same_slots(what, a.slots, b.slots)
    }

    /// `a + b`.
    ///
    /// # Errors
    /// [`HeError::Level`], [`HeError::Scale`] or [`HeError::SlotCount`] if the operands differ in
    /// it.
    pub fn add(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.combine("addition", a, b, Poly::add_assign)
    }

    /// Applies `op` to both halves; errors are independent.
    fn combine(
        &self,
        what: &'static str,
        a: &Ciphertext,
        b: &Ciphertext,
        op: impl Fn(&mut Poly<Ntt>, &Poly<Ntt>, &Context),
    ) -> Result<Ciphertext, HeError> {
        Self::check_match(what, a, b)?;
        same_scale(what, a.scale, b.scale)?;
        let mut result = a.clone();
        op(&mut result.c0, &b.c0, self.context);
        op(&mut result.c1, &b.c1, self.context);
        result.estimate = a.estimate.plus(b.estimate);
        Ok(result)
    }

    /// `a - b`.
    ///
    /// # Errors
    /// As [`Evaluator::add`].
    pub fn sub(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.combine("subtraction", a, b, Poly::sub_assign)
    }

    /// `-a`.
    #[must_use]
    pub fn negate(&self, a: &Ciphertext) -> Ciphertext {
        let mut negated = a.clone();
        negated.c0.negate(self.context);
        negated.c1.negate(self.context);
        negated
    }

    /// `a + p`.
    ///
    /// # Errors
    /// As [`Evaluator::add`].
    pub fn add_plain(&self, a: &Ciphertext, p: &Plaintext) -> Result<Ciphertext, HeError> {
        const WHAT: &str = "addition of a plaintext";
        same_level(WHAT, a.level(), p.level())?;
        same_slots(WHAT, a.slots, p.slots)?;
        same_scale(WHAT, a.scale, p.scale)?;
        let mut sum = a.clone();
        sum.c0.add_assign(&p.poly, self.context);
        sum.estimate = a.estimate.plus(p.estimate);
        Ok(sum)
    }

    /// `a + value` in every slot.
    #[must_use]
    pub fn add_real(&self, a: &Ciphertext, value: f64) -> Ciphertext {
        let mut sum = a.clone();
        let (shape, scaled) = (a.c0.shape(), value * a.scale.to_f64());
        sum.c0.add_constant(self.context, |k| reduce_real(self.context.modulus(shape, k), scaled));
        sum.estimate.magnitude = a.estimate.magnitude.hypot(value);
        sum
    }

    /// `a p`; the scale is the product of both scales.
    ///
    /// # Errors
    /// [`HeError::Level`] or [`HeError::SlotCount`] if the operands differ in it.
    pub fn mul_plain(&self, a: &Ciphertext, p: &Plaintext) -> Result<Ciphertext, HeError> {
        const WHAT: &str = "multiplication by a plaintext";
        same_level(WHAT, a.level(), p.level())?;
        same_slots(WHAT, a.slots, p.slots)?;
        let mut product = a.clone();
        product.c0.mul_assign(&p.poly, self.context);
        product.c1.mul_assign(&p.poly, self.context);
        product.scale = a.scale.times(p.scale);
        product.estimate = a.estimate.times(a.scale.to_f64(), p.estimate, p.scale.to_f64());
        Ok(product)
    }

    /// `a` times a real number, rounded at `scale`, by which the scale is multiplied.
    #[must_use]
    pub fn mul_real(&self, a: &Ciphertext, value: f64, scale: Scale) -> Ciphertext {
        let scaled = value * scale.to_f64();
        let mut product = self.times_integer(a, |m| reduce_real(m, scaled));
        product.scale = a.scale.times(scale);
        let constant = Estimate { deviation: 0.0, magnitude: value.abs() };
        product.estimate = a.estimate.times(a.scale.to_f64(), constant, scale.to_f64());
        product
    }

    /// `a` times a small integer, at the same scale.
    #[must_use]
    pub fn mul_integer(&self, a: &Ciphertext, value: i64) -> Ciphertext {
        let mut product = self.times_integer(a, |m| m.reduce_i64(value));
        product.estimate = a.estimate.scaled(value as f64);
        product
    }

    /// Multiplies both halves by an integer, which `factor` reduces.
    fn times_integer(&self, a: &Ciphertext, factor: impl Fn(&Modulus) -> u64 + Sync) -> Ciphertext {
        let (mut product, context, shape) = (a.clone(), self.context, a.c0.shape());
        for half in [&mut product.c0, &mut product.c1] {
            half.scale_assign(context, |k| factor(context.modulus(shape, k)));
        }
        product
    }

    /// `a b`, relinearised; the scale is the product of both scales.
    ///
    /// # Errors
    /// [`HeError::Level`] or [`HeError::SlotCount`] if the operands differ in it;
    /// [`HeError::MissingKey`] or [`HeError::KeyTooLow`] without a relinearisation key for the
    /// level.
    pub fn mul(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.relinearise_product(self.product(a, b)?)
    }

    /// `a^2`, relinearised; the scale is squared.
    ///
    /// # Errors
    /// [`HeError::MissingKey`] or [`HeError::KeyTooLow`] without a relinearisation key for the
    /// level.
    pub fn square(&self, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.relinearise_product(self.square_times(1, a)?)
    }

    /// `a b` before relinearisation.
    pub(super) fn product(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Product, HeError> {
        self.product_times(1, a, b)
    }

    /// `factor a b` before relinearisation.
    pub(super) fn product_times(&self, factor: u64, a: &Ciphertext, b: &Ciphertext) -> Result<Product, HeError> {
        Self::check_match("multiplication", a, b)?;
        let context = self.context;
        let shape = a.c0.shape();
        let [mut c0, mut c1, mut c2] = [(); 3].map(|()| Poly::scratch(context, shape));
        c0.limbs_mut().zip(c1.limbs_mut()).zip(c2.limbs_mut()).for_each(|(((k, c0), (_, c1)), (_, c2))| {
            let halves = [[&a.c0, &a.c1], [&b.c0, &b.c1]].map(|pair| pair.map(|half| half.limb(k)));
            let op = context.pointwise(shape, k);
            op.product_of_pairs(halves[0], halves[1], [&mut *c0, &mut *c1, &mut *c2]);
            if factor != 1 {
                [c0, c1, c2].into_iter().for_each(|part| op.scale(part, op.modulus().shoup(factor)));
            }
        });
        let estimate = a.estimate.times(a.scale.to_f64(), b.estimate, b.scale.to_f64()).scaled(factor as f64);
        let linear = Ciphertext { c0, c1, scale: a.scale.times(b.scale), slots: a.slots, estimate };
        Ok(Product { linear, c2 })
    }

    /// `factor a^2` before relinearisation.
    pub(in super::super) fn square_times(&self, factor: u64, a: &Ciphertext) -> Result<Product, HeError> {
        let mut square = self.product_times(factor, a, a)?;
        // Both factors have the same error, so it doubles.
        let deviation = 2.0 * a.estimate.deviation * a.estimate.magnitude * a.scale.to_f64();
        square.linear.estimate.deviation = factor as f64 * deviation;
        Ok(square)
    }

    fn relinearise_product(&self, product: Product) -> Result<Ciphertext, HeError> {
        let Product { mut linear, c2 } = product;
        let key = self.key(KeyKind::Relinearise, linear.level())?;
        let sums = key.inner_product(self.context, &c2, [None; 2]);
        for (half, sum) in [&mut linear.c0, &mut linear.c1].into_iter().zip(&sums) {
            half.add_assign(&self.context.divide(sum, 0), self.context);
        }
        linear.estimate = linear.estimate.with_error(self.switch_error(linear.level(), key.alpha(), key.deviation()));
        Ok(linear)
    }

    /// Relinearises and rescales by one division.
    pub(in super::super) fn finish(&self, product: Product) -> Result<Ciphertext, HeError> {
        let Product { linear, c2 } = product;
        let level = linear.level();
        if level < 2 {
            return Err(HeError::Level { what: "rescaling", need: 2, have: level });
        }
        let key = self.key(KeyKind::Relinearise, level)?;
        let sums = key.inner_product(self.context, &c2, [Some(&linear.c0), Some(&linear.c1)]);
        let estimate = linear.estimate.with_error(self.digits_error(level, key.alpha(), key.deviation()));
        let [c0, c1] = sums.map(|half| self.context.divide(&half, 1));
        Ok(self.set_divided_estimate(Ciphertext { c0, c1, estimate, ..linear }, level))
    }

    /// Sets scale and error of a ciphertext that was divided by the last prime of `level`.
    fn set_divided_estimate(&self, a: Ciphertext, level: usize) -> Ciphertext {
        let prime = self.context.parameters().primes()[level - 1];
        let estimate = Estimate { deviation: a.estimate.deviation / prime as f64, ..a.estimate };
        let estimate = estimate.with_error(rounding_deviation(self.context.degree()));
        Ciphertext { scale: a.scale.over_prime(prime), estimate, ..a }
    }

    /// Divides by the last prime of the level, which lowers level and scale.
    ///
    /// # Errors
    /// [`HeError::Level`] at level 1.
    pub fn rescale(&self, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        let level = a.level();
        if level < 2 {
            return Err(HeError::Level { what: "rescaling", need: 2, have: level });
        }
        let [c0, c1] = [&a.c0, &a.c1].map(|half| self.context.rescaled(half));
        Ok(self.set_divided_estimate(Ciphertext { c0, c1, ..*a }, level))
    }

    /// `a b`, relinearised and rescaled.
    ///
    /// # Errors
    /// As [`Evaluator::mul`] and [`Evaluator::rescale`].
    pub fn mul_rescale(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.finish(self.product(a, b)?)
    }

    /// Brings `a` to `level` with exactly `scale`: drops the primes above, and if the scale
    /// differs, multiplies by the quotient and rescales, which takes a level.
    ///
    /// # Errors
    /// [`HeError::Level`] if `a` is lower, or at that level with another scale; [`HeError::Scale`]
    /// if the quotient is too small to be rounded.
    pub fn adjust(&self, a: &Ciphertext, level: usize, scale: Scale) -> Result<Ciphertext, HeError> {
        if a.scale.agrees(scale) {
            return a.drop_to(level);
        }
        let one_above = a.drop_to(level + 1)?;
        let prime = self.context.parameters().primes()[level];
        let factor = scale.times_prime(prime).over(a.scale);
        if factor.to_f64() < LEAST_FACTOR {
            return Err(HeError::Scale { what: "adjust", left: a.scale.to_f64(), right: scale.to_f64() });
        }
        // The rounded factor would shift the value; the quotient is as exact as scales are.
        let mut adjusted = self.rescale(&self.mul_real(&one_above, 1.0, factor))?;
        adjusted.scale = scale;
        Ok(adjusted)
    }
}
