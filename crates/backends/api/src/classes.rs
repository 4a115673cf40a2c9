//! Classes of outputs, output errors, the probability that errors change a class, and confidence
//! intervals of shares.

use std::f64::consts::SQRT_2;

use tacit_floats::{Interval, range};
use tacit_graph::{OutputMode, erfc};

/// Normal quantile of two-sided 95 % intervals.
const Z95: f64 = 1.96;

/// The class of outputs: the first largest of several, the sign of a single one; `None` if any is NaN.
pub fn class<T: Copy + Default + PartialOrd>(outputs: &[T]) -> Option<usize> {
    let best = tacit_floats::first_largest(outputs)?;
    Some(if outputs.len() == 1 { usize::from(outputs[0] > T::default()) } else { best })
}

/// The class of an answer, which is the index itself in mode top-1; `None` if it is NaN.
pub fn answer_class(mode: OutputMode, answer: &[f64]) -> Option<usize> {
    match (mode, answer) {
        // The cast saturates.
        (OutputMode::Top1, [index]) => (!index.is_nan()).then_some(*index as usize),
        _ => class(answer),
    }
}

/// Whether `class` is that of `outputs`, or tied with it: errors decide between tied classes. False if an
/// output is NaN or `class` is `None`.
pub fn is_class_of<T: Copy + Default + PartialOrd>(class: Option<usize>, outputs: &[T]) -> bool {
    let (Some(answer_class), Some(best)) = (class, self::class(outputs)) else { return false };
    answer_class == best || outputs.len() > 1 && outputs.get(answer_class).is_some_and(|v| *v == outputs[best])
}

/// Whether an answer has the class of the network's `outputs`, by [`is_class_of`].
pub fn agrees(mode: OutputMode, answer: &[f64], outputs: &[f64]) -> bool {
    match (mode, outputs) {
        // With a single output, its index is 0.
        (OutputMode::Top1, [one]) => !one.is_nan() && answer_class(mode, answer) == Some(0),
        _ => is_class_of(answer_class(mode, answer), outputs),
    }
}

/// The spread of the expected values of all samples.
pub fn spread<T: Copy + Into<f64>>(outputs: &[Vec<T>]) -> f64 {
    spread_of(range(outputs.iter().flatten().copied()))
}

/// The spread of values within these bounds: their distance, or the magnitude of the only value.
pub fn spread_of(Interval { low, high }: Interval<f64>) -> f64 {
    match (high > low, high.abs()) {
        (true, _) => high - low,
        (false, size) if size > 0.0 => size,
        _ => 1.0,
    }
}

/// The bound of errors, if it is less than the range of the outputs or the magnitude of the only value.
#[must_use]
pub fn useful_bound(bound: f64, Interval { low, high }: Interval<f64>) -> Option<f64> {
    let range = if high > low { high - low } else { high.abs() };
    (bound == 0.0 || bound < range).then_some(bound)
}

/// Root mean square error as a share of the range of the expected values, or of `single_range` if they are
/// all equal; NaN if any value is.
pub fn relative_error<T: Copy + Into<f64>>(answer: &[f64], expected: &[T], single_range: f64) -> f64 {
    let Interval { low, high } = range(expected.iter().copied());
    root_mean_square(answer, expected) / if high > low { high - low } else { single_range }
}

/// Root mean square of the differences; NaN if any value is.
pub fn root_mean_square<T: Copy + Into<f64>>(answer: &[f64], expected: &[T]) -> f64 {
    let squares: f64 = answer.iter().zip(expected).map(|(g, &w)| (g - w.into()).powi(2)).sum();
    (squares / expected.len().max(1) as f64).sqrt()
}

/// The probability that an answer has another class than the float network's `expected`. Assumes independent
/// normal errors of the size seen in `answer`; an error common to all outputs changes no class. Classes tied
/// in the float network count as one, and a NaN answer has none of them.
///
/// A count of changed classes cannot tell 1 % from 0.1 % on a dozen samples; the distance of the best two
/// outputs can.
pub fn flip_probability(expected: &[f32], answer: &[f64]) -> f64 {
    let errors: Vec<f64> = answer.iter().zip(expected).map(|(g, w)| g - f64::from(*w)).collect();
    let count = errors.len().max(1) as f64;
    let common = if errors.len() > 1 { errors.iter().sum::<f64>() / count } else { 0.0 };
    let size = (errors.iter().map(|e| (e - common).powi(2)).sum::<f64>() / count).sqrt();
    if size == 0.0 {
        return 0.0;
    }
    if !size.is_finite() {
        return 1.0;
    }
    if let [single] = expected {
        return tail(f64::from(single.abs()) / size);
    }
    let Some(top) = tacit_floats::first_largest(expected) else { return 1.0 };
    let rivals = expected.iter().filter(|w| **w != expected[top]);
    1.0 - rivals.map(|w| 1.0 - tail(f64::from(expected[top] - w) / (SQRT_2 * size))).product::<f64>()
}

