//! Rotations and conjugation, one at a time or many of one ciphertext (hoisted, [HS18]).

use super::super::cipher::Ciphertext;
use super::super::keys::{KeyId, KeyKind, SwitchKey};
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::{Evaluator, Raised};
use crate::HeError;

impl Evaluator<'_> {
    /// The slots moved `k` places to the left (slot 0 takes that of slot k).
    ///
    /// # Errors
    /// A missing or too low key.
    pub fn rotate(&self, a: &Ciphertext, k: i64) -> Result<Ciphertext, HeError> {
        self.apply(a, self.rotation(a.slots, k))
    }

    /// Complex conjugates of the slots.
    ///
    /// # Errors
    /// A missing or too low key.
    pub fn conjugate(&self, a: &Ciphertext) -> Result<Ciphertext, HeError> {
        self.apply(a, self.context.conjugation_element())
    }

    /// The key that a rotation at `level` needs; `None` for one that moves nothing.
    #[must_use]
    pub fn rotation_need(&self, slots: usize, level: usize, k: i64) -> Option<KeyId> {
        let element = self.rotation(slots, k);
        (element != 1).then(|| KeyId::at(self.context, KeyKind::Galois(element), level))
    }

    /// The key that conjugation at `level` needs.
    #[must_use]
    pub fn conjugation_need(&self, level: usize) -> KeyId {
        KeyId::at(self.context, KeyKind::Galois(self.context.conjugation_element()), level)
    }

    fn rotation(&self, slots: usize, k: i64) -> u32 {
        self.context.rotation_element(k.rem_euclid(slots as i64))
    }

    /// The slots under the automorphism of `element`.
    pub(in super::super) fn apply(&self, a: &Ciphertext, element: u32) -> Result<Ciphertext, HeError> {
        if element == 1 {
            return Ok(a.clone());
        }
        let key = self.key(KeyKind::Galois(element), a.level())?;
        Ok(self.apply_raised(a, &self.raise(a, key.alpha()), element, &key))
    }

    fn apply_raised(&self, a: &Ciphertext, raised: &Raised, element: u32, key: &SwitchKey) -> Ciphertext {
        let [mut d0, d1] = self.switched(raised, key);
        d0.add_assign(&a.c0, self.context);
        let [c0, c1] = [d0, d1].map(|half| half.automorphism(self.context, element));
        let estimate = a.estimate.with_error(self.switch_error(a.level(), key.alpha(), key.deviation()));
        Ciphertext { c0, c1, estimate, ..*a }
    }

    /// Several rotations of one ciphertext, whose digits are raised once.
    ///
    /// # Errors
    /// A missing or too low key, or one with other special primes than the others.
    pub fn rotate_many(&self, a: &Ciphertext, steps: &[i64]) -> Result<Vec<Ciphertext>, HeError> {
        let level = a.level();
        let alpha = self.context.parameters().alpha(level);
        let raised = self.raise(a, alpha);
        let one = |&k: &i64| match self.rotation(a.slots, k) {
            1 => Ok(a.clone()),
            element => {
                let key = self.keys.get_with(KeyKind::Galois(element), level, alpha)?;
                Ok(self.apply_raised(a, &raised, element, &key))
            }
        };
        steps.iter().map(one).collect()
    }

    /// A rotation whose special primes are not divided out yet: `(P c0 + .., ..)` at the primes of the key,
    /// before the automorphism has been applied if `k` moves nothing.
    pub(super) fn rotate_lazily(&self, a: &Ciphertext, raised: &Raised, k: i64) -> Result<[Poly<Ntt>; 2], HeError> {
        let element = self.rotation(a.slots, k);
        if element == 1 {
            return Ok([self.times_special(&a.c0, raised.alpha()), self.times_special(&a.c1, raised.alpha())]);
        }
        let key = self.keys.get_with(KeyKind::Galois(element), a.level(), raised.alpha())?;
        let [mut d0, d1] = key.inner_product(self.context, raised.digits());
        self.add_times_special(&mut d0, &a.c0);
        Ok([d0, d1].map(|half| half.automorphism(self.context, element)))
    }

    /// `P c` at all primes of the key: zero mod the special ones.
    pub(super) fn times_special(&self, c: &Poly<Ntt>, alpha: usize) -> Poly<Ntt> {
        let mut lifted = Poly::zero(self.context, Shape { special: alpha, ..c.shape() });
        self.add_times_special(&mut lifted, c);
        lifted
    }

    /// Adds `P c`, with P the product of the special primes of `sum`.
    pub(super) fn add_times_special(&self, sum: &mut Poly<Ntt>, c: &Poly<Ntt>) {
        let shape = sum.shape();
        sum.add_scaled(c, self.context, |k| self.context.special_product(shape, 0..shape.special, k));
    }

    /// Switches and rotates a half in the making: the digits of `c1` through the key of `k`, with `c0` (at
    /// the primes of the key, `P` times too large) beside it.
    pub(super) fn rotate_sum(
        &self,
        slots: usize,
        c0: &Poly<Ntt>,
        c1: &Poly<Ntt>,
        alpha: usize,
        k: i64,
    ) -> Result<[Poly<Ntt>; 2], HeError> {
        let element = self.rotation(slots, k);
        let low = self.context.divide(c1, 0);
        let key = self.keys.get_with(KeyKind::Galois(element), low.shape().level, alpha)?;
        let raised = self.raise_half(&low, alpha);
        let [mut d0, d1] = key.inner_product(self.context, raised.digits());
        d0.add_assign(c0, self.context);
        Ok([d0, d1].map(|half| half.automorphism(self.context, element)))
    }
}
