//! Subsets of the chain of primes.

/// Which primes a polynomial has residues for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The first so many of `q_0 ..`.
    pub level: usize,
    /// The first so many special primes.
    pub special: usize,
}

impl Shape {
    /// The first `level` primes, no special ones.
    #[must_use]
    pub fn level(level: usize) -> Self {
        Self { level, special: 0 }
    }

    /// Number of residues.
    #[must_use]
    pub fn limbs(self) -> usize {
        self.level + self.special
    }
}
