//! Ranges and sizes of all tensors over the calibration samples.

use crate::float::FloatGraph;
use crate::float::run::run_tapped;
use crate::model::{FEWEST_SAMPLES, MAX_MAGNITUDE, SEARCH_WORK};
use crate::{GraphError, Interval, Watch};

/// Largest number of multiplications for running all stored samples, if enough samples remain to
/// judge a lowering.
const WORK_OF_KEPT: u64 = 8_000_000_000;
/// Largest number of input elements of all stored samples.
const KEPT_ELEMENTS: usize = 1 << 24;

/// Statistics over all samples, and the stored samples with their results. See
/// [`Calibration`](crate::Calibration).
pub(super) struct Measured {
    pub max_abs: Vec<f64>,
    pub mean_square: Vec<f64>,
    pub samples: Vec<Vec<f32>>,
    pub wanted: Vec<Vec<f32>>,
}

/// Runs the samples and stores the first of them, as many as a search can evaluate. The input's
/// magnitude is that of its declared range.
pub(super) fn measure(
    graph: &FloatGraph,
    mut samples: Vec<Vec<f32>>,
    range: Interval<f32>,
    watch: &Watch,
) -> Result<Measured, GraphError> {
    let count = graph.nodes.len();
    let (mut max_abs, mut mean_square) = (vec![0f64; count], vec![0f64; count]);
    let kept_count = count_kept(graph, samples.len());
    let mut wanted = Vec::with_capacity(kept_count);
    for (index, sample) in samples.iter().enumerate() {
        watch.tell("running calibration samples", index, Some(samples.len()))?;
        let result = run_tapped(graph, sample, &mut |id, _, values| {
            let squares: f64 = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            let largest = tacit_floats::largest_magnitude(values.iter().copied());
            max_abs[id] = tacit_floats::larger(max_abs[id], largest);
            mean_square[id] += squares / values.len() as f64 / samples.len() as f64;
        })?;
        if wanted.len() < kept_count {
            wanted.push(result);
        }
    }
    samples.truncate(kept_count);
    max_abs[0] = max_abs[0].max(f64::from(range.low.abs())).max(f64::from(range.high.abs()));
    if let Some(id) = max_abs.iter().position(|m| !m.is_finite() || *m > MAX_MAGNITUDE) {
        return Err(GraphError::Calibration { what: overflow(&graph.nodes[id].name, max_abs[0]) });
    }
    Ok(Measured { max_abs, mean_square, samples, wanted })
}

/// Returns the error text for node `name` that overflows on samples whose largest value is `largest`,
/// with a remedy.
fn overflow(name: &str, largest: f64) -> String {
    format!(
        "node `{name}` overflows on a calibration sample: its values exceed {MAX_MAGNITUDE:e}. The samples reach {largest:.3e}. If that is \
         not what the network was trained on, normalise them: raw pixels as unsigned bytes with the network's pixel scale, mean and \
         standard deviation, other values before they are saved. If it is, the weights are too large for fixed point: scale them down"
    )
}

/// Returns how many of `sample_count` samples are stored: enough for a search and to judge it, or only as
/// many as a search can run.
pub(super) fn count_kept(graph: &FloatGraph, sample_count: usize) -> usize {
    let sample_count = sample_count.min(KEPT_ELEMENTS / graph.nodes[0].elements()).max(1);
    let enough = sample_count.min(graph.runs_within(WORK_OF_KEPT));
    if enough >= FEWEST_SAMPLES { enough } else { sample_count.min(graph.runs_within(SEARCH_WORK).max(1)) }
}
