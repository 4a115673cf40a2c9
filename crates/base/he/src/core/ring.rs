//! The ring of a scheme.

use crate::HeError;
use tacit_arith::rns::RnsBasis;

/// Classical security of every [`Ring`] with a uniform ternary secret and errors of
/// [`tacit_arith::sample::error`], by the standard of 2018. Estimates of 2024 have up to four bits less at a
/// full modulus (`docs/parameters.md`).
pub const SECURITY_BITS: u32 = 128;

/// Degree and most bits of the modulus for [`SECURITY_BITS`], uniform ternary secret, error of deviation 3.2:
/// HomomorphicEncryption.org standard (2018), table 1.
const MAX_MODULUS_BITS: [(usize, u32); 6] =
    [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16_384, 438), (32_768, 881)];

/// `Z_q[X]/(X^N + 1)` with q the product of a chain of primes, small enough for [`SECURITY_BITS`]. Immutable.
pub struct Ring {
    basis: RnsBasis,
}

impl Ring {
    /// The ring of degree `degree` mod the product of `primes`, special primes included.
    ///
    /// # Errors
    /// [`HeError::Insecure`] if the product is too large for the degree or the degree is not in the
    /// standard's table; [`HeError::Lattice`] for primes that are none or do not fit the degree.
    pub fn new(degree: usize, primes: &[u64]) -> Result<Self, HeError> {
        let modulus_log2: f64 = primes.iter().map(|&p| (p as f64).log2()).sum();
        let row = MAX_MODULUS_BITS.iter().find(|(n, _)| *n == degree);
        let max = row.map_or(0, |&(_, bits)| bits);
        if modulus_log2 > f64::from(max) {
            return Err(HeError::Insecure { degree, modulus_log2, max });
        }
        Ok(Self { basis: RnsBasis::new(degree, primes)? })
    }

    /// Primes, transforms and what leads from one level to another.
    #[must_use]
    pub fn basis(&self) -> &RnsBasis {
        &self.basis
    }

    /// Number of coefficients N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.basis.degree()
    }
}
