//! Small models with random weights, built by hand.

use tacit_backends::ring::op::infer_shape;
use tacit_backends::ring::{
    Conv2d, FixedPoint, LayerWeights, Linear, Node, Op, RingGraph, RingSpec, WeightFacts, Weights,
};
use tacit_graph::geometry::{ConvGeometry, Slice};
use tacit_graph::{InputSpec, Interface, Interval, OutputMode};

/// A model under construction. Inputs are below 2^6, weights below 2^4 in magnitude.
#[derive(Clone)]
pub struct Net {
    nodes: Vec<Node>,
    weights: Weights,
    state: u64,
}

const FACTS: WeightFacts = WeightFacts { frac_bits: 6, magnitude_bits: 4, norm_bits: 11 };

/// A convolution with a kernel of `k x k` that keeps the size of an image.
pub fn same_size(out_channels: usize, k: usize) -> ConvGeometry {
    ConvGeometry { kernel: [k, k], pads: [k / 2; 4], ..ConvGeometry::pointwise(out_channels) }
}

/// As [`same_size`], for every second row and column.
pub fn half_size(out_channels: usize, k: usize) -> ConvGeometry {
    ConvGeometry { stride: [2, 2], ..same_size(out_channels, k) }
}

impl Net {
    /// A model of the input alone. `seed` decides the weights.
    pub fn new(shape: Vec<usize>, width: u32, seed: u64) -> Self {
        let fixed = FixedPoint { width, frac_bits: 6 };
        let input = Node { name: "input".into(), op: Op::Input, inputs: vec![], shape, fixed };
        Self { nodes: vec![input], weights: Weights::default(), state: seed | 1 }
    }