/// The probability that a standard normal variable is larger than `distance`.
fn tail(distance: f64) -> f64 {
    0.5 * erfc(distance / SQRT_2)
}

/// The 95 % interval of Wilson for a share seen in `count` samples.
pub fn interval(share: f64, count: usize) -> [f64; 2] {
    let (n, z2) = (count.max(1) as f64, Z95 * Z95);
    let centre = share + z2 / (2.0 * n);
    let half_width = Z95 * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).max(0.0).sqrt();
    [(centre - half_width), (centre + half_width)].map(|v| (v / (1.0 + z2 / n)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flip_probability_follows_margin() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        // One rival at a distance of one standard deviation of the difference: 15.9 %.
        assert!(near(flip_probability(&[SQRT_2 as f32, 0.0], &[SQRT_2 + 1.0, -1.0]), 0.1587));
        assert!(flip_probability(&[9.0, 0.0], &[9.5, -0.5]) < 1e-8);
        // Neither a common error nor a zero error changes the class.
        assert_eq!(flip_probability(&[1.0, 0.0], &[6.0, 5.0]), 0.0);
        assert_eq!(flip_probability(&[1.0, 0.0], &[1.0, 0.0]), 0.0);
        // A near tie goes either way; two rivals leave a quarter. In an exact tie any class is
        // right.
        let close = 1.0 - f32::EPSILON;
        assert!(near(flip_probability(&[1.0, close], &[1.1, 0.9]), 0.5));
        assert!(near(flip_probability(&[1.0, close, close], &[1.1, 0.9, 1.0]), 0.75));
        assert_eq!(flip_probability(&[1.0, 1.0, -9.0], &[0.9, 1.1, -9.0]), 0.0);
        assert!(near(flip_probability(&[1.0], &[2.0]), 0.1587));
    }

    #[test]
    fn useless_bounds_are_none() {
        let interval = |[low, high]: [f64; 2]| Interval { low, high };
        for (bound, range) in [(0.5, [1.0, 2.0]), (0.0, [3.0, 3.0]), (2.0, [-3.0, -3.0]), (0.0, [0.0, 0.0])] {
            assert_eq!(useful_bound(bound, interval(range)), Some(bound), "{range:?}");
        }
        let nan = f64::NAN;
        for (bound, range) in [
            (1e23, [-5.0, 9.0]),
            (14.0, [-5.0, 9.0]),
            (f64::INFINITY, [1.0, 2.0]),
            (nan, [1.0, 2.0]),
            (1.0, [nan, nan]),
        ] {
            assert_eq!(useful_bound(bound, interval(range)), None, "{bound}");
        }
    }

    #[test]
    fn nan_has_no_class_and_flips() {
        let nan = f64::NAN;
        for outputs in [vec![nan], vec![nan, 1.0], vec![1.0, nan], vec![]] {
            assert_eq!(class(&outputs), None, "{outputs:?}");
            assert!(!is_class_of(class(&outputs), &outputs));
            assert!(!is_class_of(Some(0), &outputs));
        }
        assert_eq!([nan, 3.0].map(|class| answer_class(OutputMode::Top1, &[class])), [None, Some(3)]);
        assert_eq!(
            (flip_probability(&[1.0, 0.0], &[nan, 0.0]), flip_probability(&[1.0], &[f64::INFINITY])),
            (1.0, 1.0)
        );
        assert!(relative_error(&[nan, 0.0], &[1.0, 0.0], 1.0).is_nan());
    }

    #[test]
    fn tied_classes_are_right() {
        let outputs = [1.0, 4.0, 4.0];
        assert_eq!(
            [Some(0), Some(1), Some(2), Some(3), None].map(|c| is_class_of(c, &outputs)),
            [false, true, true, false, false]
        );
        // The class of a single output is its sign.
        assert!(is_class_of(Some(1), &[2.0]));
        assert!(!is_class_of(Some(0), &[2.0]));
        assert!(is_class_of(Some(0), &[0.0]));
    }

    #[test]
    fn wilson_interval_matches_known_values() {
        // Known values of the Wilson interval.
        let [low, high] = interval(0.9, 50);
        assert!((low - 0.7864).abs() < 1e-3, "{low} {high}");
        assert!((high - 0.9565).abs() < 1e-3, "{low} {high}");
        assert_eq!(interval(1.0, 16)[1], 1.0);
        assert!((interval(1.0, 16)[0] - 0.8064).abs() < 1e-3);
        let width = |n| interval(0.99, n)[1] - interval(0.99, n)[0];
        assert!(width(1000) < width(100));
        assert!(width(100) < width(16));
    }
}
