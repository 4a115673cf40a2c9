//! A toy model, and the toy back end.
#![allow(dead_code)]

use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::{Calibration, InputSpec, Interface, Interval, Model, OutputMode};

/// Inputs and outputs of [`model`].
pub fn interface() -> Interface {
    Interface {
        name: "tiny".into(),
        input_shape: vec![1, 2, 2],
        input: InputSpec { pixel_scale: 1.0 / 255.0, ..InputSpec::plain(Interval { low: -1e6, high: 1e6 }) },
        output_shape: vec![2],
        output_mode: OutputMode::Logits,
        outputs: vec![],
        final_activation: None,
    }
}

/// `y = W x + b` with two outputs of a `[1, 2, 2]` input; `salt` makes it another model.
pub fn model(salt: u8) -> Model {
    let mut graph = FloatGraph::new("x", vec![1, 2, 2]).unwrap();
    let flat = graph.push("flat", FloatOp::Reshape, &[0], &[4]).unwrap();
    let weights = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let dense = FloatOp::Dense { weights, bias: vec![f32::from(salt), 100.0] };
    graph.output = graph.push("fc", dense, &[flat], &[]).unwrap();
    let calibration = calibration(&graph, 1.0, vec![f32::from(salt), 100.0]);
    Model { model_id: [salt; 16], graph, interface: interface(), output_multiplier: 1.0, calibration, notes: vec![] }
}

/// A made-up sample, with values of at most `max_abs` in each node.
fn calibration(graph: &FloatGraph, max_abs: f64, wanted: Vec<f32>) -> Calibration {
    let nodes = graph.nodes.len();
    Calibration {
        max_abs: vec![max_abs; nodes],
        mean_square: vec![1.0; nodes],
        extreme: vec![max_abs; nodes],
        samples: vec![vec![0.0; 4]],
        wanted: vec![wanted],
        text: "one made-up sample".into(),
        guessed: true,
    }
}

/// `y = W2 relu(W1 x)`.
pub fn two_layers() -> Model {
    let mut graph = FloatGraph::new("x", vec![1, 2, 2]).unwrap();
    let flat = graph.push("flat", FloatOp::Reshape, &[0], &[4]).unwrap();
    let weights = (0..24).map(|i| (i % 7) as f32 / 4.0 - 0.75).collect();
    let first = graph.push("first", FloatOp::Dense { weights, bias: vec![0.5; 6] }, &[flat], &[]).unwrap();
    let relu = graph.push("relu", FloatOp::Relu, &[first], &[]).unwrap();
    let weights = (0..12).map(|i| (i % 5) as f32 / 4.0 - 0.5).collect();
    graph.output = graph.push("last", FloatOp::Dense { weights, bias: vec![0.0; 2] }, &[relu], &[]).unwrap();
    let calibration = calibration(&graph, 100.0, vec![0.0; 2]);
    Model { graph, calibration, ..model(3) }
}

/// The outputs of `model(salt)`.
pub fn expected(salt: u8, x: &[f32]) -> Vec<f64> {
    model(salt).run(x).unwrap()
}
