use crate::LatticeError;
use crate::modulus::{Modulus, Shoup};
use crate::ntt::NttTable;

/// A chain of distinct NTT primes with their transforms, for one degree. Immutable.
pub struct RnsBasis {
    degree: usize,
    tables: Vec<NttTable>,
    /// `inverses[i][j]` = `p_j^-1 mod p_i` for `i != j`.
    inverses: Vec<Vec<Shoup>>,
}

impl RnsBasis {
    /// Builds the tables for `primes` at `degree`, a power of two from 64 to 2^17.
    ///
    /// # Errors
    /// [`LatticeError`] if `primes` is empty, has a number twice or one that is not prime, or does
    /// not fit the degree.
    pub fn new(degree: usize, primes: &[u64]) -> Result<Self, LatticeError> {
        if primes.is_empty() {
            return Err(LatticeError::NoPrimes);
        }
        let mut tables: Vec<NttTable> = Vec::with_capacity(primes.len());
        for &value in primes {
            if tables.iter().any(|t| t.modulus().value() == value) {
                return Err(LatticeError::Repeated { value });
            }
            tables.push(NttTable::new(degree, Modulus::new(value)?)?);
        }
        let moduli = tables.iter().map(NttTable::modulus);
        let inverses = moduli.map(|m| primes.iter().map(|&p| m.shoup(m.inv(m.reduce(p)))).collect()).collect();
        Ok(Self { degree, tables, inverses })
    }

    /// Number of coefficients N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// Number of primes: the highest level.
    pub fn levels(&self) -> usize {
        self.tables.len()
    }

    /// The transform mod `p_i`.
    ///
    /// # Panics
    /// If `i` is not below [`RnsBasis::levels`].
    pub fn table(&self, i: usize) -> &NttTable {
        &self.tables[i]
    }

    /// The modulus `p_i`.
    ///
    /// # Panics
    /// If `i` is not below [`RnsBasis::levels`].
    pub fn modulus(&self, i: usize) -> &Modulus {
        self.tables[i].modulus()
    }

    /// The conversion of the residues of level `L` to integers.
    ///
    /// # Panics
    /// If the basis has fewer than `L` primes, or their product is not below 2^127.
    pub fn lift<const L: usize>(&self) -> Lift<L> {
        let moduli: [Modulus; L] = std::array::from_fn(|i| *self.modulus(i));
        let product = moduli.iter().try_fold(1u128, |q, m| q.checked_mul(u128::from(m.value())));
        assert!(product.is_some_and(|q| q >> 127 == 0), "the product of {L} primes passes 2^127");
        Lift { moduli, inverses: std::array::from_fn(|i| std::array::from_fn(|j| self.inverses[i][j])) }
    }

    /// Division of level `level` by its last prime, for residues mod `p_i`.
    ///
    /// # Panics
    /// If the basis has fewer than `level` primes, or `i` is not below `level - 1`.
    pub fn rescale(&self, level: usize, i: usize) -> Rescale {
        let last = level - 1;
        assert!(i < last, "residue {i} of level {level} does not outlast the division");
        Rescale { modulus: *self.modulus(i), last: *self.modulus(last), inverse: self.inverses[i][last] }
    }
}

/// Conversion of the residues of level `L` to an integer (Garner's mixed radix).
#[derive(Clone, Copy)]
pub struct Lift<const L: usize> {
    moduli: [Modulus; L],
    inverses: [[Shoup; L]; L],
}

impl<const L: usize> Lift<L> {
    /// Returns the integer in `[0, p_0 * .. * p_(L-1))` with these residues.
    #[inline(always)]
    pub fn apply(&self, residues: [u64; L]) -> u128 {
        let mut digits = residues;
        for i in 0..L {
            let m = &self.moduli[i];
            for j in 0..i {
                digits[i] = m.mul_shoup(m.sub(digits[i], m.reduce(digits[j])), self.inverses[i][j]);
            }
        }
        (0..L).rev().fold(0, |x, i| x * u128::from(self.moduli[i].value()) + u128::from(digits[i]))
    }
}

/// Division by the last prime of a level, rounded, for one remaining residue.
#[derive(Clone, Copy)]
pub struct Rescale {
    modulus: Modulus,
    last: Modulus,
    inverse: Shoup,
}

impl Rescale {
    /// Computes `round(v / p_last) mod p_i` for the `v` with residues `x` mod `p_i` and `last` mod
    /// `p_last`.
    #[inline(always)]
    pub fn apply(&self, x: u64, last: u64) -> u64 {
        let low = self.modulus.reduce_i64(self.last.centred(last));
        self.modulus.mul_shoup(self.modulus.sub(x, low), self.inverse)
    }
}
