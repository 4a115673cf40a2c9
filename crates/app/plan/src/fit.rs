//! Non-negative least squares on relative errors.

use crate::counts::Counts;

/// Time below which a measurement is mostly noise, seconds. Errors are relative to at least this.
const NOISE_S: f64 = 4e-3;
/// Regularisation towards zero, relative to the data's pull: two primitives that always occur
/// together both get a part.
const RIDGE: f64 = 1e-6;
/// Pull that a coefficient must exceed to be above zero, by primitive. If two primitives explain
/// the same time, the fit prefers computing to bytes and exchanges: another device is slower at one
/// than at the other.
const RELUCTANCE: Counts = [0.0, 0.0, 0.01, 0.0, 0.0, 0.02, 0.02, 0.02, 0.02, 0.02, 0.0];
const ROUNDS: usize = 4_000;

/// Seconds for each primitive, and the error of the fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Seconds for each of [`crate::Primitive::ALL`], none negative.
    pub seconds: Counts,
    /// Root mean square of relative errors; each network is predicted by a fit to the others.
    pub error: f64,
}

/// What a run of a network counted and took.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Index of the network.
    pub network: usize,
    pub counts: Counts,
    /// Seconds; bytes where memory is fitted.
    pub measured: f64,
}

/// Fits seconds to counts. Cross-validation leaves out one network at a time.
///
/// Without rows, all seconds are zero and the error is infinite.
#[must_use]
pub fn fit(rows: &[Row]) -> Fit {
    let seconds = solve(&rows.iter().collect::<Vec<_>>());
    let (mut squares, mut tests) = (0.0, 0);
    for Row { network, counts, measured } in rows {
        let training_rows: Vec<_> = rows.iter().filter(|row| row.network != *network).collect();
        if training_rows.is_empty() {
            continue;
        }
        squares += ((seconds_of(&solve(&training_rows), counts) - measured) / scale(*measured)).powi(2);
        tests += 1;
    }
    Fit { seconds, error: if tests == 0 { f64::INFINITY } else { (squares / f64::from(tests)).sqrt() } }
}

/// Predicts the time that these counts of primitives take.
#[must_use]
pub fn seconds_of(seconds: &Counts, counts: &Counts) -> f64 {
    seconds.iter().zip(counts).map(|(s, n)| s * n).sum()
}

fn scale(measured: f64) -> f64 {
    measured.max(NOISE_S)
}

/// Coordinate descent on columns that are scaled to length 1.
fn solve(rows: &[&Row]) -> Counts {
    let mut norms: Counts = [0.0; _];
    for row in rows {
        for (norm, count) in norms.iter_mut().zip(&row.counts) {
            *norm += (count / scale(row.measured)).powi(2);
        }
    }
    let norms = norms.map(f64::sqrt);
    let mut found: Counts = [0.0; _];
    let mut residual: Vec<f64> = rows.iter().map(|row| row.measured / scale(row.measured)).collect();
    for _ in 0..ROUNDS {
        for (k, norm) in norms.iter().enumerate().filter(|(_, norm)| **norm > 0.0) {
            let column = |row: &Row| row.counts[k] / scale(row.measured) / norm;
            let pull: f64 = rows.iter().zip(&residual).map(|(row, residual)| column(row) * residual).sum();
            let next = ((pull + found[k] - RELUCTANCE[k]) / (1.0 + RIDGE)).max(0.0);
            let step = next - found[k];
            if step != 0.0 {
                found[k] = next;
                for (row, residual) in rows.iter().zip(&mut residual) {
                    *residual -= step * column(row);
                }
            }
        }
    }
    for (value, norm) in found.iter_mut().zip(norms) {
        *value = if norm > 0.0 { *value / norm } else { 0.0 };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(network: usize, ntts: f64, ots: f64, took: [f64; 2]) -> Row {
        let mut counts: Counts = [0.0; _];
        (counts[0], counts[1], counts[8]) = (ntts, ots, 1.0);
        Row { network, counts, measured: 0.004 + took[0] * ntts + took[1] * ots }
    }

    #[test]
    fn error_is_infinite_without_other_networks() {
        assert_eq!(fit(&[]).error, f64::INFINITY);
        assert_eq!(fit(&[row(0, 1.0, 2.0, [0.1, 0.1])]).error, f64::INFINITY);
    }

    #[test]
    fn fitted_seconds_are_never_negative() {
        let fit = fit(&[row(0, 100.0, 0.0, [1e-3, 0.0]), row(1, 1.0, 5.0, [0.2, 0.0])]);
        assert!(fit.seconds.iter().all(|s| *s >= 0.0), "{fit:?}");
    }

    proptest! {
        #[test]
        fn finds_times_that_follow_the_counts(ntt in 1e-5..1e-3f64, ot in 1e-7..1e-5f64) {
            let sizes = [(10.0, 5e4), (500.0, 1e3), (2e3, 2e5), (50.0, 4e5), (3e3, 10.0), (1.0, 1.0)];
            let rows: Vec<_> = sizes.iter().enumerate().map(|(i, (n, o))| row(i, *n, *o, [ntt, ot])).collect();
            let fit = fit(&rows);
            for (found, expected) in [(fit.seconds[0], ntt), (fit.seconds[1], ot)] {
                prop_assert!((found / expected - 1.0).abs() < 0.1, "{:?}", fit);
            }
        }
    }
}
