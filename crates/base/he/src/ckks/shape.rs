//! Subsets of the chain of primes.

/// The primes at which a polynomial has residues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Number of primes, from `q_0` on.
    pub level: usize,
    /// Number of special primes, from the first on.
    pub special: usize,
}

impl Shape {
    /// The first `level` primes, without special ones.
    pub fn level(level: usize) -> Self {
        Self { level, special: 0 }
    }

    /// Number of residues.
    pub fn limbs(self) -> usize {
        self.level + self.special
    }
}
