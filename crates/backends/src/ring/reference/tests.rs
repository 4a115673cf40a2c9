use super::*;
use crate::ring::{Conv2d, FixedPoint, Linear, RingSpec, WeightFacts};
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_graph::{InputSpec, Interface, OutputMode};

const FACTS: WeightFacts = WeightFacts { frac_bits: 2, magnitude_bits: 10, norm_bits: 14 };

fn fixed(width: u32, frac_bits: u32) -> FixedPoint {
    FixedPoint { width, frac_bits }
}

pub(crate) fn node(op: Op, inputs: &[usize], shape: &[usize], width: u32, frac: u32) -> Node {
    Node { name: op.name().to_string(), op, inputs: inputs.to_vec(), shape: shape.to_vec(), fixed: fixed(width, frac) }
}

/// The public part of a model with these nodes, whose last node is the result.
pub(crate) fn spec(nodes: Vec<Node>) -> RingSpec {
    let output = nodes.len() - 1;
    let top1 = matches!(nodes[output].op, Op::ArgMax);
    RingSpec {
        model_id: [7; 16],
        interface: Interface {
            name: "test".into(),
            input_shape: nodes[0].shape.clone(),
            input: InputSpec::plain([-8.0, 8.0]),
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

pub(crate) fn small_model() -> (RingGraph, Weights) {
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

#[test]
fn share_truncation_is_within_one_and_unbiased() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).map(|i| i * 5 - 40).collect();
    let mut r = Reference::new(&graph, &weights, &x).unwrap();
    let values: Vec<i64> = (-500..500).collect();
    let floor = r.truncate(&values, 24, 3);
    r.truncation = Truncation::Shares(SplitMix::new(9));
    let shares = r.truncate(&values, 24, 3);
    let mut sum = 0.0;
    for ((f, s), x) in floor.iter().zip(&shares).zip(&values) {
        let s = to_signed(*s as u64, 21);
        assert!((s - f).abs() <= 1, "{f} became {s}");
        sum += s as f64 - *x as f64 / 8.0;
    }
    // Floors of random shares lose 1 - 2^-bits on average, and half a unit is added back. With the
    // graph's own addend for the other half, the result is stochastic rounding.
    assert!((sum / 1000.0 + 0.375).abs() < 0.08, "mean error {}", sum / 1000.0);
}

#[test]
fn a_test_without_low_bits_makes_zeros_of_some_small_values_only() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).collect();
    let mut r = Reference::new(&graph, &weights, &x).unwrap();
    r.relu_drop = 3;
    let values: Vec<i64> = (-500..500).collect();
    let exact: Vec<i64> = values.iter().map(|&x| x.max(0)).collect();
    assert_eq!(r.relu(&values, 24), exact, "without shares");
    r.truncation = Truncation::Shares(SplitMix::new(9));
    let tested = r.relu(&values.repeat(50), 24);
    let mut vanished = [0; 8];
    for (one, whole) in tested.iter().zip(exact.repeat(50)) {
        assert!(*one == whole || ((0..8).contains(&whole) && *one == 0), "{whole} became {one}");
        vanished[whole.min(7) as usize] += usize::from(*one != whole);
    }
    // A value v vanishes if the low bits of a share exceed it: in 7 - v of 8 cases.
    assert!(vanished[1] > vanished[4] && vanished[4] > vanished[6] && vanished[7] == 0, "{vanished:?}");
}

#[test]
fn tap_sees_every_node_and_the_class_is_right() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).map(|i| i * 5 - 40).collect();
    let mut seen = Vec::new();
    let mut logits = Vec::new();
    let mut tap = |id: NodeId, _: &Node, v: &[i64]| {
        seen.push(id);
        if id == 6 {
            logits = v.to_vec();
        }
    };
    let class = run_tapped(&graph, &weights, &x, &mut tap).unwrap();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
    assert_eq!(class, vec![tacit_floats::first_largest(&logits).unwrap() as i64]);
}

#[test]
fn range_check_names_the_node_that_overflows() {
    let (graph, weights) = small_model();
    assert_eq!(range_check(&graph, &weights, &[1; 16]).unwrap(), vec![]);
    let found = range_check(&graph, &weights, &[1 << 21; 16]).unwrap();
    assert!(found.iter().any(|f| f.node == 1 && f.limit == 1 << 22), "{found:?}");
}

#[test]
fn wrong_input_is_an_error() {
    let (graph, weights) = small_model();
    assert!(run(&graph, &weights, &[0; 15]).is_err());
    assert!(quantize_input(&graph, &[f32::NAN; 16]).is_err());
    assert!(quantize_input(&graph, &[f32::INFINITY; 16]).is_err());
    assert!(quantize_input(&graph, &[9.0; 16]).is_err());
    assert_eq!(quantize_input(&graph, &[0.5; 16]).unwrap(), vec![8; 16]);
}
