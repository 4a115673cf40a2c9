//! Division by the last primes of a polynomial: mod down and rescaling.

use super::context::Context;
use super::limb::Limb;
use super::poly::{Ntt, Poly};
use super::shape::Shape;
use rayon::prelude::*;
use std::sync::Arc;

impl Context {
    /// Mod down: `round(x / D)`, with D the product of all special primes of `x` and of its last
    /// `drop` other primes, by one transform for each prime of `x`.
    ///
    /// # Panics
    /// If no prime would be left.
    #[must_use]
    pub fn divide(&self, x: &Poly<Ntt>, drop: usize) -> Poly<Ntt> {
        assert!(drop < x.shape().level, "division leaves a prime");
        self.divide_to(x, Shape::level(x.shape().level - drop))
    }

    /// `round(x / D)`, with D the product of the primes of `x` after those of `result`.
    ///
    /// # Panics
    /// If the primes of `result` are not the first ones of `x`.
    pub(super) fn divide_to(&self, x: &Poly<Ntt>, result: Shape) -> Poly<Ntt> {
        self.divide_then(x, result, |_, _| {})
    }

    /// As [`Context::divide_to`], with `finish` for each limb of the result while it is in the
    /// cache.
    pub(super) fn divide_then(
        &self,
        x: &Poly<Ntt>,
        result: Shape,
        finish: impl Fn(usize, &mut Limb) + Sync,
    ) -> Poly<Ntt> {
        let (shape, kept) = (x.shape(), result.limbs());
        let is_first = result.level == shape.level || result.special == 0;
        assert!(is_first && 0 < kept && kept <= shape.limbs(), "division leaves the first primes");
        let division = self.division(shape, kept);
        self.counters().count_ntts(shape.limbs());
        let low = (kept..shape.limbs()).into_par_iter().map(|k| {
            let mut limb = self.spares().copy(x.limb(k));
            self.table(shape, k).inverse(&mut limb);
            limb
        });
        let low: Vec<Limb> = low.collect();
        let mut result = Poly::<Ntt>::scratch(self, result);
        let sources: Vec<&[u64]> = low.iter().map(|limb| &**limb).collect();
        division.conversion.apply(&sources, &mut result.slices_mut().collect::<Vec<_>>());
        result.places().for_each(|(k, limb)| {
            let limb = Arc::get_mut(limb).expect("a fresh limb is not shared");
            self.table(shape, k).forward(limb);
            self.pointwise(shape, k).sub_scale(limb, x.limb(k), division.factors[k]);
            finish(k, limb);
        });
        result
    }

    /// [`Context::divide`] by the last prime of the level.
    #[must_use]
    pub fn rescaled(&self, x: &Poly<Ntt>) -> Poly<Ntt> {
        self.divide(x, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::super::poly::Coeff;
    use super::super::tests::{Bench, flat_spec};
    use super::*;
    use tacit_arith::sample;

    fn bench() -> Bench {
        Bench::new(&flat_spec(6, 30, Segment { count: 3, bits: 30 }, 30, 2), 51)
    }

    fn random(bench: &mut Bench, shape: Shape) -> Poly<Coeff> {
        let context = bench.context.clone();
        let mut poly = Poly::zero(&context, shape);
        for (k, limb) in poly.slices_mut().enumerate() {
            sample::uniform(bench.prg.secret(), context.modulus(shape, k), limb);
        }
        poly
    }

    /// A number modulo a product of primes; at most 127 bits.
    struct Integer {
        /// In `[0, product)`.
        value: u128,
        product: u128,
    }

    impl Integer {
        /// The integer with these residues, each with its prime.
        fn from_residues(residues: &[(u64, u64)]) -> Self {
            residues.iter().fold(Self { value: 0, product: 1 }, |sum, &(residue, prime)| sum.join(residue, prime))
        }

        /// Adds a residue.
        fn join(&self, residue: u64, prime: u64) -> Self {
            let p = u128::from(prime);
            let (mut inverse, mut base, mut exponent) = (1, self.product % p, prime - 2);
            while exponent > 0 {
                if exponent & 1 == 1 {
                    inverse = inverse * base % p;
                }
                base = base * base % p;
                exponent >>= 1;
            }
            let digit = (u128::from(residue) + p - self.value % p) % p * inverse % p;
            Self { value: self.value + self.product * digit, product: self.product * p }
        }

        fn centred(&self) -> i128 {
            match self.value > self.product / 2 {
                true => self.value as i128 - self.product as i128,
                false => self.value as i128,
            }
        }
    }

    fn residues(context: &Context, poly: &Poly<Coeff>, limbs: std::ops::Range<usize>, i: usize) -> Vec<(u64, u64)> {
        limbs.map(|k| (poly.limb(k)[i], context.modulus(poly.shape(), k).value())).collect()
    }

    /// Every digit, at every level.
    #[test]
    fn mod_up_matches_the_centred_integer() {
        let mut bench = bench();
        let context = bench.context.clone();
        for level in 1..=4 {
            let shape = Shape { level, special: 2 };
            let x = random(&mut bench, Shape::level(level));
            for first in (0..level).step_by(2) {
                let digit_range = first..(first + 2).min(level);
                let digit: Vec<&[u64]> = digit_range.clone().map(|k| x.limb(k)).collect();
                let mut raised = Poly::<Coeff>::zero(&context, shape);
                let mut others: Vec<&mut [u64]> =
                    raised.slices_around(digit_range.clone()).map(|(_, limb)| limb).collect();
                context.raise(shape, first, &digit, &mut others);
                for i in 0..64 {
                    let value = Integer::from_residues(&residues(&context, &x, digit_range.clone(), i)).centred();
                    for k in (0..shape.limbs()).filter(|k| !digit_range.contains(k)) {
                        let p = context.modulus(shape, k).value();
                        assert_eq!(
                            i128::from(raised.limb(k)[i]),
                            value.rem_euclid(p.into()),
                            "level {level}, limb {k}"
                        );
                    }
                }
            }
        }
    }

    /// Special primes, last primes, and both at once.
    #[test]
    fn mod_down_matches_the_rounded_quotient() {
        let mut bench = bench();
        let context = bench.context.clone();
        for (level, special, drop) in [(2, 2, 0), (3, 0, 1), (4, 0, 2), (2, 1, 1), (2, 2, 1), (3, 1, 1)] {
            let shape = Shape { level, special };
            let x = random(&mut bench, shape);
            let kept = level - drop;
            let divided = context.divide(&x.clone().into_ntt(&context), drop).into_coeff(&context);
            assert_eq!(divided.shape(), Shape::level(kept));
            for i in 0..64 {
                let integer = Integer::from_residues(&residues(&context, &x, 0..shape.limbs(), i)).value;
                let low = Integer::from_residues(&residues(&context, &x, kept..shape.limbs(), i));
                let quotient = (integer as i128 - low.centred()) / low.product as i128;
                for k in 0..kept {
                    let p = context.modulus(shape, k).value();
                    assert_eq!(i128::from(divided.limb(k)[i]), quotient.rem_euclid(p.into()), "{shape:?} {drop}");
                }
            }
        }
    }
}
