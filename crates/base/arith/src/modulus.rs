//! Word-sized prime moduli of at most 50 bits: Barrett reduction and Shoup multiplication.
//!
//! All operands named `a`, `b`, `x` are in `[0, p)` unless the name ends in `_lazy`. No function
//! branches on them: the last corrections are `min(r, r - p)` on wrapped integers, which compiles to
//! conditional moves.

use crate::LatticeError;

/// Largest size of a modulus in bits: four times a modulus must fit the 52 bits of IFMA.
pub const MAX_MODULUS_BITS: u32 = 50;

/// A prime modulus `p`, `3 <= p < 2^50`, with its Barrett constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modulus {
    value: u64,
    bits: u32,
    /// floor(2^(2*bits + 3) / p)
    barrett: u64,
    /// floor(2^64 / p)
    barrett64: u64,
}

/// A fixed multiplicand `w` in `[0, p)` with its precomputed quotient `floor(w * 2^52 / p)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shoup {
    /// The multiplicand.
    pub value: u64,
    /// `floor(value * 2^52 / p)`.
    pub quotient: u64,
}

/// Reduces `r < 2p` to `[0, p)`.
#[inline(always)]
fn correct(r: u64, p: u64) -> u64 {
    r.min(r.wrapping_sub(p))
}

impl Modulus {
    /// Checks that `value` is an odd prime below 2^50.
    ///
    /// # Errors
    /// [`LatticeError::Modulus`] otherwise.
    pub fn new(value: u64) -> Result<Self, LatticeError> {
        if value < 3 || value >> MAX_MODULUS_BITS != 0 || !is_prime(value) {
            return Err(LatticeError::Modulus { value });
        }
        let bits = 64 - value.leading_zeros();
        let barrett = ((1u128 << (2 * bits + 3)) / u128::from(value)) as u64;
        let barrett64 = ((1u128 << 64) / u128::from(value)) as u64;
        Ok(Self { value, bits, barrett, barrett64 })
    }

    /// The prime itself.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Bits of the prime: `2^(bits-1) < p < 2^bits`.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// `a + b mod p`.
    #[inline(always)]
    pub fn add(&self, a: u64, b: u64) -> u64 {
        correct(a + b, self.value)
    }

    /// `a - b mod p`.
    #[inline(always)]
    pub fn sub(&self, a: u64, b: u64) -> u64 {
        let d = a.wrapping_sub(b);
        d.min(d.wrapping_add(self.value))
    }

    /// `-a mod p`.
    #[inline(always)]
    pub fn neg(&self, a: u64) -> u64 {
        self.sub(0, a)
    }

    /// `a * b mod p`.
    #[inline(always)]
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        self.reduce_product(u128::from(a) * u128::from(b))
    }

    /// `x mod p` for `x < p * 2^bits` (any product of two reduced values).
    #[inline(always)]
    pub fn reduce_product(&self, x: u128) -> u64 {
        // The quotient estimate is at most one too small: Barrett (HAC 14.42), three guard bits.
        let head = (x >> (self.bits - 1)) as u64;
        let estimate = ((u128::from(head) * u128::from(self.barrett)) >> (self.bits + 4)) as u64;
        let r = (x as u64).wrapping_sub(estimate.wrapping_mul(self.value));
        correct(correct(r, self.value), self.value)
    }

    /// `x mod p` for any `x`.
    #[inline(always)]
    pub fn reduce(&self, x: u64) -> u64 {
        let estimate = ((u128::from(x) * u128::from(self.barrett64)) >> 64) as u64;
        let r = x.wrapping_sub(estimate.wrapping_mul(self.value));
        correct(correct(r, self.value), self.value)
    }

    /// `x mod p` in `[0, p)` for a signed `x`, without branches on `x`.
    #[inline(always)]
    pub fn reduce_i64(&self, x: i64) -> u64 {
        let r = self.reduce(x.unsigned_abs());
        let n = self.neg(r);
        let mask = (x >> 63) as u64;
        (r & !mask) | (n & mask)
    }

    /// The representative of `a` in `(-p/2, p/2]`.
    #[inline(always)]
    pub fn centred(&self, a: u64) -> i64 {
        let over = ((self.value / 2).wrapping_sub(a) >> 63).wrapping_neg();
        a.wrapping_sub(self.value & over) as i64
    }

    /// `base^exponent mod p`; time depends on the exponent.
    pub fn pow_vartime(&self, base: u64, mut exponent: u64) -> u64 {
        let (mut b, mut r) = (self.reduce(base), 1);
        while exponent != 0 {
            if exponent & 1 == 1 {
                r = self.mul(r, b);
            }
            b = self.mul(b, b);
            exponent >>= 1;
        }
        r
    }

    /// The multiplicand `2^exponent mod p`; time depends on the exponent.
    pub(crate) fn power_of_two(&self, exponent: u64) -> Shoup {
        self.shoup(self.pow_vartime(2, exponent))
    }

    /// The inverse of a non-zero `a`; 0 for 0.
    pub fn inv(&self, a: u64) -> u64 {
        self.pow_vartime(a, self.value - 2)
    }

    /// Precomputes a multiplicand.
    pub fn shoup(&self, w: u64) -> Shoup {
        Shoup { value: w, quotient: ((u128::from(w) << 52) / u128::from(self.value)) as u64 }
    }

    /// `x * w mod p` in `[0, 2p)` for any `x < 2^52`.
    #[inline(always)]
    pub fn mul_shoup_lazy(&self, x: u64, w: Shoup) -> u64 {
        let estimate = ((u128::from(x) * u128::from(w.quotient)) >> 52) as u64;
        x.wrapping_mul(w.value).wrapping_sub(estimate.wrapping_mul(self.value)) & ((1 << 52) - 1)
    }

    /// `x * w mod p` for any `x < 2^52`.
    #[inline(always)]
    pub fn mul_shoup(&self, x: u64, w: Shoup) -> u64 {
        correct(self.mul_shoup_lazy(x, w), self.value)
    }

    /// A primitive root of unity of order `order`, a power of two: the same for both parties.
    ///
    /// # Errors
    /// [`LatticeError::NoRoot`] if `order` does not divide `p - 1`.
    pub fn primitive_root(&self, order: u64) -> Result<u64, LatticeError> {
        let missing = LatticeError::NoRoot { value: self.value, order };
        if !order.is_power_of_two() || order < 2 || !(self.value - 1).is_multiple_of(order) {
            return Err(missing);
        }
        (2..1000)
            .map(|g| self.pow_vartime(g, (self.value - 1) / order))
            .find(|&r| self.pow_vartime(r, order / 2) == self.value - 1)
            .ok_or(missing)
    }
}

