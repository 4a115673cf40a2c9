//! Key switching ([HK20]): digits are raised to the primes of the key, multiplied with it, and
//! divided by the special primes.

use super::super::cipher::Ciphertext;
use super::super::keys::{Gadget, KeyId, KeyKind, SwitchKey, raise_digits};
use super::super::limb::Limb;
use super::super::noise::{rounding_deviation, switched_deviation};
use super::super::poly::{Ntt, Poly};
use super::Evaluator;
use crate::HeError;
use std::sync::Arc;

/// The digits of one polynomial at the primes of a key, shared by hoisted rotations.
pub struct Raised {
    digits: Vec<Poly<Ntt>>,
}

impl Raised {
    pub(super) fn digits(&self) -> &[Poly<Ntt>] {
        &self.digits
    }
}

impl Evaluator<'_> {
    /// The key for `kind` at `level`: if possible with the special primes of that level, else the
    /// lowest key that reaches it.
    pub(super) fn key(&self, kind: KeyKind, level: usize) -> Result<Arc<SwitchKey>, HeError> {
        let planned = KeyId::for_level(self.context, kind, level).alpha;
        match self.keys.get_with(kind, level, planned) {
            Err(HeError::KeyAlpha { .. }) => self.keys.get(kind, level),
            found => found,
        }
    }

    /// Raises the digits of a ciphertext's second half, for keys of `alpha` special primes.
    pub fn raise(&self, a: &Ciphertext, alpha: usize) -> Raised {
        Raised { digits: raise_digits(self.context, &a.c1, Gadget::plain(a.level(), alpha)) }
    }

    pub(in super::super) fn switch_secret(&self, a: &Ciphertext, kind: KeyKind) -> Result<Ciphertext, HeError> {
        let key = self.key(kind, a.level())?;
        let sums = key.inner_product(self.context, &a.c1, [None; 2]);
        Ok(self.switched(a, &sums, 1, &key))
    }

    /// Finishes a switch of `a` after the inner products with `key`: divides by the special primes,
    /// adds the first half and applies the automorphism of `element`.
    pub(super) fn switched(&self, a: &Ciphertext, sums: &[Poly<Ntt>; 2], element: u32, key: &SwitchKey) -> Ciphertext {
        let context = self.context;
        let shape = a.c0.shape();
        let galois = (element != 1).then(|| context.galois(element));
        let moved = |limb: &mut Limb| {
            if let Some(galois) = &galois {
                let mut image = context.spares().scratch();
                galois.apply(limb, &mut image);
                *limb = image;
            }
        };
        let c0 = context.divide_then(&sums[0], shape, |k, limb| {
            context.pointwise(shape, k).add(limb, a.c0.limb(k));
            moved(limb);
        });
        let c1 = context.divide_then(&sums[1], shape, |_, limb| moved(limb));
        let estimate = a.estimate.with_error(self.switch_error(a.level(), key.alpha(), key.deviation()));
        Ciphertext { c0, c1, estimate, ..*a }
    }

    /// Deviation of the error of a switch at `level`; that of the key is `of_key`.
    pub(super) fn switch_error(&self, level: usize, alpha: usize, of_key: f64) -> f64 {
        self.digits_error(level, alpha, of_key).hypot(rounding_deviation(self.context.degree()))
    }

    /// The part of [`Evaluator::switch_error`] before the division by the special primes.
    pub(super) fn digits_error(&self, level: usize, alpha: usize, of_key: f64) -> f64 {
        let (parameters, gadget) = (self.context.parameters(), Gadget::plain(level, alpha));
        let digits = gadget.digit_log2(parameters, level);
        switched_deviation(self.context.degree(), &digits, gadget.special_log2(parameters), of_key)
    }
}
