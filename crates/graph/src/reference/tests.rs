use super::*;
use crate::fixed::FixedPoint;
use crate::model::{InputSpec, ModelSpec, OutputMode};
use crate::op::{Conv2d, Linear, WeightFacts, Window};

const FACTS: WeightFacts = WeightFacts { frac_bits: 2, magnitude_bits: 10, norm_bits: 14 };

fn fixed(width: u32, frac_bits: u32) -> FixedPoint {
    FixedPoint { width, frac_bits }
}

fn node(op: Op, inputs: &[usize], shape: &[usize], width: u32, frac: u32) -> Node {
    Node { name: op.name().to_string(), op, inputs: inputs.to_vec(), shape: shape.to_vec(), fixed: fixed(width, frac) }
}

pub(crate) fn spec(nodes: Vec<Node>) -> ModelSpec {
    let output = nodes.len() - 1;
    ModelSpec {
        name: "test".into(),
        model_id: [7; 16],
        output_mode: if matches!(nodes[output].op, Op::ArgMax) { OutputMode::Top1 } else { OutputMode::Logits },
        nodes,
        output,
        output_multiplier: 1.0,
        softmax_by_client: false,
        input: InputSpec { mean: vec![], std: vec![], pixel_scale: 1.0, range: [-8.0, 8.0] },
    }
}

fn conv(out: usize, kernel: [usize; 2], stride: [usize; 2], pads: [usize; 4], groups: usize) -> Conv2d {
    Conv2d { out_channels: out, kernel, stride, dilation: [1, 1], pads, groups, weights: FACTS }
}

/// Convolution straight from its definition.
fn schoolbook(c: &Conv2d, x: &[i64], s: &[usize], os: &[usize], w: &[i32], b: &[i64]) -> Vec<i64> {
    let (cg, og) = (s[0] / c.groups, c.out_channels / c.groups);
    let mut out = Vec::new();
    for (o, &start) in b.iter().enumerate() {
        for oy in 0..os[1] {
            for ox in 0..os[2] {
                let mut acc = start;
                for i in 0..cg {
                    for ky in 0..c.kernel[0] {
                        for kx in 0..c.kernel[1] {
                            let y = (oy * c.stride[0] + ky * c.dilation[0]) as i64 - c.pads[0] as i64;
                            let xx = (ox * c.stride[1] + kx * c.dilation[1]) as i64 - c.pads[1] as i64;
                            if y < 0 || xx < 0 || y >= s[1] as i64 || xx >= s[2] as i64 {
                                continue;
                            }
                            let at = ((o / og) * cg + i) * s[1] * s[2] + y as usize * s[2] + xx as usize;
                            let wi = ((o * cg + i) * c.kernel[0] + ky) * c.kernel[1] + kx;
                            acc += x[at] * i64::from(w[wi]);
                        }
                    }
                }
                out.push(acc);
            }
        }
    }
    out
}

#[test]
fn conv_equals_schoolbook() {
    let mut rng = SplitMix::new(1);
    for round in 0..200 {
        let mut pick = |n: u64| (rng.next_u64() % n) as usize;
        let groups = 1 + pick(3);
        let (cin, cout) = (groups * (1 + pick(3)), groups * (1 + pick(3)));
        let mut c = conv(
            cout,
            [1 + pick(3), 1 + pick(4)],
            [1 + pick(2), 1 + pick(3)],
            [pick(3), pick(3), pick(2), pick(3)],
            groups,
        );
        c.dilation = [1 + pick(2), 1 + pick(2)];
        let shape = vec![cin, 5 + pick(6), 5 + pick(6)];
        let Ok(out) = crate::op::infer_shape(&Op::Conv2d(c.clone()), &[&shape], &[]) else { continue };
        let n: usize = shape.iter().product();
        let x: Vec<i64> = (0..n).map(|_| pick(2001) as i64 - 1000).collect();
        let w: Vec<i32> =
            (0..cout * cin / groups * c.kernel[0] * c.kernel[1]).map(|_| pick(201) as i32 - 100).collect();
        let b: Vec<i64> = (0..cout).map(|_| pick(1000) as i64).collect();
        assert_eq!(
            kernel::conv2d(&c, &x, &shape, &out, &w, &b),
            schoolbook(&c, &x, &shape, &out, &w, &b),
            "round {round}: {c:?} on {shape:?}"
        );
    }
}

fn small_model() -> (ModelGraph, Weights) {
    let nodes = vec![
        node(Op::Input, &[], &[1, 4, 4], 24, 4),
        node(Op::Conv2d(conv(2, [3, 3], [1, 1], [1; 4], 1)), &[0], &[2, 4, 4], 24, 6),
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
    let graph = ModelGraph::new(spec(nodes)).unwrap();
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
    // Floors of random shares lose 1 - 2^-bits on average, of which half a unit is added back: stochastic rounding, once the
    // graph's own addend makes up for the other half.
    assert!((sum / 1000.0 + 0.375).abs() < 0.08, "mean error {}", sum / 1000.0);
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
    assert_eq!(class, vec![kernel::arg_max(&logits) as i64]);
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
