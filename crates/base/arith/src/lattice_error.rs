//! Errors of the lattice arithmetic.

/// An invalid modulus, transform, polynomial or basis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LatticeError {
    /// Not an odd prime below 2^50.
    #[error("{value} is not an odd prime below 2^50")]
    Modulus {
        /// The value given.
        value: u64,
    },
    /// The modulus has no root of unity of the order the transform needs.
    #[error("modulus {value} has no primitive root of unity of order {order}")]
    NoRoot {
        /// The modulus.
        value: u64,
        /// The order needed: twice the degree.
        order: u64,
    },
    /// Degree not a power of two in range.
    #[error("degree {degree} is not a power of two from 64 to 131072")]
    Degree {
        /// The degree given.
        degree: usize,
    },
    /// A basis without primes.
    #[error("a residue number system needs at least one prime")]
    NoPrimes,
    /// A basis that contains a prime twice.
    #[error("prime {value} is twice in one residue number system")]
    Repeated {
        /// The prime.
        value: u64,
    },
    /// An exponent that gives no automorphism.
    #[error("X -> X^{element} is no automorphism: exponents are odd and below {order}")]
    Galois {
        /// The exponent given.
        element: u64,
        /// Twice the degree.
        order: u64,
    },
    /// Too many primes to convert from.
    #[error("a conversion reads at most 64 primes, not {count}")]
    Sources {
        /// The primes given.
        count: usize,
    },
}
