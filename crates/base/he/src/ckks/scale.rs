//! The scale of a plaintext or ciphertext: the factor by which slots are multiplied before
//! rounding.

use super::double::Double;
use std::fmt;

/// A positive scale with a precision of about 2^-100: after any chain of products and divisions by
/// primes, exact well beyond 2^-50.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale(Double);

/// Largest relative difference of scales that agree: far below what an encoding can distinguish,
/// far above rounding errors.
const TOLERANCE: f64 = 1.0 / (1u64 << 50) as f64;

impl Scale {
    /// One.
    pub const ONE: Self = Self(Double::ONE);

    /// `2^bits`.
    pub fn power_of_two(bits: u32) -> Self {
        Self(Double::power_of_two(bits as i32))
    }

    /// A positive number; `None` for others.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_normal() && value > 0.0).then(|| Self(Double::from(value)))
    }

    /// The scale of a product.
    #[must_use]
    pub fn times(self, rhs: Self) -> Self {
        Self(self.0 * rhs.0)
    }

    /// The scale by which `rhs` must be multiplied to give this one.
    #[must_use]
    pub fn over(self, rhs: Self) -> Self {
        Self(self.0 / rhs.0)
    }

    /// The scale after multiplication by a prime.
    #[must_use]
    pub fn times_prime(self, prime: u64) -> Self {
        Self(self.0 * Double::from(prime))
    }

    /// The scale after division by a prime.
    #[must_use]
    pub fn over_prime(self, prime: u64) -> Self {
        Self(self.0 / Double::from(prime))
    }

    /// The square root of the scale.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let guess = Double::from(self.to_f64().sqrt());
        Self((guess + self.0 / guess) * Double::power_of_two(-1))
    }

    /// Writes the scale as 16 bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_bytes()
    }

    /// Reads a scale; `None` unless it is a number from 1 to 2^1000 in canonical form.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        Double::from_bytes(bytes).map(Self).filter(|s| (1.0..=2f64.powi(1000)).contains(&s.to_f64()))
    }

    /// The scale, rounded to a double.
    pub fn to_f64(self) -> f64 {
        self.0.to_f64()
    }

    /// Binary logarithm of the scale.
    pub fn log2(self) -> f64 {
        self.to_f64().log2()
    }

    /// Whether both scales are the same up to 2^-50 of their size.
    #[must_use]
    pub fn agrees(self, other: Self) -> bool {
        (self.0 - other.0).abs().to_f64() <= TOLERANCE * self.to_f64()
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2^{:.6}", self.log2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chains_stay_exact() {
        let prime = (1u64 << 42) - 11;
        let start = Scale::power_of_two(42);
        let mut scale = start;
        for _ in 0..30 {
            scale = scale.times_prime(prime).times(start).over_prime(prime).over(start);
        }
        assert!(scale.agrees(start) && (scale.to_f64() / start.to_f64() - 1.0).abs() < 1e-15);
        assert!(
            start.times_prime(prime).sqrt().times(start.times_prime(prime).sqrt()).agrees(start.times_prime(prime))
        );
        assert!(!start.agrees(start.over_prime(prime).times(start)));
        assert!(Scale::new(-1.0).is_none() && Scale::new(f64::NAN).is_none() && Scale::new(3.0).is_some());
        assert_eq!(start.to_string(), "2^42.000000");
    }
}
