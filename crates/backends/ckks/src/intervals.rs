//! Intervals that hold slots for all accepted inputs: certain bounds of a domain.

use rayon::prelude::*;

use super::expr::Expr;
use super::program::{Step, VectorId};
use super::sparse::Sparse;

pub(super) type Bounds = Vec<[f64; 2]>;

/// Points at which a function is sampled over an interval.
const POINTS: usize = 33;

/// A function of each element, for its range over an interval.
pub(super) struct Image<'f> {
    pub f: &'f (dyn Fn(f64) -> f64 + Sync),
    /// Scale and shift of the argument: its value is `scale * slot + shift`.
    pub argument: [f64; 2],
    /// Largest error of the computed function.
    pub error: f64,
    /// Value of a slot of 1 of the result.
    pub unit: f64,
}

impl Image<'_> {
    fn interval(&self, [low, high]: [f64; 2]) -> [f64; 2] {
        let [scale, shift] = self.argument;
        let values: [f64; POINTS] =
            std::array::from_fn(|k| (self.f)((low + (high - low) * k as f64 / (POINTS - 1) as f64) * scale + shift));
        // Between two points a smooth function exceeds both by an eighth of its second difference
        // at most, and one with a kink by half of it.
        let bends = values.windows(3).map(|w| (w[0] - 2.0 * w[1] + w[2]).abs());
        let slack = tacit_floats::largest_magnitude(bends) / 2.0 + self.error;
        let [low_value, high_value] = ends(values.into_iter().map(|v| [v, v]));
        [(low_value - slack) / self.unit, (high_value + slack) / self.unit]
    }

    pub fn bounds(&self, argument: &Bounds) -> Bounds {
        argument.par_iter().map(|&interval| self.interval(interval)).collect()
    }
}

/// The interval around all of these; unbounded if one end is NaN.
pub(super) fn ends(intervals: impl IntoIterator<Item = [f64; 2]>) -> [f64; 2] {
    intervals.into_iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], [l, h]| {
        match l.is_nan() || h.is_nan() {
            true => [f64::NEG_INFINITY, f64::INFINITY],
            false => [low.min(l), high.max(h)],
        }
    })
}

fn times([a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
    ends([a * c, a * d, b * c, b * d].map(|v| [v, v]))
}

fn plus([a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
    [a + c, b + d]
}

/// The range of `square v^2 + linear v + constant` over an interval.
fn quadratic([low, high]: [f64; 2], [square, linear, constant]: [f64; 3]) -> [f64; 2] {
    let vertex = -linear / (2.0 * square);
    let inside = (low < vertex && vertex < high).then_some(vertex);
    ends([low, high].into_iter().chain(inside).map(|v| [(square * v + linear) * v + constant; 2]))
}

fn apply_matrix(matrix: &Sparse, bounds: &Bounds) -> Bounds {
    let rows = (0..matrix.rows()).into_par_iter();
    rows.map(|i| matrix.row(i).fold([0.0; 2], |sum, (c, v)| plus(sum, times([v, v], bounds[c])))).collect()
}

/// Intervals of `sum M_k v_k + bias`; `None` if a vector has none.
fn sum<'a>(
    parts: impl Iterator<Item = (&'a VectorId, &'a Sparse)>,
    bias: &[f64],
    bounds: &[Option<Bounds>],
) -> Option<Bounds> {
    let mut sum: Bounds = bias.iter().map(|&b| [b, b]).collect();
    for (source, matrix) in parts {
        let part = apply_matrix(matrix, bounds[*source].as_ref()?);
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = plus(*sum, part));
    }
    Some(sum)
}

pub(super) fn expr_bounds(expr: &Expr, bounds: &[Option<Bounds>]) -> Option<Bounds> {
    sum(expr.parts.iter(), &expr.bias, bounds)
}

