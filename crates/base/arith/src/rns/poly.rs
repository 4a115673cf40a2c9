use super::RnsBasis;
use std::marker::PhantomData;
use zeroize::Zeroize;

/// Representation: residues are coefficients, constant term first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Coeff {}

/// Representation: residues are values of the number-theoretic transform.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ntt {}

/// A polynomial `[L, N]` at level L: N words in `[0, p_i)` for each prime, in one buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct RnsPoly<R> {
    words: Vec<u64>,
    degree: usize,
    representation: PhantomData<R>,
}

impl<R> RnsPoly<R> {
    /// A polynomial of reduced words `[L, N]`.
    ///
    /// # Panics
    /// If the number of words fits no level of `basis`; in debug builds, if a word is not below its
    /// modulus.
    pub fn new(basis: &RnsBasis, words: Vec<u64>) -> Self {
        let (degree, level) = (basis.degree(), words.len() / basis.degree());
        let fits = words.len() == level * degree && (1..=basis.levels()).contains(&level);
        assert!(fits, "{} words, degree {degree}", words.len());
        let mut parts = words.chunks_exact(degree).enumerate();
        debug_assert!(parts.all(|(i, part)| part.iter().all(|&v| v < basis.modulus(i).value())), "words are reduced");
        Self::from_words(words, degree)
    }

    pub(super) fn from_words(words: Vec<u64>, degree: usize) -> Self {
        Self { words, degree, representation: PhantomData }
    }

    /// Number of primes in use.
    pub fn level(&self) -> usize {
        self.words.len() / self.degree
    }

    /// The N words mod `p_i`.
    ///
    /// # Panics
    /// If `i` is not below the level.
    pub fn residue(&self, i: usize) -> &[u64] {
        &self.words[i * self.degree..][..self.degree]
    }
}

impl RnsPoly<Coeff> {
    /// Reduces N signed coefficients mod the first `level` primes, without branches on them.
    ///
    /// # Panics
    /// If there are not N coefficients, or the basis has fewer than `level` primes.
    pub fn from_signed(basis: &RnsBasis, level: usize, coefficients: &[i64]) -> Self {
        let degree = basis.degree();
        assert_eq!(coefficients.len(), degree, "one value per coefficient");
        let mut words = Vec::with_capacity(level * degree);
        for i in 0..level {
            let m = basis.modulus(i);
            words.extend(coefficients.iter().map(|&v| m.reduce_i64(v)));
        }
        Self::from_words(words, degree)
    }

    /// Transforms in place.
    ///
    /// # Panics
    /// If `basis` has another degree, or fewer primes than the level.
    #[must_use]
    pub fn into_ntt(mut self, basis: &RnsBasis) -> RnsPoly<Ntt> {
        let parts = self.words.chunks_exact_mut(self.degree);
        parts.enumerate().for_each(|(i, part)| basis.table(i).forward(part));
        RnsPoly::from_words(self.words, self.degree)
    }

    /// Divides by the last prime of the level, rounded; the level falls by one.
    ///
    /// # Panics
    /// At level 1, or if `basis` has another degree, or fewer primes than the level.
    pub fn rescale(&mut self, basis: &RnsBasis) {
        let level = self.level();
        let (remaining, last) = self.words.split_at_mut((level - 1) * self.degree);
        assert!(!remaining.is_empty(), "the first prime cannot be dropped");
        for (i, part) in remaining.chunks_exact_mut(self.degree).enumerate() {
            let rescale = basis.rescale(level, i);
            part.iter_mut().zip(&*last).for_each(|(x, &low)| *x = rescale.apply(*x, low));
        }
        self.words.truncate((level - 1) * self.degree);
    }
}

impl RnsPoly<Ntt> {
    /// Transforms back in place.
    ///
    /// # Panics
    /// If `basis` has another degree, or fewer primes than the level.
    #[must_use]
    pub fn into_coeff(mut self, basis: &RnsBasis) -> RnsPoly<Coeff> {
        let parts = self.words.chunks_exact_mut(self.degree);
        parts.enumerate().for_each(|(i, part)| basis.table(i).inverse(part));
        RnsPoly::from_words(self.words, self.degree)
    }

    /// Multiplies by `rhs`, at the level of `self`.
    ///
    /// # Panics
    /// If `rhs` has a lower level, or `basis` has another degree, or fewer primes than the level.
    pub fn mul_assign(&mut self, rhs: &Self, basis: &RnsBasis) {
        let parts = self.words.chunks_exact_mut(self.degree);
        parts.enumerate().for_each(|(i, part)| basis.table(i).mul_assign(part, rhs.residue(i)));
    }

    /// Adds `rhs`, at the level of `self`.
    ///
    /// # Panics
    /// If `rhs` has a lower level, or `basis` has fewer primes than the level.
    pub fn add_assign(&mut self, rhs: &Self, basis: &RnsBasis) {
        for (i, part) in self.words.chunks_exact_mut(self.degree).enumerate() {
            basis.table(i).pointwise().add(part, rhs.residue(i));
        }
    }

    /// Subtracts `rhs`, at the level of `self`.
    ///
    /// # Panics
    /// If `rhs` has a lower level, or `basis` has fewer primes than the level.
    pub fn sub_assign(&mut self, rhs: &Self, basis: &RnsBasis) {
        for (i, part) in self.words.chunks_exact_mut(self.degree).enumerate() {
            basis.table(i).pointwise().sub(part, rhs.residue(i));
        }
    }
}

impl<R> Zeroize for RnsPoly<R> {
    fn zeroize(&mut self) {
        self.words.zeroize();
    }
}
