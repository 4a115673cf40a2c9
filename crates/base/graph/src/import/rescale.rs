//! Rescaling of tensors far from one in size by powers of two.
//!
//! Weights of 1e-7 or inputs of 1e-5 need more fraction bits than a ring has room for beside the
//! values of other tensors. ReLU, maxima and sums commute with a positive factor. A linear layer
//! may therefore multiply its result by `2^e` if the next one divides by `2^e`; the client
//! multiplies the input and divides the output. Powers of two change no digit of a float. Networks
//! of usual sizes do not change.

use super::calibrate::Measured;
use crate::float::{FloatGraph, FloatOp};
use crate::{ChannelAffine, InputSpec, Interval};

/// Root mean squares from `2^-SMALLEST_LOG2` to `2^LARGEST_LOG2` are not rescaled.
const SMALLEST_LOG2: i32 = 6;
/// See [`SMALLEST_LOG2`].
const LARGEST_LOG2: i32 = 16;
/// Largest exponent: factors remain normal floats.
const MAX_EXPONENT: i32 = 100;

/// Rescales the network with its statistics and samples, its input and its output factor. Returns
/// whether anything changed.
pub(super) fn rescale(
    graph: &mut FloatGraph,
    measured: &mut Measured,
    input: &mut InputSpec,
    output_multiplier: &mut f64,
) -> bool {
    let exponents = exponents(graph, &measured.mean_square);
    if exponents.iter().all(|e| *e == 0) {
        return false;
    }
    let powers: Vec<f64> = exponents.iter().map(|e| f64::from(*e).exp2()).collect();
    for id in 0..graph.nodes.len() {
        let source = graph.nodes[id].inputs.first().copied().unwrap_or(id);
        let (output_power, read) = (powers[id], powers[source]);
        match &mut graph.nodes[id].op {
            FloatOp::Conv { weights, bias, .. } | FloatOp::Dense { weights, bias } => {
                times(weights, output_power / read);
                times(bias, output_power);
            }
            FloatOp::Affine { shift, .. } => times(shift, output_power),
            _ => {}
        }
        measured.max_abs[id] *= output_power;
        measured.mean_square[id] *= output_power * output_power;
    }
    measured.samples.iter_mut().for_each(|sample| times(sample, powers[0]));
    measured.wanted.iter_mut().for_each(|result| times(result, powers[graph.output]));
    *output_multiplier /= powers[graph.output];
    if exponents[0] != 0 {
        let channels = graph.nodes[0].shape[0];
        let moved =
            input.moved.get_or_insert_with(|| ChannelAffine { scale: vec![1.0; channels], shift: vec![0.0; channels] });
        times(&mut moved.scale, powers[0]);
        times(&mut moved.shift, powers[0]);
        let mut bounds = input.range.ends();
        times(&mut bounds, powers[0]);
        let [low, high] = bounds;
        input.range = Interval { low, high };
    }
    true
}

fn times(values: &mut [f32], factor: f64) {
    if factor != 1.0 {
        values.iter_mut().for_each(|v| *v = (f64::from(*v) * factor) as f32);
    }
}

/// Returns the exponent of each node's tensor. Tensors joined by operations other than linear
/// layers share one exponent.
fn exponents(graph: &FloatGraph, mean_square: &[f64]) -> Vec<i32> {
    let group = graph.groups(|op| !op.is_linear());
    let mut largest = vec![0f64; graph.nodes.len()];
    let mut is_kept = vec![false; graph.nodes.len()];
    for (id, &root) in group.iter().enumerate() {
        largest[root] = largest[root].max(mean_square[id]);
        // Functions and products do not commute with a factor.
        is_kept[root] |= matches!(graph.nodes[id].op, FloatOp::Function(_) | FloatOp::Mul);
    }
    group
        .into_iter()
        .map(|root| {
            let size = 0.5 * largest[root].log2();
            let usual = largest[root] == 0.0 || (f64::from(-SMALLEST_LOG2)..=f64::from(LARGEST_LOG2)).contains(&size);
            if usual || is_kept[root] { 0 } else { (-size.round() as i32).clamp(-MAX_EXPONENT, MAX_EXPONENT) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::float::{FloatGraph, FloatOp, run::run};
    use crate::import::{ImportOptions, import_network};
    use crate::npy::Npy;
    use crate::onnx::Network;
    use crate::rng::SplitMix;
    use crate::{Imported, Units};

    /// Two layers with a shortcut between them, `x -> relu(a) + a -> y`, with input and first layer
    /// of the given sizes.
    fn imported(input: f64, weight_size: f64) -> (Imported, Vec<Vec<f32>>) {
        let mut rng = SplitMix::new(3);
        let mut random_list =
            |n: usize, size: f64| -> Vec<f32> { (0..n).map(|_| (rng.normal() * size) as f32).collect() };
        let mut graph = FloatGraph::new("x", vec![5]).unwrap();
        let dense = |weights: Vec<f32>, bias: Vec<f32>| FloatOp::Dense { weights, bias };
        let a = graph
            .push("a", dense(random_list(40, weight_size), random_list(8, weight_size * input)), &[0], &[])
            .unwrap();
        let relu = graph.push("relu", FloatOp::Relu, &[a], &[]).unwrap();
        let sum = graph.push("sum", FloatOp::Add, &[relu, a], &[]).unwrap();
        let output = dense(random_list(24, 1.0 / (weight_size * input)), random_list(3, 1.0));
        graph.output = graph.push("y", output, &[sum], &[]).unwrap();
        let samples: Vec<Vec<f32>> = (0..8).map(|_| random_list(5, input)).collect();
        let network = Network::new("n", graph);
        let calibration = Some(Npy { shape: vec![8, 5], data: samples.concat(), is_bytes: false });
        (import_network(network, &ImportOptions { calibration, ..ImportOptions::default() }).unwrap(), samples)
    }

    #[test]
    fn tiny_and_huge_tensors_are_rescaled_without_changing_the_network() {
        for (input, weight_size) in [(1e-5, 1.0), (1.0, 1e-7), (1e-5, 1e-7), (1e7, 1.0), (1.0, 1.0)] {
            let (imported, samples) = imported(input, weight_size);
            let model = &imported.model;
            let sizes = model.calibration.mean_square.iter().map(|m| m.sqrt());
            assert!(
                sizes.clone().all(|s| (1e-2..1e5).contains(&s)),
                "{input} {weight_size}: {:?}",
                sizes.collect::<Vec<_>>()
            );
            assert_eq!(model.interface.input.moved.is_some(), input != 1.0);
            for x in samples {
                let expected = run(&imported.network.graph, &x).unwrap();
                let outputs = model.run(&model.interface.accept(&x, Units::Network).unwrap()).unwrap();
                for (g, w) in outputs.iter().zip(&expected) {
                    assert!((g - f64::from(*w)).abs() < 1e-4 * (1.0 + g.abs()), "{input} {weight_size}: {g} {w}");
                }
            }
        }
    }

    #[test]
    fn networks_of_usual_size_are_not_rescaled() {
        let (imported, _) = imported(1.0, 1.0);
        assert_eq!(imported.model.output_multiplier, 1.0);
        assert!(imported.model.notes.iter().all(|note| !note.contains("powers of two")));
        assert_eq!(imported.model.graph, imported.network.graph);
    }
}
