//! Fixed-point numbers in a ring of integers modulo a power of two.

use serde::{Deserialize, Serialize};

use super::RingError;

/// Widest ring that back ends support, in bits. Linear layers need a ciphertext prime a few bits wider, and
/// only primes of at most 50 bits are fast.
pub const MAX_WIDTH: u32 = 40;

/// Narrowest ring that values are compared in, in bits.
pub const MIN_COMPARED_WIDTH: u32 = 4;

/// Largest value of twice the wider ring's bits less the narrower ring's bits, where ReLU widens: a
/// multiplexer takes the value and its wrap bits from one word of OT output.
pub const MAX_WIDENING: u32 = 64;

/// Largest number of bits behind the binary point.
pub const MAX_FRAC_BITS: u32 = 47;

/// Signed integers modulo 2^`width`, of which `frac_bits` lie behind the binary point.
///
/// Range: `2 <= width <= MAX_WIDTH`, `frac_bits <= MAX_FRAC_BITS` (a scale may exceed the width: the top bits
/// are then known to be zero).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedPoint {
    /// Bits of the ring Z_{2^width}.
    pub width: u32,
    /// Bits behind the binary point.
    pub frac_bits: u32,
}

impl FixedPoint {
    /// Checks the ranges stated on the type.
    pub fn check(self) -> Result<Self, RingError> {
        if !(2..=MAX_WIDTH).contains(&self.width) || self.frac_bits > MAX_FRAC_BITS {
            return Err(RingError::FixedPoint { width: self.width, frac_bits: self.frac_bits });
        }
        Ok(self)
    }

    /// Bit mask of the ring: `2^width - 1`.
    pub fn mask(self) -> u64 {
        ring_mask(self.width)
    }

    /// Rounds a real number to the nearest representable integer (not reduced modulo the ring).
    pub fn quantize(self, x: f64) -> i64 {
        (x * (self.frac_bits as f64).exp2()).round() as i64
    }

    /// The real number that the integer `v` stands for.
    pub fn dequantize(self, v: i64) -> f64 {
        v as f64 * (-(self.frac_bits as f64)).exp2()
    }
}

/// `2^width - 1` for `1 <= width <= 64`.
pub fn ring_mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// Reads a ring element as a signed integer in `[-2^(width-1), 2^(width-1))`. Bits above `width`
/// are ignored.
pub fn to_signed(v: u64, width: u32) -> i64 {
    ((v << (64 - width)) as i64) >> (64 - width)
}

/// Reduces a signed integer into the ring: the representative in `[0, 2^width)`.
pub fn to_ring(v: i64, width: u32) -> u64 {
    (v as u64) & ring_mask(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signed_round_trip(v in -(1i64 << 36)..(1i64 << 36)) {
            prop_assert_eq!(to_signed(to_ring(v, 37), 37), v);
        }
    }

    #[test]
    fn quantize_rounds_to_nearest() {
        let f = FixedPoint { width: 37, frac_bits: 12 };
        assert_eq!(f.quantize(1.0), 4096);
        assert_eq!(f.quantize(-0.00013), -1);
        assert!((f.dequantize(4097) - 1.000_244_140_625).abs() < 1e-12);
    }

    #[test]
    fn refuses_formats_out_of_range() {
        assert!(FixedPoint { width: 41, frac_bits: 12 }.check().is_err());
        assert!(FixedPoint { width: 1, frac_bits: 0 }.check().is_err());
    }
}
