//! The largest possible distance of an answer from the reference. The walk carries every node's declared
//! error through the largest row norm of each layer. The bound is a guarantee, far above real errors of deep
//! models.

use std::convert::Infallible;

use tacit_floats::larger;
use tacit_graph::{Interpreter, NodeId, walk};

use super::{Node, Op, RingGraph, WeightFacts, Weights, slack};
use tacit_backend_api::Numerics;

/// The bound in units of the output's last place; infinite if the answer is a class index. Without the
/// weights (at the client) public facts bound their norms.
#[must_use]
pub fn worst_case(graph: &RingGraph, weights: Option<&Weights>, numerics: &Numerics) -> f64 {
    let linear = match *numerics {
        Numerics::UlpPerTruncation { linear, .. } => slack::layer_errors(graph, linear),
        Numerics::Exact => vec![0.0; graph.nodes().len()],
        // An approximate back end computes outside rings.
        Numerics::Approx { .. } => vec![f64::INFINITY; graph.nodes().len()],
    };
    let Ok(bound) = walk(graph, &mut Bound { graph, weights, errors: Errors::from_numerics(numerics), linear });
    bound
}

/// The error that each kind of node adds, but for linear layers.
struct Errors {
    truncation: f64,
    dropped: f64,
}

impl Errors {
    fn from_numerics(numerics: &Numerics) -> Self {
        match *numerics {
            Numerics::Exact => Self { truncation: 0.0, dropped: 0.0 },
            Numerics::UlpPerTruncation { below, above, relu_drop, .. } => Self {
                truncation: f64::from(below.max(above)),
                dropped: if relu_drop > 0 { f64::from(relu_drop).exp2() } else { 0.0 },
            },
            Numerics::Approx { .. } => Self { truncation: f64::INFINITY, dropped: f64::INFINITY },
        }
    }
}

struct Bound<'a> {
    graph: &'a RingGraph,
    weights: Option<&'a Weights>,
    errors: Errors,
    /// The error of each linear layer.
    linear: Vec<f64>,
}

impl Bound<'_> {
    /// Largest sum of magnitudes in a row of weights.
    fn row_norm(&self, id: NodeId, row_len: usize, facts: WeightFacts) -> f64 {
        match self.weights.and_then(|weights| weights.get(id)) {
            Some(layer) => {
                let rows = layer.weights.chunks(row_len.max(1));
                let norms = rows.map(|row| row.iter().map(|w| f64::from(w.unsigned_abs())).sum::<f64>());
                norms.fold(0.0, larger)
            }
            None => {
                let euclidean = (row_len as f64).sqrt() * f64::from(facts.norm_bits).exp2();
                euclidean.min(row_len as f64 * f64::from(facts.magnitude_bits).exp2())
            }
        }
    }
}

impl Interpreter for Bound<'_> {
    type Node = Node;
    type Wire = f64;
    type Error = Infallible;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&f64]) -> Result<f64, Infallible> {
        let worst = inputs.iter().map(|&&e| e).fold(0.0, larger);
        // An error of zero times any norm is zero.
        let times = |factor: f64| if worst == 0.0 { 0.0 } else { worst * factor };
        let input = node.inputs.first().map(|&i| &self.graph.nodes()[i]);
        Ok(match (&node.op, input) {
            (Op::Conv2d(c), Some(input)) => {
                let row = c.geometry.row_len(input.shape[0]).expect("a checked kernel has few elements");
                times(self.row_norm(id, row, c.weights)) + self.linear[id]
            }
            (Op::Linear(l), Some(input)) => times(self.row_norm(id, input.elements(), l.weights)) + self.linear[id],
            (Op::Relu, _) => worst + self.errors.dropped,
            // At most the difference of the largest and smallest result.
            (Op::LookUp(table), _) => {
                let [low, high] = table.range().ends();
                // With lines, each of the two numbers may use either of two pieces, and pieces between them
                // add to the error.
                let pieces =
                    2.0 + table.lines.as_ref().map_or(0.0, |lines| (worst / f64::from(lines.low).exp2()).floor());
                (times(table.max_slope() as f64) + pieces * table.line_gap() as f64).min(low.abs_diff(high) as f64)
            }
            (Op::Truncate { bits }, _) => (worst * (-f64::from(*bits)).exp2()).ceil() + self.errors.truncation,
            (Op::SumPool(w), _) => worst * (w.kernel[0] * w.kernel[1]) as f64,
            (Op::Add | Op::Sub, _) => inputs.iter().map(|e| **e).sum(),
            (Op::MulConst { factors, .. }, _) => {
                times(factors.iter().map(|f| f.unsigned_abs() as f64).fold(0.0, larger))
            }
            (Op::ShiftLeft { bits }, _) => worst * f64::from(*bits).exp2(),
            (Op::ArgMax, _) if worst == 0.0 => 0.0,
            (Op::ArgMax, _) => f64::INFINITY,
            (Op::Conv2d(_) | Op::Linear(_) | Op::Input, _) => 0.0,
            (Op::MaxPool(_) | Op::AddConst { .. } | Op::Widen | Op::Concat | Op::Slice(_), _) => worst,
            (Op::Pad { .. } | Op::Reshape | Op::Transpose { .. }, _) => worst,
        })
    }
}
