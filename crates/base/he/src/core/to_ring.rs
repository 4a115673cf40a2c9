//! Conversion of shares mod a prime to shares mod a power of two.

/// Computes `round(2^l x / p) mod 2^l` for x in `[0, p)`, with an error of at most 2^-13 before
/// rounding.
///
/// Two shares of `y` mod p become two shares of `2^l y / p` mod 2^l, off by one at most: a wrap by
/// p adds a multiple of 2^l.
#[derive(Clone, Copy, Debug)]
pub struct ToRing {
    factor: u64,
    mask: u64,
}

impl ToRing {
    /// The conversion for `prime` and l = `ring_bits`.
    ///
    /// # Panics
    /// If `2^l` is above the prime, or the prime has more than 50 bits.
    pub fn new(prime: u64, ring_bits: u32) -> Self {
        assert!(prime >> 50 == 0 && 1 << ring_bits <= prime, "a ring is no larger than the field that is left for it");
        // At most 2^63. Its rounding error times x is below 2^50, which is 2^-13 in units of 2^63.
        let factor = ((1u128 << (ring_bits + 63)) + u128::from(prime / 2)) / u128::from(prime);
        Self { factor: factor as u64, mask: (1 << ring_bits) - 1 }
    }

    /// Converts a share mod the prime, in constant time.
    #[inline(always)]
    pub fn apply(&self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.factor) + (1 << 62)) >> 63) as u64 & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_shares_are_off_by_one_at_most(
            prime in prop::sample::select(vec![65_537u64, 68_718_428_161, 1_125_899_906_826_241]),
            bits in 4u32..=16,
            y in any::<u64>(),
            c in any::<u64>(),
        ) {
            let (y, c, ring) = (y % prime, c % prime, ToRing::new(prime, bits));
            let s = (y + prime - c) % prime;
            let sum = ring.apply(c).wrapping_add(ring.apply(s)) & ((1 << bits) - 1);
            let exact = (u128::from(y) << bits) as f64 / prime as f64;
            let away = (sum as f64 - exact).rem_euclid(f64::from(1u32 << bits));
            prop_assert!(away < 1.001 || away > f64::from(1u32 << bits) - 1.001, "{sum} for {exact}");
        }
    }
}
