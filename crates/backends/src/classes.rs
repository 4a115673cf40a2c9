//! The class that outputs stand for, how far outputs are off, how likely that changes the class, and how sure
//! one can be of a share.

use std::f64::consts::SQRT_2;

use libm::erfc;
use tacit_graph::{OutputMode, kernel};

/// Normal quantile of two-sided 95 % intervals.
const Z95: f64 = 1.96;

/// The class that outputs stand for: the largest of several, the sign of a single one.
pub(crate) fn class<T: Copy + Default + PartialOrd>(outputs: &[T]) -> usize {
    match outputs {
        [one] => usize::from(*one > T::default()),
        several => kernel::arg_max(several),
    }
}

/// The class that an answer tells: in mode top-1 it is the index.
pub(crate) fn told(mode: OutputMode, answer: &[f64]) -> usize {
    match mode {
        OutputMode::Top1 => answer[0] as usize,
        OutputMode::Logits => class(answer),
    }
}

/// How far the wanted values of all samples spread: what errors are measured in where those of one sample are
/// all the same.
pub(crate) fn spread<T: Copy + Into<f64>>(wanted: &[Vec<T>]) -> f64 {
    let [low, high] = range(wanted.iter().flatten());
    match (high > low, high.abs()) {
        (true, _) => high - low,
        (false, size) if size > 0.0 => size,
        _ => 1.0,
    }
}

fn range<'a, T: Copy + Into<f64> + 'a>(values: impl Iterator<Item = &'a T>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], &v| [l.min(v.into()), h.max(v.into())])
}

/// Root mean square error as a share of the range of the wanted values (of `spread`, where they have none).
pub(crate) fn relative_error<T: Copy + Into<f64>>(got: &[f64], wanted: &[T], spread: f64) -> f64 {
    let [low, high] = range(wanted.iter());
    let squares: f64 = got.iter().zip(wanted).map(|(g, &w)| (g - w.into()).powi(2)).sum();
    (squares / wanted.len().max(1) as f64).sqrt() / if high > low { high - low } else { spread }
}

/// How likely an answer has another class than the float network's `wanted`, if each output is off by an
/// independent normal error of the size seen in `got` (what all outputs have in common changes no class). Of
/// a single output the sign is the class.
///
/// A count of changed classes cannot tell 1 % from 0.1 % on a dozen samples; how far the best two outputs are
/// apart can.
pub(crate) fn flip_probability(wanted: &[f32], got: &[f64]) -> f64 {
    let errors: Vec<f64> = got.iter().zip(wanted).map(|(g, w)| g - f64::from(*w)).collect();
    let count = errors.len().max(1) as f64;
    let common = if errors.len() > 1 { errors.iter().sum::<f64>() / count } else { 0.0 };
    let size = (errors.iter().map(|e| (e - common).powi(2)).sum::<f64>() / count).sqrt();
    if size == 0.0 {
        return 0.0;
    }
    let tail = |distance: f64| 0.5 * erfc(distance / SQRT_2);
    if let [one] = wanted {
        return tail(f64::from(one.abs()) / size);
    }
    let top = kernel::arg_max(wanted);
    let rivals = wanted.iter().enumerate().filter(|(i, _)| *i != top);
    let kept = |w: f32| 1.0 - tail(f64::from(wanted[top] - w) / (SQRT_2 * size));
    1.0 - rivals.map(|(_, w)| kept(*w)).product::<f64>()
}

/// The 95 % interval of Wilson for a share seen in `count` samples.
pub(crate) fn interval(share: f64, count: usize) -> [f64; 2] {
    let (n, z2) = (count.max(1) as f64, Z95 * Z95);
    let centre = share + z2 / (2.0 * n);
    let spread = Z95 * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).max(0.0).sqrt();
    [(centre - spread), (centre + spread)].map(|v| (v / (1.0 + z2 / n)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_calls_are_likely_to_flip_and_clear_ones_are_not() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        // One rival at the distance of one standard deviation of the difference: 15.9 %.
        assert!(near(flip_probability(&[SQRT_2 as f32, 0.0], &[SQRT_2 + 1.0, -1.0]), 0.1587));
        assert!(flip_probability(&[9.0, 0.0], &[9.5, -0.5]) < 1e-8);
        // An error that all share changes nothing, nor does none.
        assert_eq!(flip_probability(&[1.0, 0.0], &[6.0, 5.0]), 0.0);
        assert_eq!(flip_probability(&[1.0, 0.0], &[1.0, 0.0]), 0.0);
        // A tie goes either way; two rivals at a tie leave a quarter.
        assert!(near(flip_probability(&[1.0, 1.0], &[1.1, 0.9]), 0.5));
        assert!(near(flip_probability(&[1.0, 1.0, 1.0], &[1.1, 0.9, 1.0]), 0.75));
        assert!(near(flip_probability(&[1.0], &[2.0]), 0.1587));
    }

    #[test]
    fn intervals_hold_the_share_and_shrink() {
        // Known values of the Wilson interval.
        let [low, high] = interval(0.9, 50);
        assert!((low - 0.7864).abs() < 1e-3 && (high - 0.9565).abs() < 1e-3, "{low} {high}");
        assert_eq!(interval(1.0, 16)[1], 1.0);
        assert!((interval(1.0, 16)[0] - 0.8064).abs() < 1e-3);
        let width = |n| interval(0.99, n)[1] - interval(0.99, n)[0];
        assert!(width(1000) < width(100) && width(100) < width(16));
    }
}
