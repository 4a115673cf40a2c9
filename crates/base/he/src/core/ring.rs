//! The ring of a scheme.

use crate::HeError;
use tacit_arith::rns::RnsBasis;

/// Bits of classical security of every [`Ring`], by the standard of 2018, for a uniform ternary
/// secret and errors of [`tacit_arith::sample::error`]. Estimates of 2024 are up to four bits lower
/// (`docs/parameters.md`).
pub const SECURITY_BITS: u32 = 128;

/// Degree and largest bits of the modulus for [`SECURITY_BITS`], a uniform ternary secret and
/// errors of deviation 3.2: HomomorphicEncryption.org standard (2018), table 1.
const MAX_MODULUS_BITS: [(usize, u32); 6] =
    [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16_384, 438), (32_768, 881)];

/// `Z_q[X]/(X^N + 1)` with q a product of primes, small enough for [`SECURITY_BITS`]. Immutable.
pub struct Ring {
    basis: RnsBasis,
}

impl Ring {
    /// The ring mod the product of `primes`, special primes included.
    ///
    /// # Errors
    /// [`HeError::Insecure`] if the product is too large or the standard's table lacks the degree;
    /// [`HeError::Lattice`] for a modulus that is not prime or does not fit the degree.
    pub fn new(degree: usize, primes: &[u64]) -> Result<Self, HeError> {
        let modulus_log2: f64 = primes.iter().map(|&p| (p as f64).log2()).sum();
        let row = MAX_MODULUS_BITS.iter().find(|(n, _)| *n == degree);
        let max = row.map_or(0, |&(_, bits)| bits);
        if modulus_log2 > f64::from(max) {
            return Err(HeError::Insecure { degree, modulus_log2, max });
        }
        Ok(Self { basis: RnsBasis::new(degree, primes)? })
    }

    /// The primes and their transforms.
    pub fn basis(&self) -> &RnsBasis {
        &self.basis
    }

    /// Number of coefficients N.
    pub fn degree(&self) -> usize {
        self.basis.degree()
    }
}
