//! The server's plaintexts: weights that repeat along the rows.

use super::context::{Context, FRESH, ROW, SMALLEST};
use super::plain::Plain;

/// Most classes of a row.
pub const MAX_CLASSES: usize = SMALLEST;

/// The polynomial whose slot i of row r is `weights[r * C + i mod C]`, in the NTT domain.
///
/// This is a polynomial in `X^(N / 2C)`, of degree below 2C there, with coefficients of at most p /
/// 2. A transform of degree 64 or 128 encodes it, and each of its values fills a run of the large
/// transform.
pub struct WeightPoly {
    /// For each prime, one value for each run of the transform.
    values: Vec<u64>,
    runs: usize,
}

/// The places of the classes in a small transform.
pub struct Classes {
    count: usize,
    /// For each place of the small transform, the index of its weight.
    weight_indices: Vec<u32>,
}

impl Classes {
    /// The places of `count` classes in a row.
    ///
    /// # Panics
    /// If `count` is not a power of two or exceeds [`MAX_CLASSES`].
    pub fn new(ctx: &Context, count: usize) -> Self {
        assert!(count.is_power_of_two() && count <= MAX_CLASSES, "{count} classes");
        let order = 4 * count;
        let mut index = vec![0; order];
        let mut power = 1;
        for class in 0..count {
            index[power] = class as u32;
            index[order - power] = (count + class) as u32;
            power = power * 5 % order;
        }
        let weight_indices = ctx.small(count).exponents.iter().map(|e| index[e % order]).collect();
        Self { count, weight_indices }
    }
}

impl WeightPoly {
    /// Encodes `weights` (`[2, C]`, magnitudes below p / 2).
    ///
    /// # Panics
    /// If there are not 2C weights.
    pub fn new(ctx: &Context, plain: &Plain, classes: &Classes, weights: &[i32]) -> Self {
        assert!(weights.len() == 2 * classes.count && ROW.is_multiple_of(classes.count), "two weights a class");
        let (small, p) = (ctx.small(classes.count), plain.modulus());
        let mut values: Vec<u64> =
            classes.weight_indices.iter().map(|&i| p.reduce_i64(weights[i as usize].into())).collect();
        plain.small[usize::from(small.degree > SMALLEST)].inverse(&mut values);
        let coefficients: Vec<i64> = values.iter().map(|&v| p.centred(v)).collect();
        let runs = small.runs.len();
        let mut residues = Vec::with_capacity(FRESH * runs);
        for table in &small.tables {
            let m = table.modulus();
            values.iter_mut().zip(&coefficients).for_each(|(v, &c)| *v = m.reduce_i64(c));
            table.forward(&mut values);
            residues.extend(small.runs.iter().map(|&position| values[position as usize]));
        }
        Self { values: residues, runs }
    }

    pub(super) fn residue(&self, i: usize) -> &[u64] {
        &self.values[i * self.runs..][..self.runs]
    }
}
