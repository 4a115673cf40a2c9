//! Slot values for runs in the clear, of one input or of several side by side: each matrix is read once for
//! all.

use tacit_he::ckks::Polynomial;

/// Inputs that run side by side.
pub(super) const LANES: usize = 8;

/// The value of a slot, for one input or for several.
pub(super) trait Value: Copy + Send + Sync {
    /// The same number for each input.
    fn of(value: f64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn evaluate(self, polynomial: &Polynomial) -> Self;
}

impl Value for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn evaluate(self, polynomial: &Polynomial) -> Self {
        polynomial.at(self)
    }
}

impl Value for [f64; LANES] {
    fn of(value: f64) -> Self {
        [value; LANES]
    }

    fn plus(mut self, other: Self) -> Self {
        self.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        self
    }

    fn times(mut self, other: Self) -> Self {
        self.iter_mut().zip(other).for_each(|(a, b)| *a *= b);
        self
    }

    fn evaluate(self, polynomial: &Polynomial) -> Self {
        polynomial.at_each(self)
    }
}

pub(super) fn pack_lanes(inputs: &[&[f32]]) -> Vec<[f64; LANES]> {
    let len = inputs.first().map_or(0, |x| x.len());
    (0..len).map(|i| std::array::from_fn(|lane| inputs.get(lane).map_or(0.0, |x| f64::from(x[i])))).collect()
}

pub(super) fn to_doubles(input: &[f32]) -> Vec<f64> {
    input.iter().map(|&v| f64::from(v)).collect()
}
