//! Plaintexts and ciphertexts.

use super::noise::Estimate;
use super::poly::{Ntt, Poly};
use super::scale::Scale;
use crate::HeError;
use zeroize::Zeroize;

/// An encoded message: a polynomial in NTT form with the scale of its slots.
#[derive(Clone)]
pub struct Plaintext {
    pub(super) poly: Poly<Ntt>,
    pub(super) scale: Scale,
    pub(super) slots: usize,
    pub(super) estimate: Estimate,
}

/// A decrypted message with its error, and the ciphertext, are as good as the secret key.
impl Drop for Plaintext {
    fn drop(&mut self) {
        self.poly.zeroize();
    }
}

impl Plaintext {
    /// Level of the plaintext.
    pub fn level(&self) -> usize {
        self.poly.shape().level
    }
}

/// `(c0, c1)` with `c0 + c1 s = m + e`, in NTT form.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) c0: Poly<Ntt>,
    pub(super) c1: Poly<Ntt>,
    pub(super) scale: Scale,
    pub(super) slots: usize,
    pub(super) estimate: Estimate,
}

impl Ciphertext {
    /// Level of the ciphertext.
    pub fn level(&self) -> usize {
        self.c0.shape().level
    }

    /// Scale of the ciphertext.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Estimate of the error and of the size of the slots.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Bits of precision that the error leaves, for values of size 1.
    pub fn precision(&self) -> f64 {
        self.estimate.precision(self.slots, self.scale.to_f64())
    }

    /// Sets the root mean square of the slots, for estimates of products.
    #[must_use]
    pub fn with_magnitude(mut self, magnitude: f64) -> Self {
        self.estimate.magnitude = magnitude;
        self
    }

    /// Adds the error of an approximation to the slots' estimate.
    #[must_use]
    pub(super) fn with_slot_error(mut self, deviation: f64) -> Self {
        let of_coefficients = deviation * self.scale.to_f64() / (2.0 * self.slots as f64).sqrt();
        self.estimate = self.estimate.with_error(of_coefficients);
        self
    }

    /// The same message at a lower level.
    ///
    /// # Errors
    /// [`HeError::Level`] if `level` is 0 or above that of the ciphertext.
    pub fn drop_to(&self, level: usize) -> Result<Self, HeError> {
        if level == 0 || level > self.level() {
            return Err(HeError::Level { what: "drop to a level", need: level, have: self.level() });
        }
        let mut dropped = self.clone();
        dropped.c0.truncate(level);
        dropped.c1.truncate(level);
        Ok(dropped)
    }
}

pub(super) fn same_level(what: &'static str, left: usize, right: usize) -> Result<(), HeError> {
    if left == right { Ok(()) } else { Err(HeError::Level { what, need: left, have: right }) }
}

pub(super) fn same_scale(what: &'static str, left: Scale, right: Scale) -> Result<(), HeError> {
    if left.agrees(right) { Ok(()) } else { Err(HeError::Scale { what, left: left.to_f64(), right: right.to_f64() }) }
}

pub(super) fn same_slots(what: &'static str, left: usize, right: usize) -> Result<(), HeError> {
    if left == right { Ok(()) } else { Err(HeError::SlotCount { what, left, right }) }
}
