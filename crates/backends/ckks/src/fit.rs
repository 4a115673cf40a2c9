//! Functions as polynomials: interpolation at Chebyshev points, with the least degree within the tolerance.

use std::f64::consts::PI;

use tacit_he::ckks::{Basis, Polynomial};

/// Degrees that are tried: the highest of each depth.
const DEGREES: [usize; 5] = [3, 7, 15, 31, 63];
/// Points at which the error is measured.
const POINTS: usize = 4001;

/// A function that polynomials replace.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct Approximation {
    pub node: String,
    pub op: &'static str,
    /// The range that the polynomials hold on.
    pub range: [f64; 2],
    /// Whether no accepted input leaves the range.
    pub certain: bool,
    /// Degrees of the polynomials, applied one after the other.
    pub degrees: Vec<usize>,
    /// The function's largest value on the range.
    pub largest: f64,
    /// Largest error on the range, as a share of `largest`.
    pub error: f64,
}

/// A polynomial on [-1, 1], and its largest error there.
pub(super) struct Fit {
    pub polynomial: Polynomial,
    pub error: f64,
}

fn grid() -> impl Iterator<Item = f64> {
    (0..POINTS).map(|i| 2.0 * i as f64 / (POINTS - 1) as f64 - 1.0)
}

pub(super) fn largest_magnitude_on(polynomial: &Polynomial, half: f64) -> f64 {
    tacit_floats::largest_magnitude(grid().map(|t| polynomial.at(half * t)))
}

/// A function on `middle - half .. middle + half`.
pub(super) struct Ranged<'f> {
    pub f: &'f (dyn Fn(f64) -> f64 + Sync),
    pub middle: f64,
    pub half: f64,
    /// Largest value on the range, the unit of errors.
    pub top: f64,
}

impl<'f> Ranged<'f> {
    /// The unit of errors is the function's largest value, or `share` of the argument's largest value if that
    /// is more.
    pub fn new(f: &'f (dyn Fn(f64) -> f64 + Sync), middle: f64, half: f64, share: f64) -> Self {
        let top = grid().map(|t| f(middle + half * t)).map(f64::abs).fold(0.0, tacit_floats::larger);
        Self { f, middle, half, top: top.max(share * (middle.abs() + half)) }
    }

    pub fn ends(&self) -> [f64; 2] {
        [self.middle - self.half, self.middle + self.half]
    }

    /// The polynomial of least degree with an error of at most `tolerance`, for the function divided by its
    /// largest value.
    pub fn fit(&self, tolerance: f64) -> Option<Fit> {
        let top = if self.top > 0.0 { self.top } else { 1.0 };
        let fit = fit_within(&|t| (self.f)(self.middle + self.half * t) / top, tolerance);
        fit.filter(|fit| top.is_finite() && fit.error <= tolerance)
    }
}

pub(super) fn interpolate(f: &dyn Fn(f64) -> f64, degree: usize) -> Option<Fit> {
    let count = degree + 1;
    let values: Vec<f64> = (0..count).map(|j| f(angle(j, count).cos())).collect();
    let coefficients = (0..count).map(|k| {
        let sum: f64 = values.iter().enumerate().map(|(j, v)| v * (k as f64 * angle(j, count)).cos()).sum();
        sum * if k == 0 { 1.0 } else { 2.0 } / count as f64
    });
    let mut coefficients: Vec<f64> = coefficients.collect();
    // Drop rounding errors of the zero coefficients of odd and even functions: each would cost products.
    let largest = tacit_floats::largest_magnitude(coefficients.iter().copied());
    coefficients.iter_mut().filter(|c| c.abs() < largest * 1e-14).for_each(|c| *c = 0.0);
    let polynomial = Polynomial::new(Basis::Chebyshev, &coefficients).ok()?;
    let error = grid().map(|x| (polynomial.at(x) - f(x)).abs()).fold(0.0, tacit_floats::larger);
    Some(Fit { polynomial, error })
}

fn angle(j: usize, count: usize) -> f64 {
    PI * (j as f64 + 0.5) / count as f64
}

/// The interpolation of least degree with an error of at most `tolerance`, or else the best one.
pub(super) fn fit_within(f: &dyn Fn(f64) -> f64, tolerance: f64) -> Option<Fit> {
    let mut best: Option<Fit> = None;
    for degree in DEGREES {
        let Some(fit) = interpolate(f, degree) else { continue };
        if best.as_ref().is_none_or(|best| fit.error < best.error || best.error.is_nan()) {
            best = Some(fit);
        }
        if best.as_ref().is_some_and(|best| best.error <= tolerance) {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degree_grows_with_accuracy() {
        let wide = |x: f64| (4.0 * x).tanh();
        let coarse = fit_within(&wide, 0.05).unwrap();
        let fine = fit_within(&wide, 1e-4).unwrap();
        assert!(coarse.error <= 0.05);
        assert!(fine.error <= 1e-4);
        assert!(coarse.polynomial.degree() < fine.polynomial.degree());
        // The function is odd, so even coefficients are zero.
        assert!((fine.polynomial.at(0.3) + fine.polynomial.at(-0.3)).abs() < 1e-12);
        // The error of ReLU falls slowly: no degree suffices, so the best one is returned.
        assert!(fit_within(&|x| x.max(0.0), 1e-9).unwrap().polynomial.degree() > 31);
        assert!(fit_within(&|_| 1.0, 1e-9).is_none());
    }
}
