//! Small float models with seeded weights, one operation of interest each, over random shapes.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tacit_backends::{Backend, Options};
use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::geometry::{ConvGeometry, Slice, Window};
use tacit_graph::import::{ImportOptions, import_network};
use tacit_graph::npy::Npy;
use tacit_graph::onnx::Network;
use tacit_graph::rng::SplitMix;
use tacit_graph::{Function, Interval, Model, OutputMode};

use super::parties::Models;

/// A model under construction; a failed push is a test that is wrong.
pub struct Net {
    graph: FloatGraph,
    rng: SplitMix,
}

impl Net {
    pub fn new(shape: &[usize], seed: u64) -> Self {
        Self { graph: FloatGraph::new("input", shape.to_vec()).unwrap(), rng: SplitMix::new(seed) }
    }

    pub fn push(&mut self, op: FloatOp, inputs: &[usize], shape: &[usize]) -> usize {
        let name = format!("n{}", self.graph.nodes.len());
        self.graph.push(&name, op, inputs, shape).unwrap()
    }

    pub fn shape(&self, node: usize) -> Vec<usize> {
        self.graph.nodes[node].shape.clone()
    }

    fn values(&mut self, n: usize, size: f64) -> Vec<f32> {
        self.rng.floats(n, -size, size)
    }

    pub fn conv(&mut self, x: usize, geometry: ConvGeometry) -> usize {
        let per_row = self.shape(x)[0] / geometry.groups * geometry.kernel[0] * geometry.kernel[1];
        let weights = self.values(per_row * geometry.out_channels, 1.0);
        let bias = self.values(geometry.out_channels, 0.5);
        self.push(FloatOp::Conv { geometry, weights, bias }, &[x], &[])
    }

    /// A 1 x 1 convolution.
    pub fn pointwise(&mut self, x: usize, out: usize) -> usize {
        self.conv(x, geometry(out, 1, 1, 1, [0; 4], 1))
    }

    pub fn dense(&mut self, x: usize, out: usize) -> usize {
        let features = self.shape(x)[0];
        let (weights, bias) = (self.values(features * out, 1.0), self.values(out, 0.5));
        self.push(FloatOp::Dense { weights, bias }, &[x], &[])
    }

    /// A factor and an addend for each channel.
    pub fn affine(&mut self, x: usize) -> usize {
        let channels = self.shape(x)[0];
        let (scale, shift) = (self.values(channels, 1.5), self.values(channels, 0.5));
        let scale = scale.iter().map(|s| s + 0.1f32.copysign(*s)).collect();
        self.push(FloatOp::Affine { scale, shift }, &[x], &[])
    }

    pub fn position_scale(&mut self, x: usize) -> usize {
        let positions = self.shape(x)[1..].iter().product();
        let factors = self.rng.floats(positions, 0.1, 1.0);
        self.push(FloatOp::PositionScale(factors), &[x], &[])
    }

    pub fn flatten(&mut self, x: usize) -> usize {
        let n = self.shape(x).iter().product();
        self.push(FloatOp::Reshape, &[x], &[n])
    }

    /// The model that ends with `output`, calibrated on a few seeded inputs in [-1, 1].
    pub fn model(mut self, output: usize, output_mode: OutputMode) -> Model {
        self.graph.output = output;
        self.graph.sort().unwrap();
        let shape = self.graph.nodes[0].shape.clone();
        let n: usize = shape.iter().product();
        let data = self.values(8 * n, 1.0);
        let calibration = Npy { shape: [vec![8], shape].concat(), data, is_bytes: false };
        let options = ImportOptions {
            calibration: Some(calibration),
            range: Some(Interval { low: -1.0, high: 1.0 }),
            output_mode,
            model_id: Some([7; 16]),
            ..ImportOptions::default()
        };
        import_network(Network::new("test", self.graph), &options).unwrap().model
    }
}

pub fn geometry(out: usize, k: usize, stride: usize, dilation: usize, pads: [usize; 4], groups: usize) -> ConvGeometry {
    ConvGeometry { out_channels: out, kernel: [k, k], stride: [stride; 2], dilation: [dilation; 2], pads, groups }
}

