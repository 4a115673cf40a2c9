//! Double-double numbers: 106 bits of mantissa in two doubles, for scales, and for tables whose
//! rounding must not show at 2^-50.

/// The unevaluated sum `high + low` with `|low| <= ulp(high) / 2`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Double {
    high: f64,
    low: f64,
}

/// `a + b` exactly, as sum and rest, for any order of magnitudes.
fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

impl Double {
    pub const ZERO: Self = Self { high: 0.0, low: 0.0 };
    pub const ONE: Self = Self { high: 1.0, low: 0.0 };
    /// Pi, to 106 bits.
    pub const PI: Self = Self { high: std::f64::consts::PI, low: 1.224_646_799_147_353_2e-16 };

    pub fn to_f64(self) -> f64 {
        self.high + self.low
    }

    pub fn power_of_two(exponent: i32) -> Self {
        Self { high: 2f64.powi(exponent), low: 0.0 }
    }

    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.high.to_le_bytes());
        bytes[8..].copy_from_slice(&self.low.to_le_bytes());
        bytes
    }

    /// Reads both parts; `None` unless they are the canonical form of a finite number.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        let [high, low] = bytes.as_chunks::<8>().0 else { return None };
        let (high, low) = (f64::from_le_bytes(*high), f64::from_le_bytes(*low));
        (high.is_finite() && low.is_finite() && high + low == high).then_some(Self { high, low })
    }

    #[must_use]
    pub fn abs(self) -> Self {
        if self.high < 0.0 { -self } else { self }
    }

    /// The cosine, for arguments of at most about 30, with an error below 2^-80.
    #[must_use]
    pub fn cos(self) -> Self {
        // Halves the angle until the series is short, then doubles it by cos 2x = 2 cos^2 x - 1.
        // Works on 1 - cos, so that no digits are lost near 1.
        const HALVINGS: u32 = 8;
        let x = self * Self::power_of_two(-(HALVINGS as i32));
        let square = x * x;
        let (mut term, mut versed) = (Self::ONE, Self::ZERO);
        for k in 1..14u32 {
            term = -(term * square / Self::from(f64::from(2 * k * (2 * k - 1))));
            versed = versed - term;
        }
        for _ in 0..HALVINGS {
            versed = Self::from(4.0) * versed - Self::from(2.0) * (versed * versed);
        }
        Self::ONE - versed
    }
}

impl From<f64> for Double {
    fn from(value: f64) -> Self {
        Self { high: value, low: 0.0 }
    }
}

impl From<u64> for Double {
    fn from(value: u64) -> Self {
        let (top, low_word) = ((value >> 32) as f64 * 4_294_967_296.0, (value & 0xffff_ffff) as f64);
        let (high, low) = exact_sum(top, low_word);
        Self { high, low }
    }
}

impl std::ops::Neg for Double {
    type Output = Self;
    fn neg(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }
}

impl std::ops::Add for Double {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        let (sum, rounding) = exact_sum(self.high, rhs.high);
        let (tail, rest_of_tail) = exact_sum(self.low, rhs.low);
        let (sum, rounding) = exact_sum(sum, rounding + tail);
        let (high, low) = exact_sum(sum, rounding + rest_of_tail);
        Self { high, low }
    }
}

impl std::ops::Sub for Double {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        self + -rhs
    }
}

impl std::ops::Mul for Double {
    type Output = Self;
    fn mul(self, rhs: Self) -> Self {
        let product = self.high * rhs.high;
        let rounding = self.high.mul_add(rhs.high, -product) + (self.high * rhs.low + self.low * rhs.high);
        let (high, low) = exact_sum(product, rounding);
        Self { high, low }
    }
}

impl std::ops::Div for Double {
    type Output = Self;
    fn div(self, rhs: Self) -> Self {
        let first = Self::from(self.high / rhs.high);
        let remainder = self - first * rhs;
        let second = Self::from(remainder.high / rhs.high);
        let remainder = remainder - second * rhs;
        first + second + Self::from(remainder.high / rhs.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Double, b: Double, bits: i32) {
        let error = (a - b).to_f64().abs();
        assert!(error <= 2f64.powi(-bits), "{a:?} {b:?} differ by 2^{}", error.log2());
    }

    #[test]
    fn arithmetic_keeps_a_hundred_bits() {
        let third = Double::ONE / Double::from(3.0);
        close(third + third + third, Double::ONE, 103);
        let big = Double::from(u64::MAX);
        close((big * third) / big, third, 103);
        close(big - Double::power_of_two(64), -Double::ONE, 103);
        assert_eq!(Double::from((1u64 << 60) + 1) - Double::power_of_two(60), Double::ONE);
    }

    #[test]
    fn cosines_of_known_angles() {
        let third = Double::PI / Double::from(3.0);
        close(third.cos(), Double::from(0.5), 90);
        close(Double::PI.cos(), -Double::ONE, 85);
        close((Double::PI * Double::from(4.5)).cos(), Double::ZERO, 80);
        close(Double::ZERO.cos(), Double::ONE, 105);
        for x in [0.1, 1.7, 12.8, -3.3] {
            assert!((Double::from(x).cos().to_f64() - x.cos()).abs() < 1e-15);
        }
    }
}
