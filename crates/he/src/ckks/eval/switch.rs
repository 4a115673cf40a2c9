//! Key switching ([HK20]): digits are raised to the primes of the key, multiplied with it, and the
//! special primes are divided out.

use super::super::cipher::Ciphertext;
use super::super::keys::{KeyId, KeyKind, SwitchKey, digit_range};
use super::super::noise::{digits_deviation, rounding_deviation};
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::Evaluator;
use crate::HeError;
use rayon::prelude::*;
use std::sync::Arc;

/// The digits of one polynomial at the primes of a key with alpha special primes: what hoisted rotations
/// share.
pub struct Raised {
    digits: Vec<Poly<Ntt>>,
    alpha: usize,
}

impl Raised {
    /// Special primes of the keys they go with.
    #[must_use]
    pub fn alpha(&self) -> usize {
        self.alpha
    }

    /// The polynomials.
    pub(super) fn digits(&self) -> &[Poly<Ntt>] {
        &self.digits
    }
}

impl Evaluator<'_> {
    /// The key for `kind` on a ciphertext at `level`: with the special primes that the parameters give to
    /// that level, if there is one, else the lowest that reaches it.
    pub(super) fn key(&self, kind: KeyKind, level: usize) -> Result<Arc<SwitchKey>, HeError> {
        let planned = KeyId::at(self.context, kind, level).alpha;
        match self.keys.get_with(kind, level, planned) {
            Err(HeError::KeyAlpha { .. }) => self.keys.get(kind, level),
            found => found,
        }
    }

    /// Mod up of every digit: `beta (L + alpha)` transforms.
    pub(super) fn raise_half(&self, c: &Poly<Ntt>, alpha: usize) -> Raised {
        let context = self.context;
        let level = c.shape().level;
        let shape = Shape { level, special: alpha };
        let coefficients = c.clone().into_coeff(context);
        let digit = |j: usize| {
            let own = digit_range(level, alpha, j);
            let mut raised = Poly::<Ntt>::scratch(context, shape);
            let parts: Vec<&[u64]> = own.clone().map(|k| coefficients.limb(k)).collect();
            context.raise(shape, own.start, &parts, raised.slices_mut());
            context.counters().count_ntts(shape.limbs() - own.len());
            raised.limbs_mut().for_each(|(k, limb)| {
                // The digit's own residues are what they were.
                if own.contains(&k) { limb.copy_from_slice(c.limb(k)) } else { context.table(shape, k).forward(limb) }
            });
            raised
        };
        Raised { digits: (0..level.div_ceil(alpha)).map(digit).collect(), alpha }
    }

    /// The digits of a ciphertext's second half, for any number of rotations with keys of `alpha` special
    /// primes.
    #[must_use]
    pub fn raise(&self, a: &Ciphertext, alpha: usize) -> Raised {
        self.raise_half(&a.c1, alpha)
    }

    /// Inner product with the key, special primes divided out.
    pub(super) fn switched(&self, raised: &Raised, key: &SwitchKey) -> [Poly<Ntt>; 2] {
        key.inner_product(self.context, raised.digits()).map(|half| self.context.divide(&half, 0))
    }

    /// The same message under the secret that the key `kind` switches to.
    pub(in super::super) fn switch_secret(&self, a: &Ciphertext, kind: KeyKind) -> Result<Ciphertext, HeError> {
        let key = self.key(kind, a.level())?;
        let [mut c0, c1] = self.switched(&self.raise(a, key.alpha()), &key);
        c0.add_assign(&a.c0, self.context);
        let estimate = a.estimate.with_error(self.switch_error(a.level(), key.alpha()));
        Ok(Ciphertext { c0, c1, estimate, ..*a })
    }

    /// Deviation of the error that a switch at `level` with `alpha` special primes adds.
    pub(super) fn switch_error(&self, level: usize, alpha: usize) -> f64 {
        self.digits_error(level, alpha).hypot(rounding_deviation(self.context.degree()))
    }

    /// Its part that comes before the special primes are divided out.
    pub(super) fn digits_error(&self, level: usize, alpha: usize) -> f64 {
        let parameters = self.context.parameters();
        let bits = |range: std::ops::Range<usize>| parameters.primes()[range].iter().map(|&q| (q as f64).log2()).sum();
        let digits: Vec<f64> = (0..level.div_ceil(alpha)).map(|j| bits(digit_range(level, alpha, j))).collect();
        let special = parameters.special_primes()[..alpha].iter().map(|&p| (p as f64).log2()).sum();
        digits_deviation(self.context.degree(), &digits, special)
    }
}
