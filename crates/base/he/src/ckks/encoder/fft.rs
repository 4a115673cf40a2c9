//! The transform between slots and coefficients: values of a real polynomial at the powers `5^j` of
//! a root of unity.

use std::f64::consts::PI;
use std::ops::{Add, Mul, Neg, Sub};
use zeroize::Zeroize;

/// A complex number.
#[derive(Clone, Copy, PartialEq, Debug, Default, Zeroize)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

impl Complex {
    /// `re + i im`.
    pub const fn new(re: f64, im: f64) -> Self {
        Self { re, im }
    }

    /// The complex conjugate.
    #[must_use]
    pub fn conj(self) -> Self {
        Self::new(self.re, -self.im)
    }

    /// Multiplies by a real number.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self::new(self.re * factor, self.im * factor)
    }

    /// The absolute value.
    #[must_use]
    pub fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl From<f64> for Complex {
    fn from(re: f64) -> Self {
        Self::new(re, 0.0)
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self::new(self.re + rhs.re, self.im + rhs.im)
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self::new(self.re - rhs.re, self.im - rhs.im)
    }
}

impl Neg for Complex {
    type Output = Self;
    fn neg(self) -> Self {
        Self::new(-self.re, -self.im)
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, rhs: Self) -> Self {
        Self::new(self.re * rhs.re - self.im * rhs.im, self.re * rhs.im + self.im * rhs.re)
    }
}

/// `exp(2 pi i k / order)`, exact up to about the last bit: the angle is reduced below an eighth of
/// the circle. `order` is a power of two of at least 8.
pub fn root(k: usize, order: usize) -> Complex {
    let k = k % order;
    let (quarter, remainder) = (k / (order / 4), k % (order / 4));
    let first = if remainder <= order / 8 {
        let angle = 2.0 * PI * remainder as f64 / order as f64;
        Complex::new(angle.cos(), angle.sin())
    } else {
        let angle = 2.0 * PI * (order / 4 - remainder) as f64 / order as f64;
        Complex::new(angle.sin(), angle.cos())
    };
    match quarter {
        0 => first,
        1 => Complex::new(-first.im, first.re),
        2 => -first,
        _ => Complex::new(first.im, -first.re),
    }
}

/// The transform for one number of slots n (a power of two, at least 2).
pub struct SlotTransform {
    slots: usize,
    /// For the stage with blocks of `2h` values: entry `h + j` is `exp(2 pi i 5^j / 8h)`.
    twiddles: Vec<Complex>,
}

impl SlotTransform {
    pub fn new(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two());
        let mut twiddles = vec![Complex::default(); slots];
        let mut half = 1;
        while half < slots {
            twiddles[half..2 * half].copy_from_slice(&Self::stage_twiddles(half));
            half *= 2;
        }
        Self { slots, twiddles }
    }

    /// `exp(2 pi i 5^j / 8h)` for j below h: factors of the stage of half-blocks h.
    pub fn stage_twiddles(half: usize) -> Vec<Complex> {
        let order = 8 * half;
        std::iter::successors(Some(1), |power| Some(power * 5 % order)).take(half).map(|k| root(k, order)).collect()
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Transforms coefficients `c_k + i c_(k+n)` to slots, in place.
    ///
    /// # Panics
    /// If there are not n values.
    pub fn to_slots(&self, values: &mut [Complex]) {
        assert_eq!(values.len(), self.slots, "one value per slot");
        bit_reverse(values);
        let mut half = 1;
        while half < self.slots {
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), &w) in low.iter_mut().zip(high).zip(&self.twiddles[half..]) {
                    (*x, *y) = (*x + *y * w, *x - *y * w);
                }
            }
            half *= 2;
        }
    }

    /// Inverts [`SlotTransform::to_slots`], in place.
    ///
    /// # Panics
    /// If there are not n values.
    pub fn to_coefficients(&self, values: &mut [Complex]) {
        assert_eq!(values.len(), self.slots, "one value per slot");
        let mut half = self.slots / 2;
        while half > 0 {
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), &w) in low.iter_mut().zip(high).zip(&self.twiddles[half..]) {
                    (*x, *y) = (*x + *y, (*x - *y) * w.conj());
                }
            }
            half /= 2;
        }
        bit_reverse(values);
        let scale = 1.0 / self.slots as f64;
        values.iter_mut().for_each(|v| *v = v.scaled(scale));
    }
}

fn bit_reverse(values: &mut [Complex]) {
    let bits = values.len().trailing_zeros();
    for i in 0..values.len() {
        let j = i.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
        if i < j {
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slot j is the value at the root of order 4n to the power `5^j`.
    #[test]
    fn slots_are_values_at_powers_of_five() {
        let n = 16;
        let coefficients: Vec<f64> = (0..2 * n).map(|k| ((k * k * 7 + 3) % 11) as f64 - 5.0).collect();
        let mut values: Vec<Complex> = (0..n).map(|k| Complex::new(coefficients[k], coefficients[k + n])).collect();
        let transform = SlotTransform::new(n);
        transform.to_slots(&mut values);
        let mut power = 1;
        for value in &values {
            let terms = coefficients.iter().enumerate().map(|(k, &c)| root(k * power, 4 * n).scaled(c));
            let expected = terms.fold(Complex::default(), |sum, term| sum + term);
            assert!((*value - expected).abs() < 1e-12);
            power = power * 5 % (4 * n);
        }
        transform.to_coefficients(&mut values);
        assert!((0..n).all(|k| (values[k] - Complex::new(coefficients[k], coefficients[k + n])).abs() < 1e-13));
    }

    #[test]
    fn roots_are_exact_where_they_are_simple() {
        assert_eq!(root(0, 8), Complex::new(1.0, 0.0));
        assert_eq!(root(2, 8), Complex::new(0.0, 1.0));
        assert_eq!(root(12, 16), Complex::new(0.0, -1.0));
        for k in 0..64 {
            let expected = Complex::new((2.0 * PI * k as f64 / 64.0).cos(), (2.0 * PI * k as f64 / 64.0).sin());
            assert!((root(k, 64) - expected).abs() < 1e-14);
        }
    }
}
