//! Division by the last primes of a polynomial: mod down and rescaling are one.

use super::context::Context;
use super::poly::{Ntt, Poly};
use super::shape::Shape;
use rayon::prelude::*;

impl Context {
    /// Mod down: `round(x / D)` with D the product of all special primes of `x` and of its last `drop`
    /// others. One transform for each prime of `x`.
    ///
    /// # Panics
    /// If that leaves no prime.
    #[must_use]
    pub fn divide(&self, x: &Poly<Ntt>, drop: usize) -> Poly<Ntt> {
        let shape = x.shape();
        assert!(drop < shape.level, "division leaves a prime");
        let kept = shape.level - drop;
        let division = self.division(shape, drop);
        let degree = self.degree();
        let mut low = Vec::with_capacity((shape.limbs() - kept) * degree);
        (kept..shape.limbs()).for_each(|k| low.extend_from_slice(x.limb(k)));
        self.counters().count_ntts(shape.limbs());
        let parts = low.par_chunks_exact_mut(degree).enumerate();
        parts.for_each(|(k, part)| self.table(shape, kept + k).inverse(part));
        let mut result = Poly::<Ntt>::zero(self, Shape::level(kept));
        let from: Vec<&[u64]> = low.chunks_exact(degree).collect();
        let mut to: Vec<&mut [u64]> = result.words_mut().chunks_exact_mut(degree).collect();
        division.conversion.apply(&from, &mut to);
        result.limbs_mut().for_each(|(k, limb)| {
            let m = self.modulus(shape, k);
            self.table(shape, k).forward(limb);
            let inverse = m.shoup(division.inverses[k]);
            limb.iter_mut().zip(x.limb(k)).for_each(|(r, &x)| *r = m.mul_shoup(m.sub(x, *r), inverse));
        });
        result
    }

    /// Divides by the last prime of the level, rounded: one step of [`Context::divide`].
    #[must_use]
    pub fn rescaled(&self, x: &Poly<Ntt>) -> Poly<Ntt> {
        self.divide(x, 1)
    }
}
