use super::{Ntt, RnsBasis, RnsPoly};
use crate::ntt::MAX_ACCUMULATED;

/// A sum of any number of products at one level, reduced once at the end (see
/// [`NttTable::mac`](crate::ntt::NttTable::mac)).
pub struct Accumulator {
    low: Vec<u64>,
    high: Vec<u64>,
    degree: usize,
    count: usize,
}

impl Accumulator {
    /// Zero at `level`.
    pub fn new(basis: &RnsBasis, level: usize) -> Self {
        let (degree, len) = (basis.degree(), level * basis.degree());
        Self { low: vec![0; len], high: vec![0; len], degree, count: 0 }
    }

    /// A sum of `count` products that [`NttTable::mac`](crate::ntt::NttTable::mac) added, prime
    /// after prime.
    ///
    /// # Panics
    /// If `low` and `high` differ in length, the length fits no level of `basis`, or `count` is
    /// above [`MAX_ACCUMULATED`].
    pub fn from_sums(basis: &RnsBasis, low: Vec<u64>, high: Vec<u64>, count: usize) -> Self {
        let degree = basis.degree();
        let fits = low.len() == high.len() && low.len().is_multiple_of(degree) && low.len() / degree <= basis.levels();
        assert!(fits && count <= MAX_ACCUMULATED, "{} words, {count} products", low.len());
        Self { low, high, degree, count }
    }

    /// Adds `sum a_k * b_k` to the residues mod the first `level` primes. If the sum has a higher
    /// level, the added element is a multiple of the other primes.
    ///
    /// # Panics
    /// If a polynomial or the sum has a level below `level`, or another degree.
    pub fn add_products(&mut self, basis: &RnsBasis, level: usize, pairs: &[(&RnsPoly<Ntt>, &RnsPoly<Ntt>)]) {
        let mut residues: Vec<(&[u64], &[u64])> = Vec::with_capacity(pairs.len().min(MAX_ACCUMULATED));
        for part in pairs.chunks(MAX_ACCUMULATED - 1) {
            if self.count + part.len() > MAX_ACCUMULATED {
                self.reduce(basis);
                // A reduced sum counts as one product.
                self.count = 1;
            }
            for i in 0..level {
                residues.clear();
                residues.extend(part.iter().map(|(a, b)| (a.residue(i), b.residue(i))));
                let range = i * self.degree..(i + 1) * self.degree;
                basis.table(i).mac(&mut self.low[range.clone()], &mut self.high[range], &residues);
            }
            self.count += part.len();
        }
    }

    /// Makes room for `count` products of [`Accumulator::add_runs`] for each prime.
    ///
    /// # Panics
    /// If `count` is [`MAX_ACCUMULATED`] or more.
    pub fn reserve(&mut self, basis: &RnsBasis, count: usize) {
        assert!(count < MAX_ACCUMULATED, "{count} products at once");
        if self.count + count > MAX_ACCUMULATED {
            self.reduce(basis);
            self.count = 1;
        }
        self.count += count;
    }

    /// Adds `sum a_k * b_k` mod `p_i` by [`NttTable::mac_runs`](crate::ntt::NttTable::mac_runs),
    /// after [`Accumulator::reserve`].
    ///
    /// # Panics
    /// As [`NttTable::mac_runs`](crate::ntt::NttTable::mac_runs), or if the sum has no such prime.
    pub fn add_runs(&mut self, basis: &RnsBasis, i: usize, pairs: &[(&[u64], &[u64])]) {
        let range = i * self.degree..(i + 1) * self.degree;
        basis.table(i).mac_runs(&mut self.low[range.clone()], &mut self.high[range], pairs);
    }

    fn reduce(&mut self, basis: &RnsBasis) {
        let parts = self.low.chunks_exact_mut(self.degree).zip(self.high.chunks_exact_mut(self.degree));
        parts.enumerate().for_each(|(i, (low, high))| basis.table(i).reduce_acc(low, high));
    }

    /// Returns the sum and leaves zero in its place.
    #[must_use]
    pub fn take(&mut self, basis: &RnsBasis) -> RnsPoly<Ntt> {
        self.reduce(basis);
        self.count = 0;
        let len = self.low.len();
        RnsPoly::from_words(std::mem::replace(&mut self.low, vec![0; len]), self.degree)
    }
}
