//! Bounds on every tensor for all inputs that the range check accepts, by interval arithmetic through the
//! weights, channel by channel.
//!
//! No input can overflow a ring that holds such a bound. Bounds grow by the sum of magnitudes of a layer's
//! weights and are too loose for deep networks, whose rings rest on calibration.

use std::convert::Infallible;
use std::iter::repeat_n;

use tacit_floats::{larger, smaller};
use tacit_graph::{Interpreter, NodeId, walk};

use crate::{Node, Op, RingGraph, Weights, slack};

/// Smallest and largest value of a channel (the index on the first axis), in units of the last place.
pub(super) type Span = [f64; 2];

/// May narrow the spans of a node's channels before its readers use them.
pub(super) type Visit<'a> = dyn FnMut(NodeId, &mut Vec<Span>) + 'a;

/// The largest magnitude of each node's tensor, for inputs in `range` (real units). `linear_error` is the
/// largest error of a layer in units.
pub(super) fn worst_case(graph: &RingGraph, weights: &Weights, range: [f32; 2], linear_error: u32) -> Vec<f64> {
    let mut largest = Vec::with_capacity(graph.nodes().len());
    walk_bounds(graph, weights, range, linear_error, &mut |_, spans| {
        let [low, high] = join(spans.iter().copied());
        largest.push(low.abs().max(high.abs()));
    });
    largest
}

/// Passes the spans of each node's channels to `visit`.
pub(super) fn walk_bounds(graph: &RingGraph, weights: &Weights, range: [f32; 2], linear_error: u32, visit: &mut Visit) {
    let errors = slack::layer_errors(graph, linear_error);
    let Ok(_) = walk(graph, &mut Bounds { graph, weights, range, errors, visit });
}

struct Bounds<'a, 'v> {
    graph: &'a RingGraph,
    weights: &'a Weights,
    range: [f32; 2],
    /// Largest error of each layer's result, in units.
    errors: Vec<f64>,
    visit: &'a mut Visit<'v>,
}

impl Bounds<'_, '_> {
    fn input(&self, node: &Node) -> Span {
        let [low, high] = self.range.map(f64::from);
        // The range check accepts slightly more than the range; rounding adds to it.
        let slack = (high - low) * 1e-4;
        let units = f64::from(node.fixed.frac_bits).exp2();
        [(low - slack) * units - 1.0, (high + slack) * units + 1.0]
    }

    /// Bounds a linear layer with `row_len` weights per output, of which `taps` read each channel of `inputs`
    /// (the channels that output `o` reads).
    fn layer(&self, id: NodeId, row_len: usize, taps: usize, inputs: impl Fn(usize) -> Vec<Span>) -> Vec<Span> {
        let layer = self.weights.get(id).expect("a lowered model has the weights of its layers");
        // One unit more than declared, since shares are rounded as well.
        let error = self.errors[id] + 1.0;
        let outputs = layer.weights.chunks(row_len.max(1)).enumerate().map(|(o, row)| {
            let bias = layer.bias[o] as f64;
            let mut sum = [bias, bias];
            for ([low, high], weights) in inputs(o).iter().zip(row.chunks(taps.max(1))) {
                for w in weights {
                    let w = f64::from(*w);
                    sum[0] += if w > 0.0 { w * low } else { w * high };
                    sum[1] += if w > 0.0 { w * high } else { w * low };
                }
            }
            [sum[0] - error, sum[1] + error]
        });
        outputs.collect()
    }
}

fn with_zero([low, high]: Span) -> Span {
    [smaller(low, 0.0), larger(high, 0.0)]
}

pub(super) fn join(spans: impl Iterator<Item = Span>) -> Span {
    spans.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], [low, high]| [smaller(a, low), larger(b, high)])
}

fn times([low, high]: Span, factor: f64) -> Span {
    let (a, b) = (low * factor, high * factor);
    [smaller(a, b), larger(a, b)]
}

/// Channel spans of a tensor of shape `new_shape` with the elements of one of shape `old_shape`, in order.
fn reshaped(spans: &[Span], old_shape: &[usize], new_shape: &[usize]) -> Vec<Span> {
    let [old, new] = [old_shape, new_shape].map(|shape| shape[1..].iter().product::<usize>().max(1));
    (0..new_shape[0]).map(|c| join((c * new / old..=((c + 1) * new - 1) / old).map(|i| spans[i]))).collect()
}

