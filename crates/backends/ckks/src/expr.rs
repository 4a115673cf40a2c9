//! Tensors before they are computed: linear expressions in slots of vectors, and polynomials of single
//! elements.

use std::collections::BTreeMap;

use super::maps::Map;
use super::program::{Vector, VectorId};
use super::sparse::Sparse;

/// `sum M_k slots_k + bias`: the values of a tensor.
#[derive(Clone)]
pub(super) struct Expr {
    pub parts: BTreeMap<VectorId, Sparse>,
    pub bias: Vec<f64>,
}

impl Expr {
    pub fn from_vector(id: VectorId, vector: &Vector) -> Self {
        let parts = BTreeMap::from([(id, Sparse::diagonal(&vector.scale))]);
        Self { parts, bias: vec![vector.shift; vector.scale.len()] }
    }

    pub fn entries(&self) -> usize {
        self.parts.values().map(Sparse::entries).sum()
    }

    /// Most entries that [`mapped`](Self::mapped) can make.
    pub fn entries_mapped(&self, matrix: &Sparse) -> usize {
        self.parts.values().map(|part| matrix.entries_composed(part)).sum()
    }

    pub fn mapped(&self, map: &Map) -> Self {
        let mut parts: BTreeMap<VectorId, Sparse> =
            self.parts.iter().map(|(id, part)| (*id, map.matrix.compose(part))).collect();
        // A slice may drop all entries of a vector.
        if parts.values().any(|part| part.entries() > 0) {
            parts.retain(|_, part| part.entries() > 0);
        }
        let bias = map.matrix.apply(&self.bias).iter().zip(&map.bias).map(|(a, b)| a + b).collect();
        Self { parts, bias }
    }

    /// Computes `factor x + addend` element by element.
    pub fn scaled(mut self, factor: &[f64], addend: &[f64]) -> Self {
        self.parts.values_mut().for_each(|part| part.scale_rows(factor));
        self.bias.iter_mut().zip(factor.iter().zip(addend)).for_each(|(b, (f, a))| *b = *b * f + a);
        self
    }

    pub fn plus(mut self, other: Self) -> Self {
        for (id, part) in other.parts {
            let sum = match self.parts.remove(&id) {
                Some(sum) => sum.plus(&part),
                None => part,
            };
            self.parts.insert(id, sum);
        }
        self.bias.iter_mut().zip(other.bias).for_each(|(a, b)| *a += b);
        self
    }

    pub fn concatenated(exprs: Vec<Self>) -> Self {
        let rows: usize = exprs.iter().map(|e| e.bias.len()).sum();
        let (mut first, mut parts) = (0, Vec::with_capacity(exprs.len()));
        for e in exprs {
            parts.push(e.padded(first, rows));
            first += e.bias.len();
        }
        parts.into_iter().reduce(Self::plus).expect("a concatenation has inputs")
    }

    /// Puts the elements into the rows from `start` on, among `rows`; others are 0.
    fn padded(&self, start: usize, rows: usize) -> Self {
        let len = self.bias.len();
        let sources = (0..rows).map(|i| i.checked_sub(start).filter(|i| *i < len).map(|i| i as u32));
        let matrix = Sparse::select(len, &sources.collect::<Vec<_>>());
        self.mapped(&Map { matrix, bias: vec![0.0; rows] })
    }

    pub fn values(&self, slots: &[Vec<f64>]) -> Vec<f64> {
        let mut sum = self.bias.clone();
        for (id, part) in &self.parts {
            sum.iter_mut().zip(part.apply(&slots[*id])).for_each(|(s, v)| *s += v);
        }
        sum
    }
}

/// A polynomial for each element: coefficients by degree, then by element.
#[derive(Clone, PartialEq)]
pub(super) struct Elementwise(pub Vec<Vec<f64>>);

impl Elementwise {
    pub fn identity(n: usize) -> Self {
        Self(vec![vec![0.0; n], vec![1.0; n]])
    }

    pub fn degree(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns `factor p + addend`.
    pub fn scaled(mut self, factor: &[f64], addend: &[f64]) -> Self {
        self.0.iter_mut().for_each(|list| list.iter_mut().zip(factor).for_each(|(c, f)| *c *= f));
        self.0[0].iter_mut().zip(addend).for_each(|(c, a)| *c += a);
        self
    }

    pub fn plus(&self, other: &Self) -> Self {
        let n = self.0[0].len();
        let degrees = 0..self.0.len().max(other.0.len());
        Self(degrees.map(|d| (0..n).map(|i| self.coefficient(d, i) + other.coefficient(d, i)).collect()).collect())
    }

    /// The coefficient of element `i` for a degree; 0 beyond the highest.
    fn coefficient(&self, degree: usize, i: usize) -> f64 {
        self.0.get(degree).map_or(0.0, |list| list[i])
    }

    pub fn times(&self, other: &Self) -> Self {
        let n = self.0[0].len();
        let mut product = vec![vec![0.0; n]; self.0.len() + other.0.len() - 1];
        for (a, left) in self.0.iter().enumerate() {
            for (b, right) in other.0.iter().enumerate() {
                product[a + b].iter_mut().zip(left.iter().zip(right)).for_each(|(p, (l, r))| *p += l * r);
            }
        }
        Self(product)
    }

    /// The polynomial in `t` with `x = scale t + shift`.
    pub fn rescaled(&self, scale: &[f64], shift: f64) -> Self {
        let n = self.0[0].len();
        let line = Self(vec![vec![shift; n], scale.to_vec()]);
        let (last, rest) = self.0.split_last().expect("a polynomial has a constant");
        let start = Self(vec![last.clone()]);
        rest.iter().rev().fold(start, |sum, c| sum.times(&line).plus(&Self(vec![c.clone()])))
    }

    pub fn uniform(&self) -> Option<Vec<f64>> {
        self.0.iter().map(|list| list.iter().all(|c| *c == list[0]).then(|| list[0])).collect()
    }
}