/// A case of the suite: a name and a model.
pub type Case = (&'static str, Model);

/// The case with functions of values far beyond where they saturate, which no polynomial is near.
pub const STEEP: &str = "functions";

/// Windows that fit an image of at least 4 x 4.
fn window() -> impl Strategy<Value = Window> {
    (1usize..4, 1usize..4, prop::array::uniform4(0usize..2)).prop_map(|(k, s, pads)| Window {
        kernel: [k, k],
        stride: [s, s],
        pads: pads.map(|p| p.min(k - 1)),
    })
}

/// Every operation of the float level, over random shapes.
pub fn cases() -> impl Strategy<Value = Vec<Case>> {
    let image = (1usize..4, 4usize..9, 4usize..9);
    (image, window(), 1usize..4, 1usize..3, 1usize..3, any::<u64>()).prop_map(
        |((c, h, w), window, k, stride, groups, seed)| {
            let mut cases = linear_cases(&[c * groups, h, w], k, stride, groups, seed);
            cases.extend(pool_cases(&[c, h, w], &window, seed));
            cases.extend(shape_cases(&[c, h, w], stride, seed));
            cases.extend(function_cases(&[c, h, w], seed));
            cases.extend(network_cases(&[c, h, w], seed));
            cases
        },
    )
}

/// The cases that the suite begins with.
fn first_cases() -> Vec<Case> {
    cases().new_tree(&mut TestRunner::deterministic()).unwrap().current()
}

/// The model of one of these cases.
pub fn first_model(name: &str) -> Model {
    first_cases().into_iter().find(|case| case.0 == name).unwrap().1
}

/// The model with the most nodes of these cases.
pub fn largest_model() -> Model {
    let models = first_cases().into_iter().map(|(_, model)| model);
    models.max_by_key(|model| model.graph.nodes.len()).unwrap()
}

/// The first of these models that a back end lowers with `options`, at both parties.
pub fn lower_first(backend: &dyn Backend, options: &Options) -> Models {
    let server = first_cases().into_iter().find_map(|(_, model)| backend.lower(&model, options).ok());
    Models::open(backend, server.unwrap())
}

fn build_case(name: &'static str, shape: &[usize], seed: u64, build: impl FnOnce(&mut Net) -> usize) -> Case {
    let mut net = Net::new(shape, seed);
    let output = build(&mut net);
    (name, net.model(output, OutputMode::Logits))
}

/// Builds a case of one operation behind a 1 x 1 convolution.
fn build_behind_conv(name: &'static str, shape: &[usize], seed: u64, channels: usize, op: FloatOp) -> Case {
    build_case(name, shape, seed, |n| {
        let x = n.pointwise(0, channels);
        n.push(op, &[x], &[])
    })
}

fn linear_cases(shape: &[usize], k: usize, stride: usize, groups: usize, seed: u64) -> Vec<Case> {
    let (h, w) = (shape[1], shape[2]);
    let dilation = if 2 * (k - 1) < h.min(w) { 2 } else { 1 };
    vec![
        build_case("conv", shape, seed, |n| n.conv(0, geometry(3, k, stride, 1, [k / 2; 4], 1))),
        build_case("dilated conv", shape, seed, |n| n.conv(0, geometry(2, k, 1, dilation, [1, 0, 0, 1], 1))),
        build_case("grouped conv", shape, seed, |n| n.conv(0, geometry(2 * groups, k, stride, 1, [0; 4], groups))),
        build_case("depthwise conv", shape, seed, |n| n.conv(0, geometry(shape[0], k, 1, 1, [k / 2; 4], shape[0]))),
        build_case("dense", shape, seed, |n| {
            let flat = n.flatten(0);
            n.dense(flat, 5)
        }),
        build_case("affine", shape, seed, |n| {
            let x = n.push(FloatOp::Relu, &[0], &[]);
            n.affine(x)
        }),
        build_case("position scale", shape, seed, |n| {
            let x = n.pointwise(0, 2);
            n.position_scale(x)
        }),
    ]
}

fn pool_cases(shape: &[usize], window: &Window, seed: u64) -> Vec<Case> {
    vec![
        build_behind_conv("relu", shape, seed, 2, FloatOp::Relu),
        build_case("max pool", shape, seed, |n| n.push(FloatOp::MaxPool(window.clone()), &[0], &[])),
        build_case("sum pool", shape, seed, |n| n.push(FloatOp::SumPool(window.clone()), &[0], &[])),
    ]
}

fn shape_cases(shape: &[usize], step: usize, seed: u64) -> Vec<Case> {
    let len = vec![shape[0], (shape[1] - 1).div_ceil(step), shape[2].div_ceil(step)];
    let slice = Slice { start: vec![0, 1, 0], step: vec![1, step, step], len };
    vec![
        build_case("add", shape, seed, |n| {
            let (a, b) = (n.pointwise(0, 2), n.pointwise(0, 2));
            n.push(FloatOp::Add, &[a, b], &[])
        }),
        build_case("sub", shape, seed, |n| {
            let a = n.pointwise(0, shape[0]);
            n.push(FloatOp::Sub, &[a, 0], &[])
        }),
        build_case("concat", shape, seed, |n| {
            let a = n.pointwise(0, 2);
            n.push(FloatOp::Concat, &[0, a], &[])
        }),
        build_behind_conv("slice", shape, seed, shape[0], FloatOp::Slice(slice)),
        build_behind_conv("pad", shape, seed, 2, FloatOp::Pad { before: vec![1, 0, 1], after: vec![0, 2, 0] }),
        build_behind_conv("transpose", shape, seed, 2, FloatOp::Transpose(vec![2, 0, 1])),
        build_case("square", shape, seed, |n| {
            let a = n.pointwise(0, 2);
            let square = n.push(FloatOp::Mul, &[a, a], &[]);
            let scaled = n.affine(a);
            let sum = n.push(FloatOp::Add, &[square, scaled], &[]);
            let b = n.pointwise(sum, 2);
            n.push(FloatOp::Mul, &[b, sum], &[])
        }),
        build_case("reshape", shape, seed, |n| {
            let a = n.pointwise(0, 2);
            n.flatten(a)
        }),
    ]
}

/// Functions of each element; those of positive numbers on what a sigmoid gives.
fn function_cases(shape: &[usize], seed: u64) -> Vec<Case> {
    let function_case = |&function: &Function| {
        build_case(function.id(), shape, seed, |n| {
            let mut x = n.pointwise(0, 3);
            if function.is_positive() {
                x = n.push(FloatOp::Function(Function::Sigmoid), &[x], &[]);
            }
            n.push(FloatOp::Function(function), &[x], &[])
        })
    };
    let steep = build_case(STEEP, shape, seed, |n| {
        let mut x = n.conv(0, geometry(4, 3, 1, 1, [1; 4], 1));
        // Clipped: far beyond where the function saturates.
        let channels = n.shape(x)[0];
        x = n.push(FloatOp::Affine { scale: vec![16.0; channels], shift: vec![0.5; channels] }, &[x], &[]);
        x = n.push(FloatOp::Function(Function::Tanh), &[x], &[]);
        x = n.conv(x, geometry(3, 3, 1, 1, [1; 4], 1));
        let (positive, residual) = (FloatOp::Relu, FloatOp::Function(Function::GeluTanhResidual));
        let [positive, residual] = [positive, residual].map(|op| n.push(op, &[x], &[]));
        x = n.push(FloatOp::Sub, &[positive, residual], &[]);
        let flat = n.flatten(x);
        n.dense(flat, 4)
    });
    Function::ALL.iter().map(function_case).chain([steep]).collect()
}

/// A small residual network with everything in it, with both output modes.
fn network_cases(shape: &[usize], seed: u64) -> Vec<Case> {
    let build = |n: &mut Net| {
        let a = n.conv(0, geometry(4, 3, 1, 1, [1; 4], 1));
        let a = n.affine(a);
        let a = n.push(FloatOp::Relu, &[a], &[]);
        let b = n.conv(a, geometry(4, 3, 1, 1, [1; 4], 1));
        let sum = n.push(FloatOp::Add, &[a, b], &[]);
        let r = n.push(FloatOp::Relu, &[sum], &[]);
        let pooled = n.push(FloatOp::MaxPool(Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] }), &[r], &[]);
        let flat = n.flatten(pooled);
        n.dense(flat, 6)
    };
    let mut net = Net::new(shape, seed);
    let output = build(&mut net);
    vec![build_case("network", shape, seed, build), ("arg max", net.model(output, OutputMode::Top1))]
}
