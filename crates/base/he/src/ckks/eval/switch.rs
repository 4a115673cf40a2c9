//! Key switching ([HK20]): digits are raised to the primes of the key, multiplied with it, and the
//! special primes are divided out.

use super::super::cipher::Ciphertext;
use super::super::keys::{Gadget, KeyId, KeyKind, SwitchKey, raised};
use super::super::limb::Limb;
use super::super::noise::{rounding_deviation, switched_deviation};
use super::super::poly::{Ntt, Poly};
use super::Evaluator;
use crate::HeError;
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
        Raised { digits: raised(self.context, c, Gadget::plain(c.shape().level, alpha)), alpha }
    }

    /// The digits of a ciphertext's second half, for any number of rotations with keys of `alpha` special
    /// primes.
    #[must_use]
    pub fn raise(&self, a: &Ciphertext, alpha: usize) -> Raised {
        self.raise_half(&a.c1, alpha)
    }

    /// The same message under the secret that the key `kind` switches to.
    pub(in super::super) fn switch_secret(&self, a: &Ciphertext, kind: KeyKind) -> Result<Ciphertext, HeError> {
        let key = self.key(kind, a.level())?;
        let sums = key.inner_product(self.context, &a.c1, [None; 2]);
        Ok(self.switched(a, &sums, 1, &key))
    }

    /// What is left to do for `a` after the inner products of its digits with `key`: special primes are
    /// divided out, its first half is added, and the automorphism of `element` applied.
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

    /// Deviation of the error that a switch at `level` adds, with a key of alpha special primes whose own
    /// error deviates by `of_key`.
    pub(super) fn switch_error(&self, level: usize, alpha: usize, of_key: f64) -> f64 {
        self.digits_error(level, alpha, of_key).hypot(rounding_deviation(self.context.degree()))
    }

    /// Its part that comes before the special primes are divided out.
    pub(super) fn digits_error(&self, level: usize, alpha: usize, of_key: f64) -> f64 {
        let (parameters, gadget) = (self.context.parameters(), Gadget::plain(level, alpha));
        let digits = gadget.digit_log2(parameters, level);
        switched_deviation(self.context.degree(), &digits, gadget.special_log2(parameters), of_key)
    }
}