/// Deterministic Miller-Rabin, exact below 2^64 with these bases (Sinclair).
pub fn is_prime(n: u64) -> bool {
    if n < 2 {
        return false;
    }
    if [2, 3, 5, 7, 11, 13].contains(&n) {
        return true;
    }
    if n.is_multiple_of(2) {
        return false;
    }
    let shift = (n - 1).trailing_zeros();
    'base: for base in [2u64, 325, 9375, 28178, 450_775, 9_780_504, 1_795_265_022] {
        let (mut b, mut e, mut x) = (base % n, (n - 1) >> shift, 1u64);
        if b == 0 {
            continue;
        }
        while e != 0 {
            if e & 1 == 1 {
                x = mul_mod(x, b, n);
            }
            b = mul_mod(b, b, n);
            e >>= 1;
        }
        if x == 1 || x == n - 1 {
            continue;
        }
        for _ in 1..shift {
            x = mul_mod(x, x, n);
            if x == n - 1 {
                continue 'base;
            }
        }
        return false;
    }
    true
}

/// `a b mod n`; time depends on the values.
#[inline]
fn mul_mod(a: u64, b: u64, n: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) % u128::from(n)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Primes of 15 to 50 bits, all 1 mod 8192.
    const PRIMES: [u64; 4] = [40961, 65537, 1_073_692_673, 1_125_899_906_826_241];

    #[test]
    fn rejects_composites_and_large_values() {
        for v in [0, 1, 2, 4, 40963 * 3, 1 << 50, (1 << 61) - 1] {
            assert_eq!(Modulus::new(v), Err(LatticeError::Modulus { value: v }));
        }
        assert!(is_prime((1 << 61) - 1) && !is_prime(3_215_031_751) && is_prime(5));
    }

    #[test]
    fn roots_have_the_stated_order() {
        for p in PRIMES {
            let m = Modulus::new(p).unwrap();
            let r = m.primitive_root(8192).unwrap();
            assert_eq!(m.pow_vartime(r, 4096), p - 1);
        }
        assert!(Modulus::new(40961).unwrap().primitive_root(1 << 14).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_u128(a in any::<u64>(), b in any::<u64>(), i in 0usize..4) {
            let m = Modulus::new(PRIMES[i]).unwrap();
            let p = PRIMES[i];
            let (x, y) = (a % p, b % p);
            let wide = |v: u128| (v % u128::from(p)) as u64;
            prop_assert_eq!(m.mul(x, y), wide(u128::from(x) * u128::from(y)));
            prop_assert_eq!(m.add(x, y), wide(u128::from(x) + u128::from(y)));
            prop_assert_eq!(m.sub(x, y), wide(u128::from(x) + u128::from(p - y)));
            prop_assert_eq!(m.reduce(a), a % p);
            prop_assert_eq!(m.reduce_i64(a as i64), (a as i64).rem_euclid(p as i64) as u64);
            let lazy = m.mul_shoup_lazy(a >> 12, m.shoup(y));
            prop_assert!(lazy < 2 * p);
            prop_assert_eq!(lazy % p, wide(u128::from(a >> 12) * u128::from(y)));
            let c = m.centred(x);
            prop_assert!(c.rem_euclid(p as i64) as u64 == x && 2 * c.unsigned_abs() <= p);
            if x != 0 {
                prop_assert_eq!(m.mul(x, m.inv(x)), 1);
            }
        }
    }
}