impl Interpreter for Bounds<'_, '_> {
    type Node = Node;
    type Wire = Vec<Span>;
    type Error = Infallible;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<Span>]) -> Result<Vec<Span>, Infallible> {
        let none = Vec::new();
        let x = inputs.first().copied().unwrap_or(&none);
        let before: &[usize] = node.inputs.first().map_or(&[], |&i| &self.graph.nodes()[i].shape);
        let map_spans = |map: &dyn Fn(Span) -> Span| x.iter().map(|s| map(*s)).collect::<Vec<_>>();
        let mut result_spans = match &node.op {
            Op::Input => vec![self.input(node); node.shape[0]],
            Op::Conv2d(c) => {
                let g = &c.geometry;
                let (taps, inside) = (g.kernel[0] * g.kernel[1], before[0] / g.groups);
                self.layer(id, taps * inside, taps, |o| {
                    let group = o / (g.out_channels / g.groups);
                    let spans = &x[group * inside..(group + 1) * inside];
                    if g.pads == [0; 4] { spans.to_vec() } else { spans.iter().map(|s| with_zero(*s)).collect() }
                })
            }
            Op::Linear(_) => self.layer(id, before[0], 1, |_| x.clone()),
            Op::Relu => map_spans(&|[low, high]| [low.max(0.0), high.max(0.0)]),
            Op::SumPool(w) => {
                let count = (w.kernel[0] * w.kernel[1]) as f64;
                map_spans(&|s| times(if w.pads == [0; 4] { s } else { with_zero(s) }, count))
            }
            Op::Add => x.iter().zip(inputs[1]).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect(),
            Op::Sub => x.iter().zip(inputs[1]).map(|(a, b)| [a[0] - b[1], a[1] - b[0]]).collect(),
            Op::AddConst { value } => map_spans(&|[low, high]| [low + *value as f64, high + *value as f64]),
            Op::MulConst { factors, .. } => map_spans(&|s| join(factors.iter().map(|f| times(s, *f as f64)))),
            Op::Truncate { bits } => {
                let [down, up] = [-1.0, 1.0];
                map_spans(&|s| times(s, (-f64::from(*bits)).exp2()))
                    .iter()
                    .map(|s| [s[0].floor() + down, s[1].floor() + up])
                    .collect()
            }
            Op::ShiftLeft { bits } => map_spans(&|s| times(s, f64::from(*bits).exp2())),
            Op::MaxPool(_) | Op::Widen => x.clone(),
            Op::LookUp(table) => vec![table.range().map(|end| end as f64).ends(); x.len()],
            Op::Concat => inputs.iter().flat_map(|spans| spans.iter().copied()).collect(),
            Op::Slice(s) => (0..s.len[0]).map(|i| x[s.start[0] + i * s.step[0]]).collect(),
            Op::Pad { before, after } => {
                let flat = before[1..].iter().chain(&after[1..]).all(|p| *p == 0);
                let inside = map_spans(&|s| if flat { s } else { with_zero(s) });
                repeat_n([0.0; 2], before[0]).chain(inside).chain(repeat_n([0.0; 2], after[0])).collect()
            }
            Op::Reshape => reshaped(x, before, &node.shape),
            Op::Transpose { perm } if perm[0] == 0 => x.clone(),
            Op::Transpose { .. } => vec![join(x.iter().copied()); node.shape[0]],
            Op::ArgMax => vec![[0.0, before[0] as f64]],
        };
        (self.visit)(id, &mut result_spans);
        Ok(result_spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_cnn;
    use crate::lowering::fixtures::lowered;
    use crate::{RingOptions, reference};
    use tacit_graph::OutputMode;
    use tacit_graph::rng::SplitMix;

    #[test]
    fn accepted_inputs_stay_within_bounds() {
        let model = lowered(&tiny_cnn(OutputMode::Logits), &RingOptions::default());
        let bounds = worst_case(&model.graph, &model.weights, model.graph.spec().interface.input.range.ends(), 1);
        let mut rng = SplitMix::new(4);
        for k in 0..20 {
            let x: Vec<f32> =
                (0..64).map(|_| if k < 2 { [-1.0, 1.0][k] } else { rng.range(-1.0, 1.0).signum() as f32 }).collect();
            let ints = reference::quantize_input(&model.graph, &x).unwrap();
            let mut tap = |id: usize, node: &Node, values: &[i64]| {
                let largest = values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
                assert!(largest as f64 <= bounds[id], "{}: {largest} of {}", node.name, bounds[id]);
            };
            reference::run_tapped(&model.graph, &model.weights, &ints, &mut tap).unwrap();
        }
    }

    #[test]
    fn reshape_maps_channel_spans() {
        let spans: Vec<Span> = (0..4).map(|i| [f64::from(i), f64::from(i)]).collect();
        assert_eq!(reshaped(&spans, &[4, 3], &[12])[3..6], [[1.0, 1.0]; 3]);
        assert_eq!(reshaped(&spans, &[4, 3], &[2, 6]), [[0.0, 1.0], [2.0, 3.0]]);
        assert_eq!(reshaped(&spans, &[4, 3], &[3, 4]), [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]);
    }
}
