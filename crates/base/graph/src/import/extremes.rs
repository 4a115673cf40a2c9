//! Magnitudes of tensors on inputs that no calibration set holds: checkerboards, stripes, noise at
//! both ends of the accepted range, and the input that maximises each filter of the first layer.
//! The range check accepts all of these inputs, so rings should hold them.

use crate::float::run::run_tapped;
use crate::float::{FloatGraph, FloatOp};
use crate::model::MAX_MAGNITUDE;
use crate::rng::SplitMix;
use crate::{GraphError, Interval, Watch};

/// Largest number of multiplications for all extreme inputs together.
const MAX_PATTERN_MACS: u64 = 3_000_000_000;
/// Number of filters of the first layer that get their own input.
const MAX_FILTERS: usize = 16;
const NOISE_PATTERNS: usize = 6;
const NOISE_SEED: u64 = 0x7ac1;

/// Returns up to `max_inputs` extreme inputs with values in `range`, the most informative first.
#[must_use]
pub fn extreme_inputs(graph: &FloatGraph, range: Interval<f32>, max_inputs: usize) -> Vec<Vec<f32>> {
    let (patterns, bounds) = (patterns(graph).into_iter().take(max_inputs), range.ends());
    patterns.map(|pattern| pattern.into_iter().map(|high| bounds[usize::from(high)]).collect()).collect()
}

/// Returns the largest magnitude of each node's tensor over the extreme inputs with values in
/// `range`.
pub(super) fn magnitudes(graph: &FloatGraph, range: Interval<f32>, watch: &Watch) -> Result<Vec<f64>, GraphError> {
    let (patterns, bounds) = (patterns(graph), range.ends());
    let count = graph.runs_within(MAX_PATTERN_MACS).clamp(2, patterns.len());
    let mut largest = vec![0f64; graph.nodes.len()];
    for (index, pattern) in patterns[..count].iter().enumerate() {
        watch.tell("running extreme inputs", index, Some(count))?;
        let input: Vec<f32> = pattern.iter().map(|&high| bounds[usize::from(high)]).collect();
        run_tapped(graph, &input, &mut |id, _, values| {
            let size = tacit_floats::largest_magnitude(values.iter().copied());
            // A value that overflows floats overflows every ring.
            largest[id] = if size < MAX_MAGNITUDE { largest[id].max(size) } else { MAX_MAGNITUDE };
        })?;
    }
    Ok(largest)
}

/// Returns for each input which elements are at the upper end of the range; the most informative
/// inputs come first.
fn patterns(graph: &FloatGraph) -> Vec<Vec<bool>> {
    let shape = &graph.nodes[0].shape;
    let [channels, rows, columns] = match *shape.as_slice() {
        [c, h, w] => [c, h, w],
        [c, l] => [c, 1, l],
        _ => [1, 1, graph.nodes[0].elements()],
    };
    let make = |high: &dyn Fn(usize, usize, usize) -> bool| -> Vec<bool> {
        (0..channels * rows * columns).map(|i| high(i / (rows * columns), i / columns % rows, i % columns)).collect()
    };
    let mut patterns = vec![make(&|_, y, x| (y + x) % 2 == 0), make(&|_, _, _| true), make(&|_, _, _| false)];
    let mut filters = filters(graph);
    let mut rng = SplitMix::new(NOISE_SEED);
    let mut noise: Vec<_> = (0..NOISE_PATTERNS).map(|_| make(&|_, _, _| true)).collect();
    noise.iter_mut().flatten().for_each(|bit| *bit = rng.next_u64() & 1 == 1);
    // One input of each kind precedes further inputs of any kind.
    patterns.extend(filters.drain(..filters.len().min(4)));
    patterns.push(noise.remove(0));
    for cell in [1, 2, 4, 8] {
        patterns.push(make(&|_, y, x| (y / cell + x / cell) % 2 == 1));
        patterns.push(make(&|_, y, x| (y / cell + x / cell) % 2 == 0));
        patterns.push(make(&|_, _, x| (x / cell) % 2 == 0));
        patterns.push(make(&|_, y, _| (y / cell) % 2 == 0));
    }
    patterns.extend(filters);
    patterns.extend(noise);
    // Single colours: plain, and as checkerboards of opposite channels.
    for c in 0..channels.min(4) {
        patterns.push(make(&|k, _, _| k == c));
        patterns.push(make(&|k, _, _| k != c));
        patterns.push(make(&|k, y, x| ((y + x) % 2 == 0) == (k == c)));
        patterns.push(make(&|k, y, x| ((y / 2 + x / 2) % 2 == 0) == (k == c)));
    }
    patterns.push(make(&|_, y, _| y < rows / 2));
    patterns.push(make(&|_, _, x| x < columns / 2));
    patterns
}

