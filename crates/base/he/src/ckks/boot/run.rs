//! The steps of a bootstrap, run on a ciphertext.

use super::super::cipher::{Ciphertext, same_scale, same_slots};
use super::super::context::Context;
use super::super::eval::Evaluator;
use super::super::keys::KeyKind;
use super::super::noise::Estimate;
use super::super::params::SPARSE_WEIGHT;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::super::shape::Shape;
use super::plan::Bootstrapper;
use crate::HeError;

impl Bootstrapper {
    /// Bootstraps real slots of size 1 or less. Imaginary parts are lost.
    ///
    /// # Errors
    /// [`HeError::Level`] below [`Bootstrapper::level_in`]; [`HeError::Scale`] without the
    /// canonical scale of that level; [`HeError::SlotCount`]; missing keys, before anything is
    /// computed.
    pub fn bootstrap(&self, evaluator: &Evaluator<'_>, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        evaluator.keys().check(&self.keys())?;
        same_slots("bootstrapping", self.spec.slots, a.slots())?;
        let level = self.level_in();
        if a.level() < level {
            return Err(HeError::Level { what: "bootstrapping", need: level, have: a.level() });
        }
        let canonical = self.context.parameters().scale(level);
        let a = if a.level() > level { evaluator.adjust(a, level, canonical)? } else { a.clone() };
        same_scale("bootstrapping", canonical, a.scale())?;
        let a = evaluator.rotate(&a, self.turn)?;
        let lowest = self.to_coefficients.iter().try_fold(a, |a, part| evaluator.transform(&a, part))?;
        let raised = self.raise(evaluator, &lowest)?;
        let slots = self.to_slots.iter().try_fold(raised, |a, part| evaluator.transform(&a, part))?;
        let conjugate = evaluator.conjugate(&slots)?;
        let real = evaluator.add(&slots, &conjugate)?;
        let spread = (f64::from(SPARSE_WEIGHT as u32 + 1) / 12.0).sqrt() / self.range();
        let real = evaluator.add_real(&real, -0.25 / self.range()).with_magnitude(spread);
        self.eval_mod(evaluator, &real)
    }

    /// Reads residues mod `q_0` as integers at every prime, under the sparse secret.
    fn raise(&self, evaluator: &Evaluator<'_>, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        let context = &*self.context;
        let sparse = evaluator.switch_secret(a, KeyKind::ToSparse)?;
        let top = Shape::level(context.parameters().levels());
        let scale = Scale::ONE.times_prime(context.parameters().primes()[0]);
        let lifted =
            Ciphertext { c0: lift(context, sparse.c0, top), c1: lift(context, sparse.c1, top), scale, ..sparse };
        let mut sum = evaluator.switch_secret(&lifted, KeyKind::FromSparse)?;
        for k in self.trace() {
            let rotated = evaluator.apply(&sum, context.rotation_element(k))?;
            sum = evaluator.add(&sum, &rotated)?;
        }
        // Coefficients spread as sums of 33 uniform numbers, and each slot sums 2n coefficients.
        let spread = (f64::from(SPARSE_WEIGHT as u32 + 1) / 12.0 * 2.0 * self.spec.slots as f64).sqrt();
        sum.estimate = Estimate { magnitude: spread, ..sum.estimate };
        sum.scale = self.raised_scale();
        Ok(sum)
    }

    /// Removes the multiples of `q_0` from the slots.
    fn eval_mod(&self, evaluator: &Evaluator<'_>, x: &Ciphertext) -> Result<Ciphertext, HeError> {
        let parameters = self.context.parameters();
        let magnitude = 0.5f64.sqrt();
        let powers = evaluator.powers(x, &[&self.wave])?;
        let start = x.level() - self.wave.depth();
        let end = start - self.doublings();
        // The last doubling ends at the scale that includes the sine's slope; earlier scales
        // follow.
        let goal = match self.arcsine {
            Some(_) => parameters.scale(end),
            None => {
                let slope = Scale::new(self.slope()).expect("the slope is a positive number");
                parameters.scale(end).over(slope)
            }
        };
        let first = (end..start).fold(goal, |scale, level| scale.times_prime(parameters.primes()[level]).sqrt());
        let mut c = evaluator.polynomial_at(&powers, &self.wave, start, first)?.with_magnitude(magnitude);
        for _ in 0..self.doublings() {
            let mut square = evaluator.square_times(2, &c)?;
            square.linear = evaluator.add_real(&square.linear, -1.0);
            c = evaluator.finish(square)?.with_magnitude(magnitude);
        }
        let result = match &self.arcsine {
            None => Ciphertext { scale: parameters.scale(end), ..c },
            Some(arcsine) => {
                let sine = Ciphertext { scale: goal, ..c }.with_magnitude(self.slope());
                let powers = evaluator.powers(&sine, &[arcsine])?;
                let level = end - arcsine.depth();
                evaluator.polynomial_at(&powers, arcsine, level, parameters.scale(level))?
            }
        };
        // Values have size 1 at worst. The mean of their cubes is a third, and that of their
        // Chebyshev polynomials is the root of a half.
        let mean = if self.spec.arcsine { 0.5f64.sqrt() } else { 1.0 / 3.0 };
        Ok(result.with_magnitude(1.0).with_slot_error(self.approximation() * mean))
    }
}

/// Reads residues mod the first prime as centred integers at the primes of `target`.
fn lift(context: &Context, half: Poly<Ntt>, target: Shape) -> Poly<Ntt> {
    let shape = half.shape();
    let half = half.into_coeff(context);
    let modulus = context.modulus(shape, 0);
    let integers: Vec<i64> = half.limb(0).iter().map(|&x| modulus.centred(x)).collect();
    Poly::from_signed(context, target, &integers).into_ntt(context)
}
