//! Small models for tests of this crate and of back ends.
use crate::{Conv2d, FixedPoint, LayerWeights, Linear, Node, Op, RingGraph, RingSpec, WeightFacts, Weights};
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_graph::rng::SplitMix;
use tacit_graph::{ImportOptions, InputSpec, Interface, Interval, Model, OutputMode, import, zoo};

/// Public facts on the weights of the fixtures.
pub const FACTS: WeightFacts = WeightFacts { frac_bits: 2, magnitude_bits: 10, norm_bits: 14 };

fn fixed(width: u32, frac_bits: u32) -> FixedPoint {
    FixedPoint { width, frac_bits }
}

/// A node that is named after its operation.
pub fn node(op: Op, inputs: &[usize], shape: &[usize], width: u32, frac: u32) -> Node {
    Node { name: op.name().to_string(), op, inputs: inputs.to_vec(), shape: shape.to_vec(), fixed: fixed(width, frac) }
}

/// The public part of a model with these nodes, of which the last is the result.
///
/// # Panics
/// There are no nodes.
#[must_use]
pub fn spec(nodes: Vec<Node>) -> RingSpec {
    let output = nodes.len() - 1;
    let top1 = matches!(nodes[output].op, Op::ArgMax);
    RingSpec {
        model_id: [7; 16],
        interface: Interface {
            name: "test".into(),
            input_shape: nodes[0].shape.clone(),
            input: InputSpec::plain(Interval { low: -8.0, high: 8.0 }),
            output_shape: nodes[output].shape.clone(),
            output_mode: if top1 { OutputMode::Top1 } else { OutputMode::Logits },
            outputs: vec![],
            final_activation: None,
        },
        nodes,
        output,
        output_multiplier: 1.0,
    }
}

/// A network with a convolution, a pool, a ReLU and a fully connected layer.
#[must_use]
pub fn small_model() -> (RingGraph, Weights) {
    let geometry =
        ConvGeometry { out_channels: 2, kernel: [3, 3], stride: [1, 1], dilation: [1, 1], pads: [1; 4], groups: 1 };
    let conv = Conv2d { geometry, weights: FACTS };
    let nodes = vec![
        node(Op::Input, &[], &[1, 4, 4], 24, 4),
        node(Op::Conv2d(conv), &[0], &[2, 4, 4], 24, 6),
        node(Op::Truncate { bits: 2 }, &[1], &[2, 4, 4], 22, 4),
        node(Op::MaxPool(Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] }), &[2], &[2, 2, 2], 22, 4),
        node(Op::Relu, &[3], &[2, 2, 2], 24, 4),
        node(Op::Reshape, &[4], &[8], 24, 4),
        node(Op::Linear(Linear { out_features: 3, weights: FACTS }), &[5], &[3], 24, 6),
        node(Op::ArgMax, &[6], &[1], 24, 0),
    ];
    let mut rng = SplitMix::new(5);
    let mut layer = |node, n: usize, out: usize| LayerWeights {
        node,
        weights: (0..n).map(|_| (rng.next_u64() % 15) as i32 - 7).collect(),
        bias: (0..out).map(|i| i as i64).collect(),
    };
    let weights = Weights { layers: vec![layer(1, 18, 2), layer(6, 24, 3)] };
    let graph = RingGraph::new(spec(nodes)).unwrap();
    graph.check_weights(&weights).unwrap();
    (graph, weights)
}

/// The network `tiny-cnn` of the zoo as an owner's model: input `[1, 8, 8]`, ten outputs.
#[must_use]
pub fn tiny_cnn(output_mode: OutputMode) -> Model {
    let options = ImportOptions { output_mode, model_id: Some([1; 16]), ..ImportOptions::default() };
    import(&zoo::build("tiny-cnn", 2).expect("it is in the zoo"), &options).expect("it can be imported").model
}
