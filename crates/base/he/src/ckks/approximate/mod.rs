//! Polynomial approximations of functions of slots: sign and ReLU by composites of minimax
//! polynomials ([LLNK22]), tanh and sigmoid, the inverse. `docs/scripts/remez.py` computes the
//! minimax coefficients.

mod tables;

use super::eval::{Basis, Polynomial};
use tables::{INVERSE, SIGN, TANH, Table};

/// An approximation of sign, for arguments from `2^-alpha` to 1 in size.
#[derive(Clone, PartialEq, Debug)]
pub struct Sign {
    /// Arguments nearer to zero than `2^-alpha` give any result between -1 and 1.
    pub alpha: u32,
    /// Largest distance of a result from 1 or -1.
    pub error: f64,
    /// Odd polynomials, each applied to the last result, which stays `2^-20` inside the range.
    pub stages: Vec<Polynomial>,
}

/// A polynomial for a function on a range.
#[derive(Clone, PartialEq, Debug)]
pub struct Approximation {
    /// The range, as defined by the function that returned it.
    pub range: f64,
    /// Largest distance from the function on that range.
    pub error: f64,
    /// The polynomial, for arguments from -1 to 1.
    pub polynomial: Polynomial,
}

impl Sign {
    /// All approximations of sign, by rising depth.
    pub fn all() -> Vec<Self> {
        let signs = SIGN.iter().map(|table| Self {
            alpha: table.alpha,
            error: table.error_log2.exp2(),
            stages: table.stages.iter().map(|c| odd(c)).collect(),
        });
        signs.collect()
    }

    /// Levels of the sign; [`Evaluator::relu`](super::Evaluator::relu) takes one more.
    pub fn depth(&self) -> usize {
        self.stages.iter().map(Polynomial::depth).sum()
    }

    /// Largest error of `x (1 + sign x) / 2` in place of `max(x, 0)`, for `|x| <= 1`.
    pub fn relu_error(&self) -> f64 {
        (0.5 * self.error).max(0.5 * (-f64::from(self.alpha)).exp2())
    }
}

fn chebyshev(coefficients: &[f64]) -> Polynomial {
    Polynomial::new(Basis::Chebyshev, coefficients).expect("tables have finite coefficients beyond the constant")
}

/// The polynomial with these coefficients of `T_1`, `T_3`, ..
fn odd(coefficients: &[f64]) -> Polynomial {
    chebyshev(&coefficients.iter().flat_map(|&c| [0.0, c]).collect::<Vec<_>>())
}

fn approximation(table: &Table, polynomial: Polynomial) -> Approximation {
    Approximation { range: table.range, error: table.error_log2.exp2(), polynomial }
}

/// Approximations of `tanh(range x)` for `|x| <= 1`, by rising range, then degree.
pub fn tanh() -> Vec<Approximation> {
    TANH.iter().map(|table| approximation(table, odd(table.coefficients))).collect()
}

/// Approximations of `1 / (1 + exp(-range x))` for `|x| <= 1`, as `(1 + tanh(range x / 2)) / 2`, by
/// rising range, then degree.
pub fn sigmoid() -> Vec<Approximation> {
    let halves = tanh().into_iter().map(|a| Approximation {
        range: 2.0 * a.range,
        error: 0.5 * a.error,
        polynomial: a.polynomial.scaled(0.5, 0.5),
    });
    halves.collect()
}

/// Approximations of `range / x` for x from `range` to 1, as polynomials of
/// `(2 x - 1 - range) / (1 - range)`, by falling range.
pub fn inverse() -> Vec<Approximation> {
    INVERSE.iter().map(|table| approximation(table, chebyshev(table.coefficients))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: i32 = 20_000;

    /// Points from `low` to 1, denser where the function is steep.
    fn points(low: f64) -> impl Iterator<Item = f64> {
        (0..=STEPS).map(move |i| low.powf(1.0 - f64::from(i) / f64::from(STEPS)))
    }

    fn worst(points: impl Iterator<Item = f64>, error: impl Fn(f64) -> f64) -> f64 {
        points.map(|x| error(x).abs()).fold(0.0, tacit_floats::larger)
    }

    /// Up to the rounding of logarithms. Stages stay in the next one's range.
    #[test]
    fn sign_errors_are_as_stated() {
        for sign in Sign::all() {
            let at = |x: f64| sign.stages.iter().fold(x, |x, p| p.at(x));
            let low = (-f64::from(sign.alpha)).exp2();
            let error = worst(points(low), |x| at(x) - 1.0);
            assert!((0.9..1.05).contains(&(error / sign.error)), "alpha {}: {error}", sign.alpha);
            assert!(worst(points(low), |x| at(-x) + 1.0) < 1.05 * sign.error);
            for count in 1..sign.stages.len() {
                let between = |x: f64| sign.stages[..count].iter().fold(x, |x, p| p.at(x));
                assert!(worst((0..=STEPS).map(|i| f64::from(i) / f64::from(STEPS)), between) <= 1.0);
            }
            let relu = worst((-STEPS..=STEPS).map(|i| f64::from(i) / f64::from(STEPS)), |x| {
                x * (1.0 + at(x)) / 2.0 - x.max(0.0)
            });
            assert!(relu < 1.05 * sign.relu_error(), "alpha {}: {relu}", sign.alpha);
        }
        let depths: Vec<usize> = Sign::all().iter().map(Sign::depth).collect();
        assert_eq!(depths, [6, 8, 11, 13, 16]);
    }

    #[test]
    fn function_errors_are_as_stated() {
        let line = || (-STEPS..=STEPS).map(|i| f64::from(i) / f64::from(STEPS));
        for a in tanh() {
            let error = worst(line(), |x| a.polynomial.at(x) - (a.range * x).tanh());
            assert!((0.9..1.05).contains(&(error / a.error)), "tanh to {}: {error}", a.range);
        }
        for a in sigmoid() {
            let error = worst(line(), |x| a.polynomial.at(x) - 1.0 / (1.0 + (-a.range * x).exp()));
            assert!((0.9..1.05).contains(&(error / a.error)), "sigmoid to {}: {error}", a.range);
        }
        for a in inverse() {
            let argument = |x: f64| (2.0 * x - 1.0 - a.range) / (1.0 - a.range);
            let error = worst(points(a.range), |x| a.polynomial.at(argument(x)) - a.range / x);
            assert!((0.9..1.05).contains(&(error / a.error)), "inverse from {}: {error}", a.range);
        }
    }
}
