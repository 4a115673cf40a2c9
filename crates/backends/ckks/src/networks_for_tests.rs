//! Small networks for the tests of this crate.

use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::geometry::ConvGeometry;
use tacit_graph::import::{ImportOptions, import_network};
use tacit_graph::npy::Npy;
use tacit_graph::onnx::Network;
use tacit_graph::rng::SplitMix;
use tacit_graph::{Interval, Model, OutputMode};

/// Draws normal numbers.
pub(super) fn draw(rng: &mut SplitMix, n: usize, size: f64) -> Vec<f32> {
    (0..n).map(|_| (rng.normal() * size) as f32).collect()
}

/// The geometry of a 3 x 3 convolution with padding.
pub(super) fn geometry(out_channels: usize, stride: usize) -> ConvGeometry {
    ConvGeometry { out_channels, kernel: [3, 3], stride: [stride; 2], dilation: [1, 1], pads: [1; 4], groups: 1 }
}

/// Adds a 3 x 3 convolution with padding and random weights.
pub(super) fn conv(graph: &mut FloatGraph, x: usize, geometry: ConvGeometry, bias: f64, rng: &mut SplitMix) -> usize {
    let (inputs, out) = (graph.nodes[x].shape[0], geometry.out_channels);
    let weights = draw(rng, out * inputs * 9, (1.0 / (9.0 * inputs as f64)).sqrt());
    let bias = draw(rng, out, bias);
    graph.push("conv", FloatOp::Conv { geometry, weights, bias }, &[x], &[]).unwrap()
}

/// Imports a network with its calibration samples and its range.
pub(super) fn imported(name: &str, graph: FloatGraph, data: Vec<f32>, [low, high]: [f32; 2]) -> Model {
    let input = &graph.nodes[0];
    let shape = [vec![data.len() / input.elements()], input.shape.clone()].concat();
    let calibration = Some(Npy { shape, data, is_bytes: false });
    let options = ImportOptions { calibration, range: Some(Interval { low, high }), ..ImportOptions::default() };
    import_network(Network::new(name, graph), &options).unwrap().model
}

/// Two blocks of a residual network on 2 x 8 x 8 inputs, with squares in between.
pub(super) fn residual() -> Model {
    let mut rng = SplitMix::new(9);
    let mut graph = FloatGraph::new("x", vec![2, 8, 8]).unwrap();
    let mut conv = |graph: &mut FloatGraph, x: usize, out: usize, stride: usize| {
        conv(graph, x, geometry(out, stride), 0.1, &mut rng)
    };
    let act = |graph: &mut FloatGraph, x: usize| {
        let channels = graph.nodes[x].shape[0];
        let square = graph.push("square", FloatOp::Mul, &[x, x], &[]).unwrap();
        let affine = |scale: f32, shift: f32| {
            let each = |c: usize| 1.0 + c as f32 / 8.0;
            FloatOp::Affine { scale: (0..channels).map(|c| scale * each(c)).collect(), shift: vec![shift; channels] }
        };
        let high = graph.push("high", affine(-0.2, 0.0), &[square], &[]).unwrap();
        let low = graph.push("low", affine(0.5, 0.1), &[x], &[]).unwrap();
        graph.push("act", FloatOp::Add, &[high, low], &[]).unwrap()
    };
    let a = conv(&mut graph, 0, 4, 1);
    let a = act(&mut graph, a);
    let b = conv(&mut graph, a, 4, 1);
    let b = act(&mut graph, b);
    let c = conv(&mut graph, b, 4, 1);
    let sum = graph.push("sum", FloatOp::Add, &[c, a], &[]).unwrap();
    let d = act(&mut graph, sum);
    let d = conv(&mut graph, d, 8, 2);
    let d = graph.push("flat", FloatOp::Reshape, &[d], &[128]).unwrap();
    let weights = draw(&mut rng, 640, 0.1);
    graph.output = graph.push("y", FloatOp::Dense { weights, bias: vec![0.1; 5] }, &[d], &[]).unwrap();
    let data = (0..16 * 128).map(|_| rng.range(-1.0, 1.0) as f32).collect();
    imported("residual", graph, data, [-1.0, 1.0])
}

pub(super) fn input(model: &Model, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix::new(seed);
    (0..model.interface.input_len()).map(|_| rng.range(-1.0, 1.0) as f32).collect()
}

/// A dense layer, an activation that `act` adds after node 1, and a dense layer. The arguments are
/// the largest magnitudes of calibration inputs and of accepted inputs.
pub(super) fn activated([calibrated, accepted]: [f64; 2], act: impl Fn(&mut FloatGraph) -> usize) -> Model {
    let mut rng = SplitMix::new(5);
    let mut draw = |n: usize| draw(&mut rng, n, 0.5);
    let mut graph = FloatGraph::new("x", vec![8]).unwrap();
    graph.push("in", FloatOp::Dense { weights: draw(64), bias: draw(8) }, &[0], &[]).unwrap();
    let node = act(&mut graph);
    graph.output = graph.push("out", FloatOp::Dense { weights: draw(24), bias: draw(3) }, &[node], &[]).unwrap();
    let data = (0..64 * 8).map(|_| rng.range(-calibrated, calibrated) as f32).collect();
    imported("activated", graph, data, [-accepted as f32, accepted as f32])
}

pub(super) fn relu(graph: &mut FloatGraph) -> usize {
    graph.push("relu", FloatOp::Relu, &[1], &[]).unwrap()
}

/// The same network in mode top-1.
pub(super) fn telling_the_class(mut model: Model) -> Model {
    model.interface.output_mode = OutputMode::Top1;
    model.interface.output_shape = vec![1];
    model
}
