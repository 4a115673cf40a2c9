//! Estimates of the error in a ciphertext, carried along with it (`docs/notes/ckks.md`).

use tacit_arith::sample::ERROR_COINS;

/// Variance of one coefficient of a fresh error.
pub const ERROR_VARIANCE: f64 = ERROR_COINS as f64 / 2.0;

/// An estimate of the error and of the size of an encrypted message. Errors of coefficients are
/// taken as independent. If each coefficient of the error has deviation d, each of the n slots has
/// deviation `d sqrt(2n) / scale`, because a slot sums 2n coefficients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Deviation of one coefficient of the error.
    pub deviation: f64,
    /// Root mean square of the slots' values.
    pub magnitude: f64,
}

/// Deviation that rounding both halves adds to a coefficient. The second half's rounding is multiplied
/// by the ternary secret.
pub fn rounding_deviation(degree: usize) -> f64 {
    ((1.0 + 2.0 / 3.0 * degree as f64) / 12.0).sqrt()
}

/// Deviation that a key switch adds. Each digit, uniform in a range of `2^digit_log2[i]`, multiplies
/// an error of the key, and the sum is divided by `2^special_log2`. The rounding of that division is
/// not included.
pub fn digits_deviation(degree: usize, digit_log2: &[f64], special_log2: f64) -> f64 {
    switched_deviation(degree, digit_log2, special_log2, ERROR_VARIANCE.sqrt())
}

/// As [`digits_deviation`], with a key error of deviation `of_key`, as derived keys have.
pub(super) fn switched_deviation(degree: usize, digit_log2: &[f64], special_log2: f64, of_key: f64) -> f64 {
    let digits: f64 = digit_log2.iter().map(|bits| ((bits - special_log2) * 2.0).exp2() / 12.0).sum();
    (digits * degree as f64).sqrt() * of_key
}

/// Deviation of a fresh error.
pub fn fresh_deviation() -> f64 {
    ERROR_VARIANCE.sqrt()
}

/// Deviation of the error of a public-key encryption, `e u + e0 + e1 s` with u and s ternary.
pub fn public_deviation(degree: usize) -> f64 {
    (ERROR_VARIANCE * (1.0 + 4.0 / 3.0 * degree as f64)).sqrt()
}

impl Estimate {
    /// Deviation of the error of a slot. Its real and imaginary parts deviate less, by `sqrt 2`.
    pub fn slot_deviation(&self, slots: usize, scale: f64) -> f64 {
        self.deviation * (2.0 * slots as f64).sqrt() / scale
    }

    /// `-log2` of the slot deviation: bits of values of size 1 that the error leaves.
    pub fn precision(&self, slots: usize, scale: f64) -> f64 {
        -self.slot_deviation(slots, scale).log2()
    }

    /// The estimate with an independent error added.
    #[must_use]
    pub fn with_error(self, deviation: f64) -> Self {
        Self { deviation: self.deviation.hypot(deviation), ..self }
    }

    /// The estimate of a sum of independent values.
    #[must_use]
    pub fn plus(self, rhs: Self) -> Self {
        Self { deviation: self.deviation.hypot(rhs.deviation), magnitude: self.magnitude.hypot(rhs.magnitude) }
    }

    /// The estimate of a product with a factor of estimate `rhs`; the scales are those of the
    /// factors.
    #[must_use]
    pub fn times(self, scale: f64, rhs: Self, other_scale: f64) -> Self {
        let left = self.deviation * rhs.magnitude * other_scale;
        let right = rhs.deviation * self.magnitude * scale;
        Self { deviation: left.hypot(right), magnitude: self.magnitude * rhs.magnitude }
    }

    /// The estimate of the value times an exact factor that is not part of the scale.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { deviation: self.deviation * factor.abs(), magnitude: self.magnitude * factor.abs() }
    }
}