/// Intervals of a step's result; `None` for polynomials, and where an argument has none.
pub(super) fn step_bounds(step: &Step, bounds: &[Option<Bounds>]) -> Option<Bounds> {
    match step {
        Step::Input | Step::Polynomial { .. } => None,
        Step::Linear { parts, bias } => sum(parts.iter().map(|(source, matrix)| (source, matrix)), bias, bounds),
        Step::Square { argument, linear, constant } => {
            map_bounds(bounds, *argument, |i, v| quadratic(v, [1.0, linear[i], constant[i]]))
        }
        Step::Quadratic { argument, square, linear, constant } => {
            map_bounds(bounds, *argument, |i, v| quadratic(v, [square[i], linear[i], constant[i]]))
        }
        Step::Product { factors: [a, b] } => {
            let right = bounds[*b].as_ref()?;
            map_bounds(bounds, *a, |i, v| times(v, right[i]))
        }
    }
}

fn map_bounds(
    bounds: &[Option<Bounds>],
    argument: VectorId,
    f: impl Fn(usize, [f64; 2]) -> [f64; 2],
) -> Option<Bounds> {
    let intervals = bounds[argument].as_ref()?;
    Some(intervals.iter().enumerate().map(|(i, &interval)| f(i, interval)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_graph::rng::SplitMix;

    /// Random points never leave the intervals, whose ends are not far from them.
    #[test]
    fn intervals_hold_points_tightly() {
        let mut rng = SplitMix::new(4);
        let rows: Vec<Vec<(u32, f32)>> =
            (0..5).map(|_| (0..6).map(|c| (c, rng.range(-1.0, 1.0) as f32)).collect()).collect();
        let matrix = Sparse::from_rows(6, rows);
        let input: Bounds = (0..6).map(|i| [-1.0 - f64::from(i), 0.5]).collect();
        let [linear, constant] = [0.3, -0.2].map(|v| vec![v; 5]);
        let steps = [
            Step::Linear { parts: vec![(0, matrix)], bias: vec![0.25; 5] },
            Step::Square { argument: 1, linear: linear.clone(), constant: constant.clone() },
            Step::Quadratic { argument: 1, square: vec![-0.7; 5], linear, constant },
            Step::Product { factors: [2, 3] },
        ];
        let mut bounds = vec![Some(input.clone())];
        for step in &steps {
            bounds.push(step_bounds(step, &bounds));
        }
        let relu = |x: f64| x.max(0.0);
        let image = Image { f: &relu, argument: [2.0, 0.5], error: 0.01, unit: 4.0 };
        let rectified = image.bounds(bounds[1].as_ref().unwrap());
        let mut widest = [[f64::INFINITY, f64::NEG_INFINITY]; 5];
        for _ in 0..3000 {
            let mut slots = vec![input.iter().map(|&[l, h]| if rng.next_u64() & 1 == 0 { l } else { h }).collect()];
            for step in &steps {
                let result = step.apply(&slots);
                slots.push(result);
            }
            for (slots, bounds) in slots.iter().zip(&bounds).skip(1) {
                let inside = |(v, [l, h]): (&f64, &[f64; 2])| (l - 1e-9..=h + 1e-9).contains(v);
                assert!(slots.iter().zip(bounds.as_ref().unwrap()).all(inside));
            }
            for (v, [l, h]) in slots[1].iter().zip(&rectified) {
                assert!((*l..=*h).contains(&(relu(2.0 * v + 0.5) / 4.0)));
            }
            widest.iter_mut().zip(&slots[1]).for_each(|(w, &v)| *w = ends([*w, [v, v]]));
        }
        for ([l, h], [low, high]) in widest.iter().zip(bounds[1].as_ref().unwrap()) {
            assert!((high - low) - (h - l) < 0.5 * (high - low));
        }
        assert_eq!(step_bounds(&Step::Input, &bounds), None);
        assert_eq!(ends([[0.0, 1.0], [f64::NAN, 2.0]]), [f64::NEG_INFINITY, f64::INFINITY]);
    }
}