    /// Draws a number of magnitude less than `below`.
    fn random(&mut self, below: i64) -> i64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as i64 % (2 * below - 1) - (below - 1)
    }

    fn push(&mut self, op: Op, inputs: Vec<usize>, width: u32, frac_bits: u32, declared: Vec<usize>) -> usize {
        let shapes: Vec<&[usize]> = inputs.iter().map(|&i| &*self.nodes[i].shape).collect();
        let shape = infer_shape(&op, &shapes, &declared).unwrap();
        let name = format!("n{}", self.nodes.len());
        self.nodes.push(Node { name, op, inputs, shape, fixed: FixedPoint { width, frac_bits } });
        self.nodes.len() - 1
    }

    fn layer(&mut self, node: usize, count: usize, out: usize) {
        let weights = (0..count).map(|_| self.random(16) as i32).collect();
        let bias = (0..out).map(|_| self.random(1 << 10)).collect();
        self.weights.layers.push(LayerWeights { node, weights, bias });
    }

    pub fn conv(&mut self, x: usize, geometry: ConvGeometry, width: u32) -> usize {
        let (input, out) = (&self.nodes[x], geometry.out_channels);
        let frac = input.fixed.frac_bits + 6;
        let per_row = input.shape[0] / geometry.groups * geometry.kernel[0] * geometry.kernel[1];
        let op = Op::Conv2d(Conv2d { geometry, weights: FACTS });
        let id = self.push(op, vec![x], width, frac, vec![]);
        self.layer(id, out * per_row, out);
        id
    }

    pub fn linear(&mut self, x: usize, out: usize, width: u32) -> usize {
        let (features, frac) = (self.nodes[x].elements(), self.nodes[x].fixed.frac_bits + 6);
        let id = self.push(Op::Linear(Linear { out_features: out, weights: FACTS }), vec![x], width, frac, vec![]);
        self.layer(id, out * features, out);
        id
    }

    pub fn truncate(&mut self, x: usize, bits: u32) -> usize {
        let fixed = self.nodes[x].fixed;
        self.push(Op::Truncate { bits }, vec![x], fixed.width - bits, fixed.frac_bits - bits, vec![])
    }

    /// Adds a node with the fraction bits of its first input.
    fn same_scale(&mut self, op: Op, inputs: Vec<usize>, width: u32, declared: Vec<usize>) -> usize {
        let frac = self.nodes[inputs[0]].fixed.frac_bits;
        self.push(op, inputs, width, frac, declared)
    }

    pub fn relu(&mut self, x: usize, width: u32) -> usize {
        self.same_scale(Op::Relu, vec![x], width, vec![])
    }

    pub fn widen(&mut self, x: usize, width: u32) -> usize {
        self.same_scale(Op::Widen, vec![x], width, vec![])
    }

    pub fn pool(&mut self, x: usize, op: Op) -> usize {
        let width = self.nodes[x].fixed.width;
        self.same_scale(op, vec![x], width, vec![])
    }

    pub fn concat(&mut self, inputs: Vec<usize>) -> usize {
        let width = self.nodes[inputs[0]].fixed.width;
        self.same_scale(Op::Concat, inputs, width, vec![])
    }

    /// Sum of two tensors, in the narrower ring; the second is shifted to the first one's scale.
    pub fn add(&mut self, a: usize, b: usize) -> usize {
        let (fa, fb) = (self.nodes[a].fixed, self.nodes[b].fixed);
        let b = match fa.frac_bits.cmp(&fb.frac_bits) {
            std::cmp::Ordering::Greater => {
                let bits = fa.frac_bits - fb.frac_bits;
                self.push(Op::ShiftLeft { bits }, vec![b], fb.width, fa.frac_bits, vec![])
            }
            std::cmp::Ordering::Less => self.truncate(b, fb.frac_bits - fa.frac_bits),
            std::cmp::Ordering::Equal => b,
        };
        let width = self.nodes[a].fixed.width.min(self.nodes[b].fixed.width);
        self.same_scale(Op::Add, vec![a, b], width, vec![])
    }

    /// Every second row and column, with `pad` zero channels on either side: the shortcut of CIFAR ResNets.
    pub fn slice_pad(&mut self, x: usize, step: usize, pad: usize) -> usize {
        let (shape, width) = (self.nodes[x].shape.clone(), self.nodes[x].fixed.width);
        let len = vec![shape[0], shape[1].div_ceil(step), shape[2].div_ceil(step)];
        let slice = Op::Slice(Slice { start: vec![0; 3], step: vec![1, step, step], len });
        let sliced = self.same_scale(slice, vec![x], width, vec![]);
        let pad = Op::Pad { before: vec![pad, 0, 0], after: vec![pad, 0, 0] };
        self.same_scale(pad, vec![sliced], width, vec![])
    }

    /// `x + value` for a public constant.
    pub fn add_const(&mut self, x: usize, value: i64) -> usize {
        let width = self.nodes[x].fixed.width;
        self.same_scale(Op::AddConst { value }, vec![x], width, vec![])
    }

    /// `x * factors / 2^bits` for public constants, at a scale finer by `bits`.
    pub fn mul_const(&mut self, x: usize, factors: Vec<i64>, bits: u32) -> usize {
        let fixed = self.nodes[x].fixed;
        self.push(Op::MulConst { factors, frac_bits: bits }, vec![x], fixed.width, fixed.frac_bits + bits, vec![])
    }

    pub fn sub(&mut self, a: usize, b: usize) -> usize {
        let width = self.nodes[a].fixed.width.min(self.nodes[b].fixed.width);
        self.same_scale(Op::Sub, vec![a, b], width, vec![])
    }

    pub fn flatten(&mut self, x: usize) -> usize {
        let (n, width) = (self.nodes[x].elements(), self.nodes[x].fixed.width);
        self.same_scale(Op::Reshape, vec![x], width, vec![n])
    }

    pub fn transpose(&mut self, x: usize, perm: Vec<usize>) -> usize {
        let width = self.nodes[x].fixed.width;
        self.same_scale(Op::Transpose { perm }, vec![x], width, vec![])
    }

    pub fn arg_max(&mut self, x: usize, width: u32) -> usize {
        self.push(Op::ArgMax, vec![x], width, 0, vec![])
    }

    /// Returns the checked graph that ends with `output`, its weights and a random input.
    pub fn finish(mut self, output: usize, seed: u64) -> (RingGraph, Weights, Vec<i64>) {
        self.state ^= seed.rotate_left(17) | 1;
        let input = (0..self.nodes[0].elements()).map(|_| self.random(64)).collect();
        let top = matches!(self.nodes[output].op, Op::ArgMax);
        let spec = RingSpec {
            model_id: [7; 16],
            interface: Interface {
                name: "test".into(),
                input_shape: self.nodes[0].shape.clone(),
                input: InputSpec::plain(Interval { low: -1.0, high: 1.0 }),
                output_shape: self.nodes[output].shape.clone(),
                output_mode: if top { OutputMode::Top1 } else { OutputMode::Logits },
                outputs: vec![],
                final_activation: None,
            },
            nodes: self.nodes,
            output,
            output_multiplier: 1.0,
        };
        let graph = RingGraph::new(spec).unwrap();
        graph.check_weights(&self.weights).unwrap();
        (graph, self.weights, input)
    }
}
