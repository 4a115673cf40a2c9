use rayon::prelude::*;

use super::lanes::Value;

/// A matrix by rows. Zero entries are stored: the places of entries determine the computation, and are
/// public.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sparse {
    columns: usize,
    starts: Vec<usize>,
    /// Column of each entry.
    entry_columns: Vec<u32>,
    values: Vec<f32>,
}

impl Sparse {
    /// Each row has `(column, value)` by ascending column.
    pub fn from_rows(columns: usize, rows: impl IntoIterator<Item = Vec<(u32, f32)>>) -> Self {
        let mut matrix = Self { columns, starts: vec![0], entry_columns: Vec::new(), values: Vec::new() };
        for row in rows {
            matrix.entry_columns.extend(row.iter().map(|(column, _)| column));
            matrix.values.extend(row.iter().map(|(_, value)| value));
            matrix.starts.push(matrix.entry_columns.len());
        }
        // The lists live as long as the plan.
        matrix.entry_columns.shrink_to_fit();
        matrix.values.shrink_to_fit();
        matrix
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<usize>() * self.starts.len() + (size_of::<u32>() + size_of::<f32>()) * self.entry_columns.len()
    }

    /// Row `i` takes element `sources[i]`, or nothing.
    pub fn select(columns: usize, sources: &[Option<u32>]) -> Self {
        Self::from_rows(columns, sources.iter().map(|source| source.iter().map(|&c| (c, 1.0)).collect()))
    }

    pub fn identity(n: usize) -> Self {
        Self::diagonal(&vec![1.0; n])
    }

    pub fn diagonal(values: &[f64]) -> Self {
        Self::from_rows(values.len(), values.iter().enumerate().map(|(i, &v)| vec![(i as u32, v as f32)]))
    }

    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn entries(&self) -> usize {
        self.entry_columns.len()
    }

    pub fn squares(&self) -> f64 {
        self.values.iter().map(|&v| f64::from(v) * f64::from(v)).sum()
    }

    pub fn row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let span = self.starts[i]..self.starts[i + 1];
        self.entry_columns[span.clone()].iter().zip(&self.values[span]).map(|(&c, &v)| (c as usize, f64::from(v)))
    }

    pub fn is_diagonal(&self) -> bool {
        self.rows() == self.columns && (0..self.rows()).all(|i| self.row(i).map(|(c, _)| c).eq([i]))
    }

    /// The diagonal of a matrix that [`is_diagonal`](Self::is_diagonal).
    pub fn diagonal_values(&self) -> Vec<f64> {
        self.values.iter().map(|&v| f64::from(v)).collect()
    }

    pub fn scale_rows(&mut self, factors: &[f64]) {
        for (span, factor) in self.starts.windows(2).zip(factors) {
            self.values[span[0]..span[1]].iter_mut().for_each(|v| *v = (f64::from(*v) * factor) as f32);
        }
    }

    pub fn apply<V: Value>(&self, x: &[V]) -> Vec<V> {
        let rows = (0..self.rows()).into_par_iter();
        rows.map(|i| self.row(i).fold(V::of(0.0), |sum, (c, v)| sum.plus(x[c].times(V::of(v))))).collect()
    }

    /// Most entries that [`compose`](Self::compose) can make.
    pub fn entries_composed(&self, inner: &Self) -> usize {
        self.entry_columns.iter().map(|&k| inner.starts[k as usize + 1] - inner.starts[k as usize]).sum()
    }

    pub fn compose(&self, inner: &Self) -> Self {
        let rows = (0..self.rows()).into_par_iter();
        let rows: Vec<Vec<(u32, f32)>> =
            rows.map(|i| sum_rows(self.row(i).flat_map(|(k, w)| inner.row(k).map(move |(c, v)| (c, w * v))))).collect();
        Self::from_rows(inner.columns, rows)
    }

    /// Returns `self + other`; both have one shape.
    pub fn plus(&self, other: &Self) -> Self {
        Self::from_rows(self.columns, (0..self.rows()).map(|i| sum_rows(self.row(i).chain(other.row(i)))))
    }
}

fn sum_rows(entries: impl Iterator<Item = (usize, f64)>) -> Vec<(u32, f32)> {
    let mut entries: Vec<(usize, f64)> = entries.collect();
    entries.sort_by_key(|(c, _)| *c);
    let mut row: Vec<(usize, f64)> = Vec::with_capacity(entries.len());
    for (c, v) in entries {
        match row.last_mut() {
            Some((last, sum)) if *last == c => *sum += v,
            _ => row.push((c, v)),
        }
    }
    row.into_iter().map(|(c, v)| (c as u32, v as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_sums_match_application() {
        let a = Sparse::from_rows(3, [vec![(0, 2.0), (2, 1.0)], vec![(1, -1.0)]]);
        let b = Sparse::from_rows(2, [vec![(0, 1.0)], vec![(1, 3.0)], vec![(0, 1.0), (1, 4.0)]]);
        let x = [5.0, 7.0];
        assert_eq!(a.compose(&b).apply(&x), a.apply(&b.apply(&x)));
        assert_eq!((a.compose(&b).entries(), a.entries_composed(&b)), (3, 4));
        assert_eq!(a.plus(&a).apply(&[1.0, 1.0, 1.0]), [6.0, -2.0]);
        let mut scaled = a;
        scaled.scale_rows(&[10.0, 1.0]);
        assert_eq!(scaled.apply(&[1.0, 2.0, 3.0]), [50.0, -2.0]);
        assert!(Sparse::identity(3).is_diagonal());
        assert!(!scaled.is_diagonal());
        assert!(!Sparse::select(2, &[Some(1), None]).is_diagonal());
    }
}
