//! Orders and reduces floats, with the same rules for NaN everywhere. A reduction that meets a NaN
//! returns NaN: an error that cannot be computed is never the smallest one. A sort puts every NaN
//! last, whatever its sign. Infinities are numbers here: the largest and the smallest.
//!
//! The standard library differs: `f64::max` drops a NaN, `total_cmp` puts a negative one first, and
//! `partial_cmp` leaves the choice to each caller. `scripts/check_rules.py` holds all code to this
//! crate instead.
#![forbid(unsafe_code)]

use std::cmp::Ordering;

fn is_nan<T: PartialOrd>(value: &T) -> bool {
    value.partial_cmp(value).is_none()
}

/// The larger of two; NaN if either is.
#[must_use]
pub fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if b > a || is_nan(&b) { b } else { a }
}

/// The smaller of two; NaN if either is.
#[must_use]
pub fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if b < a || is_nan(&b) { b } else { a }
}

/// The largest magnitude; 0 for no values, NaN if any is.
#[must_use]
pub fn largest_magnitude<T: Into<f64>>(values: impl IntoIterator<Item = T>) -> f64 {
    values.into_iter().map(|v| v.into().abs()).fold(0.0, larger)
}

/// The largest distance of two values at the same index; 0 for no values, NaN if any is.
#[must_use]
pub fn largest_distance(a: &[f64], b: &[f64]) -> f64 {
    largest_magnitude(a.iter().zip(b).map(|(a, b)| a - b))
}

/// An interval of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval<T> {
    /// The smallest number.
    pub low: T,
    /// The largest number.
    pub high: T,
}

impl<T> Interval<T> {
    /// Applies a function to both ends.
    #[must_use]
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Interval<U> {
        Interval { low: f(self.low), high: f(self.high) }
    }

    /// Both ends, the low one first.
    #[must_use]
    pub fn ends(self) -> [T; 2] {
        [self.low, self.high]
    }
}

/// The smallest and the largest value: infinity to minus infinity for no values, NaN for both if
/// any is.
#[must_use]
pub fn range<T: Into<f64>>(values: impl IntoIterator<Item = T>) -> Interval<f64> {
    let none = Interval { low: f64::INFINITY, high: f64::NEG_INFINITY };
    values
        .into_iter()
        .map(Into::<f64>::into)
        .fold(none, |Interval { low, high }, value| Interval { low: smaller(low, value), high: larger(high, value) })
}

/// The index of the largest value, the first of equals; `None` for no values or if any is NaN.
#[must_use]
pub fn first_largest<T: PartialOrd>(values: &[T]) -> Option<usize> {
    let mut best = None;
    for (i, value) in values.iter().enumerate() {
        if is_nan(value) {
            return None;
        }
        if best.is_none_or(|best: usize| *value > values[best]) {
            best = Some(i);
        }
    }
    best
}

/// How many values equal the largest; 0 if any is NaN.
#[must_use]
pub fn tied_for_largest<T: PartialOrd>(values: &[T]) -> usize {
    first_largest(values).map_or(0, |best| values.iter().filter(|v| **v == values[best]).count())
}

/// Compares for sorting the smallest first, every NaN last.
#[must_use]
pub fn rising<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

/// Compares for sorting the largest first, every NaN last.
#[must_use]
pub fn falling<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    b.partial_cmp(a).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    #[test]
    fn reductions_keep_nan() {
        for values in [[NAN, 1.0, 2.0], [1.0, -NAN, 2.0], [1.0, 2.0, NAN], [INF, NAN, -INF]] {
            assert!(values.into_iter().fold(0.0, larger).is_nan() && values.into_iter().fold(INF, smaller).is_nan());
            assert!(
                largest_magnitude(values).is_nan() && range(values).ends().iter().all(|v| v.is_nan()),
                "{values:?}"
            );
            assert!(largest_distance(&values, &[0.0; 3]).is_nan() && largest_distance(&[0.0; 3], &values).is_nan());
            assert_eq!((first_largest(&values), tied_for_largest(&values)), (None, 0), "{values:?}");
        }
        // The distance of infinities of the same sign is NaN.
        assert!(largest_distance(&[INF, 1.0], &[INF, 1.0]).is_nan());
    }

    #[test]
    fn reductions_of_numbers() {
        assert_eq!((larger(1.0, 2.0), smaller(1.0, 2.0), larger(-INF, INF)), (2.0, 1.0, INF));
        assert_eq!((largest_magnitude([1f32, -3.0]), largest_magnitude([0f64; 0])), (3.0, 0.0));
        assert_eq!((range([3f32, -1.0, 2.0]).ends(), range([0f64; 0]).ends()), ([-1.0, 3.0], [INF, -INF]));
        assert_eq!(largest_distance(&[1.0, 5.0], &[1.5, 2.0]), 3.0);
        assert_eq!(first_largest(&[1.0, 4.0, 4.0, -INF]), Some(1));
        assert_eq!((first_largest::<f64>(&[]), first_largest(&[-INF, -INF])), (None, Some(0)));
        assert_eq!((tied_for_largest(&[1.0, 4.0, 4.0]), tied_for_largest(&[2i64, 1])), (2, 1));
    }

    #[test]
    fn sorts_put_nan_last() {
        let mut values = [2.0, -NAN, -1.0, NAN, INF, -INF];
        values.sort_by(rising);
        assert_eq!(values[..4], [-INF, -1.0, 2.0, INF]);
        values.sort_by(falling);
        assert_eq!(values[..4], [INF, 2.0, -1.0, -INF]);
        assert!(values[4..].iter().all(|v| v.is_nan()));
        assert_eq!((rising(&-0.0, &0.0), falling(&-NAN, &NAN)), (Ordering::Equal, Ordering::Equal));
    }
}