/// Returns inputs that agree in sign with a filter of the first linear layer everywhere, for the
/// filters with the largest sums of magnitudes.
fn filters(graph: &FloatGraph) -> Vec<Vec<bool>> {
    let layer = graph.nodes.iter().find(|n| n.op.is_linear());
    let Some(node) = layer.filter(|n| n.inputs == [0]) else { return Vec::new() };
    let (weights, outputs) = match &node.op {
        FloatOp::Conv { weights, bias, .. } | FloatOp::Dense { weights, bias } => (weights, bias.len()),
        _ => return Vec::new(),
    };
    let row_len = weights.len() / outputs.max(1);
    let mut rows: Vec<&[f32]> = weights.chunks(row_len.max(1)).collect();
    rows.sort_by(|a, b| tacit_floats::falling(&magnitude_sum(a), &magnitude_sum(b)));
    let best = rows.iter().take(MAX_FILTERS).map(|row| signs(graph, &node.op, row));
    best.flat_map(|high| [high.clone(), high.iter().map(|b| !b).collect()]).collect()
}

fn magnitude_sum(row: &[f32]) -> f64 {
    row.iter().map(|w| f64::from(w.abs())).sum()
}

/// Returns for each input element whether its weight in filter `row` is positive.
fn signs(graph: &FloatGraph, op: &FloatOp, row: &[f32]) -> Vec<bool> {
    let FloatOp::Conv { geometry: g, .. } = op else { return row.iter().map(|w| *w > 0.0).collect() };
    let shape = &graph.nodes[0].shape;
    let ([kh, kw], inside) = (g.kernel, shape[0] / g.groups.max(1));
    let (height, width) = (shape[1], shape[2]);
    (0..graph.nodes[0].elements())
        .map(|i| {
            let (c, y, x) = (i / (height * width), i / width % height, i % width);
            row[(c % inside.max(1)) * kh * kw + y % kh * kw + x % kw] > 0.0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_magnitudes_of_a_layer_are_found() {
        let mut graph = FloatGraph::new("x", vec![3]).unwrap();
        let op = FloatOp::Dense { weights: vec![1.0, -2.0, 4.0, 1.0, 1.0, 1.0], bias: vec![0.0, 0.5] };
        graph.output = graph.push("y", op, &[0], &[]).unwrap();
        assert_eq!(magnitudes(&graph, Interval { low: -1.0, high: 1.0 }, &Watch::default()).unwrap(), [1.0, 7.0]);
        assert_eq!(magnitudes(&graph, Interval { low: 0.0, high: 2.0 }, &Watch::default()).unwrap(), [2.0, 10.0]);
    }

    #[test]
    fn every_pattern_fits_the_input() {
        for shape in [vec![7], vec![3, 9], vec![2, 6, 5]] {
            let graph = FloatGraph::new("x", shape).unwrap();
            let candidates = patterns(&graph);
            assert!(candidates.len() > 20 && candidates.iter().all(|p| p.len() == graph.nodes[0].elements()));
        }
    }
}
