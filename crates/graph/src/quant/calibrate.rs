//! Ranges and sizes of all tensors over the calibration samples.

use crate::GraphError;
use crate::float::FloatGraph;
use crate::float::run::run_tapped;

/// What was measured, by node of the float graph.
pub(super) struct Stats {
    /// Largest magnitude.
    pub max_abs: Vec<f64>,
    /// Mean of squares.
    pub mean_square: Vec<f64>,
}

/// Runs the samples. Returns the statistics and each sample's result. The input's magnitude is that of its declared range.
pub(super) fn measure(
    graph: &FloatGraph,
    samples: &[Vec<f32>],
    range: [f32; 2],
) -> Result<(Stats, Vec<Vec<f32>>), GraphError> {
    let count = graph.nodes.len();
    let mut stats = Stats { max_abs: vec![0.0; count], mean_square: vec![0.0; count] };
    let mut results = Vec::with_capacity(samples.len());
    for sample in samples {
        let mut tap = |id: usize, _: &_, values: &[f32]| {
            let (mut largest, mut squares) = (0f32, 0f64);
            for &v in values {
                // `max` would drop a NaN.
                largest = if v.abs() > largest || v.is_nan() { v.abs() } else { largest };
                squares += f64::from(v) * f64::from(v);
            }
            let known = stats.max_abs[id];
            stats.max_abs[id] = if largest.is_nan() { f64::INFINITY } else { known.max(f64::from(largest)) };
            stats.mean_square[id] += squares / values.len() as f64 / samples.len() as f64;
        };
        results.push(run_tapped(graph, sample, &mut tap)?);
    }
    stats.max_abs[0] = stats.max_abs[0].max(f64::from(range[0].abs())).max(f64::from(range[1].abs()));
    if let Some(id) = stats.max_abs.iter().position(|m| !m.is_finite() || *m > 1e30) {
        return Err(GraphError::Quantise {
            what: format!("node `{}` overflows on a calibration sample", graph.nodes[id].name),
        });
    }
    Ok((stats, results))
}
