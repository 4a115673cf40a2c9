//! Polynomials of `Z_p[X]/(X^N + 1)`. The representation is the type: [`CoeffPoly`] holds coefficients, [`NttPoly`] values in
//! the order of [`crate::ntt`]; all words are in `[0, p)` of the modulus that the owner keeps beside them.

use crate::modulus::Modulus;
use crate::ntt::Ntt;
use zeroize::Zeroize;

/// A polynomial as coefficients, constant term first.
#[derive(Clone, PartialEq, Eq, Zeroize)]
pub struct CoeffPoly(Vec<u64>);

/// A polynomial in the NTT domain.
#[derive(Clone, PartialEq, Eq, Zeroize)]
pub struct NttPoly(Vec<u64>);

impl CoeffPoly {
    /// Takes reduced coefficients.
    ///
    /// # Panics
    /// In debug builds, if a coefficient is not below the modulus.
    #[must_use]
    pub fn new(values: Vec<u64>, modulus: &Modulus) -> Self {
        debug_assert!(values.iter().all(|&v| v < modulus.value()));
        Self(values)
    }

    /// Reduces signed coefficients, without branches on them.
    #[must_use]
    pub fn from_signed(values: &[i64], modulus: &Modulus) -> Self {
        Self(values.iter().map(|&v| modulus.reduce_i64(v)).collect())
    }

    /// The coefficients, each in `[0, p)`.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Transforms in place.
    ///
    /// # Panics
    /// If the degrees differ.
    #[must_use]
    pub fn into_ntt(mut self, ntt: &Ntt) -> NttPoly {
        ntt.forward(&mut self.0);
        NttPoly(std::mem::take(&mut self.0))
    }
}

impl NttPoly {
    /// Takes reduced NTT values (a uniform polynomial may be sampled in either domain).
    ///
    /// # Panics
    /// In debug builds, if a value is not below the modulus.
    #[must_use]
    pub fn new(values: Vec<u64>, modulus: &Modulus) -> Self {
        debug_assert!(values.iter().all(|&v| v < modulus.value()));
        Self(values)
    }

    /// The values, each in `[0, p)`.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Transforms back in place.
    ///
    /// # Panics
    /// If the degrees differ.
    #[must_use]
    pub fn into_coeff(mut self, ntt: &Ntt) -> CoeffPoly {
        ntt.inverse(&mut self.0);
        CoeffPoly(std::mem::take(&mut self.0))
    }

    /// Pointwise product.
    ///
    /// # Panics
    /// If the degrees differ.
    pub fn mul_assign(&mut self, other: &NttPoly, ntt: &Ntt) {
        ntt.mul_assign(&mut self.0, &other.0);
    }
}

/// A sum of up to any number of products, kept unreduced (see [`Ntt::mac`]).
pub struct Accumulator {
    low: Vec<u64>,
    high: Vec<u64>,
    count: usize,
}

impl Accumulator {
    /// Zero.
    #[must_use]
    pub fn new(degree: usize) -> Self {
        Self { low: vec![0; degree], high: vec![0; degree], count: 0 }
    }

    /// Adds `sum a_i * b_i`.
    ///
    /// # Panics
    /// If the degrees differ.
    pub fn add_products(&mut self, ntt: &Ntt, pairs: &[(&[u64], &[u64])]) {
        for part in pairs.chunks(crate::ntt::MAX_ACCUMULATED - 1) {
            if self.count + part.len() > crate::ntt::MAX_ACCUMULATED {
                ntt.reduce_acc(&mut self.low, &mut self.high);
                self.count = 1;
            }
            ntt.mac(&mut self.low, &mut self.high, part);
            self.count += part.len();
        }
    }

    /// The sum, and a zero accumulator in its place.
    #[must_use]
    pub fn take(&mut self, ntt: &Ntt) -> NttPoly {
        ntt.reduce_acc(&mut self.low, &mut self.high);
        self.count = 0;
        let degree = self.low.len();
        NttPoly(std::mem::replace(&mut self.low, vec![0; degree]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulator_folds_before_it_overflows() {
        let m = Modulus::new(1_125_899_906_826_241).unwrap();
        let ntt = Ntt::new(64, m).unwrap();
        let full = vec![m.value() - 1; 64];
        let mut acc = Accumulator::new(64);
        for _ in 0..3 {
            acc.add_products(&ntt, &vec![(full.as_slice(), full.as_slice()); 3000]);
        }
        assert_eq!(acc.take(&ntt).values(), vec![9000; 64]);
        assert_eq!(acc.take(&ntt).values(), vec![0; 64]);
    }

    #[test]
    fn representations_round_trip() {
        let m = Modulus::new(40961).unwrap();
        let ntt = Ntt::new(64, m).unwrap();
        let signed: Vec<i64> = (0..64).map(|i| (i - 32) * 5000).collect();
        let poly = CoeffPoly::from_signed(&signed, &m);
        assert_eq!(poly.values()[0], (-160_000i64).rem_euclid(40961) as u64);
        let mut squared = poly.clone().into_ntt(&ntt);
        assert!(squared.clone().into_coeff(&ntt) == poly);
        let same = squared.clone();
        squared.mul_assign(&same, &ntt);
        assert!(squared.into_coeff(&ntt) != poly);
    }
}
