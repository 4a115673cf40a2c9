//! The fixed-point reference: the integers that every back end must compute (exactly, or within its declared
//! bound).
//!
//! Wires are signed integers in `[-2^(width-1), 2^(width-1))`, row major. Arithmetic wraps in the node's
//! ring, comparisons are those of signed integers, `Truncate` is the floor. `Truncation::Shares` simulates
//! the one-ulp error of the two-party protocol, in which both parties shift their shares.

#[cfg(test)]
mod tests;

use tacit_graph::rng::SplitMix;
use tacit_graph::{Interpreter, NodeId, kernel, walk};

use super::fixed::{ring_mask, to_ring, to_signed};
use super::{LayerWeights, Node, Op, RingError, RingGraph, Table, Weights};

/// The result of a truncation.
#[derive(Debug, Clone)]
pub enum Truncation {
    /// `floor(x / 2^bits)`.
    Floor,
    /// `floor(c / 2^bits) + floor(s / 2^bits)` for random shares `c + s = x + 2^(bits-1)`: the floor, one
    /// less or one more.
    ///
    /// Shifting shares loses the carry of their low bits: half a unit on average, enough to cost several bits
    /// of precision over a deep network. If one party adds the public constant `2^(bits-1)` before it shifts,
    /// the mean error is zero. With the `2^(bits-1)` that the graph adds in front of a truncation, the whole
    /// is stochastic rounding.
    Shares(SplitMix),
}

/// A callback that gets each node's tensor.
pub type NodeObserver<'a> = dyn FnMut(NodeId, &Node, &[i64]) + 'a;

/// The reference, as an interpreter of the graph.
pub struct Reference<'a> {
    graph: &'a RingGraph,
    weights: &'a Weights,
    input: &'a [i64],
    truncation: Truncation,
    /// Low bits that a ReLU leaves out of its test when shares are simulated.
    relu_drop: u32,
    /// Whether to reduce into the ring after each node. The range check measures how far a value would leave
    /// it.
    wrap: bool,
    tap: Option<&'a mut NodeObserver<'a>>,
}

/// A node whose values leave the safe range of its ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    /// The node.
    pub node: NodeId,
    /// Name of the node.
    pub name: String,
    /// Largest magnitude seen.
    pub max_abs: u64,
    /// Smallest magnitude that is not allowed: `2^(width-2)`, or `2^(width-1)` for the index of a table.
    pub limit: u64,
}

/// Runs the model on integers of the `Input` node's shape and scale. Returns the integers of the output node.
///
/// # Errors
/// If the input's length is wrong, or a layer has no weights (see `RingGraph::check_weights`).
pub fn run(graph: &RingGraph, weights: &Weights, input: &[i64]) -> Result<Vec<i64>, RingError> {
    walk(graph, &mut Reference::new(graph, weights, input)?)
}

/// As [`run`]; passes each node's tensor to `tap`, in topological order.
///
/// # Errors
/// As [`run`].
pub fn run_tapped<'a>(
    graph: &'a RingGraph,
    weights: &'a Weights,
    input: &'a [i64],
    tap: &'a mut NodeObserver<'a>,
) -> Result<Vec<i64>, RingError> {
    let mut reference = Reference::new(graph, weights, input)?;
    reference.tap = Some(tap);
    walk(graph, &mut reference)
}

/// As [`run`], with two-party truncation simulated on seeded shares. A ReLU tests the sign of shares without
/// their `relu_drop` lowest bits.
///
/// # Errors
/// As [`run`].
pub fn run_with_share_errors(
    graph: &RingGraph,
    weights: &Weights,
    input: &[i64],
    seed: u64,
    relu_drop: u32,
) -> Result<Vec<i64>, RingError> {
    let mut reference = Reference::new(graph, weights, input)?;
    reference.truncation = Truncation::Shares(SplitMix::new(seed));
    reference.relu_drop = relu_drop;
    walk(graph, &mut reference)
}

/// The largest magnitude of each node's tensor, without wrapping; 0 for a class index, which is in no ring.
///
/// # Errors
/// As [`run`].
pub fn magnitudes(graph: &RingGraph, weights: &Weights, input: &[i64]) -> Result<Vec<u64>, RingError> {
    largest(graph, weights, input, |_, v| v.unsigned_abs())
}

/// The largest `size` of each node's values, without wrapping.
fn largest(
    graph: &RingGraph,
    weights: &Weights,
    input: &[i64],
    size: impl Fn(NodeId, i64) -> u64,
) -> Result<Vec<u64>, RingError> {
    let mut magnitudes = Vec::with_capacity(graph.nodes().len());
    let mut tap = |id: NodeId, node: &Node, values: &[i64]| {
        let largest = values.iter().map(|&v| size(id, v)).max().unwrap_or(0);
        magnitudes.push(if matches!(node.op, Op::ArgMax) { 0 } else { largest });
    };
    let mut reference = Reference::new(graph, weights, input)?;
    reference.wrap = false;
    reference.tap = Some(&mut tap);
    walk(graph, &mut reference)?;
    Ok(magnitudes)
}

/// Every node with a value outside `|x| < 2^(width-2)` without wrapping, or outside its ring if the value is
/// the index of a table.
///
/// # Errors
/// As [`run`].
pub fn range_check(graph: &RingGraph, weights: &Weights, input: &[i64]) -> Result<Vec<OutOfRange>, RingError> {
    let mut reserved = vec![None; graph.nodes().len()];
    for node in graph.nodes() {
        if let Op::LookUp(table) = &node.op {
            reserved[node.inputs[0]] = Some(table.reserved());
        }
    }
    let largest_values = largest(graph, weights, input, |node, v| {
        // A table of lines reads the piece above its index, so the top `reserved()` numbers must stay unused.
        let free = if v < 0 { 0 } else { reserved[node].unwrap_or(0) };
        v.saturating_add(free).unsigned_abs()
    })?;
    let out_of_range = graph.nodes().iter().zip(largest_values).enumerate().filter_map(|(node, (n, max_abs))| {
        // The index of a table may use its whole ring.
        let limit = 1u64 << (n.fixed.width - if reserved[node].is_some() { 1 } else { 2 });
        (max_abs >= limit).then(|| OutOfRange { node, name: n.name.clone(), max_abs, limit })
    });
    Ok(out_of_range.collect())
}

/// Turns real inputs (after normalisation) into the integers of the `Input` node.
///
/// # Errors
/// If the length is wrong, or a value is not finite or outside the range that the model accepts.
pub fn quantize_input(graph: &RingGraph, input: &[f32]) -> Result<Vec<i64>, RingError> {
    graph.spec().interface.check_input(input)?;
    Ok(quantize_unchecked(graph, input))
}

/// Converts as [`quantize_input`] does, without its checks.
pub(crate) fn quantize_unchecked(graph: &RingGraph, input: &[f32]) -> Vec<i64> {
    let fixed = graph.input().fixed;
    input.iter().map(|&x| fixed.quantize(f64::from(x))).collect()
}

/// Converts the concatenated inputs of a batch as [`quantize_input`] does.
///
/// # Errors
/// For the first input that does not fit, or if there are not `batch` inputs.
pub fn quantize_inputs(graph: &RingGraph, batch: usize, inputs: &[f32]) -> Result<Vec<i64>, RingError> {
    let input_len = graph.input().elements();
    if batch == 1 {
        return quantize_input(graph, inputs);
    }
    if inputs.len() != batch * input_len {
        let what = format!("{} values for {batch} inputs of shape {:?}", inputs.len(), graph.input().shape);
        return Err(RingError::Input { what });
    }
    let integers = inputs.chunks(input_len).map(|input| quantize_input(graph, input));
    Ok(integers.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Converts integers of the output node to real outputs. A class index is unchanged.
pub fn dequantize_output(graph: &RingGraph, output: &[i64]) -> Vec<f64> {
    let fixed = graph.output().fixed;
    let is_class = matches!(graph.output().op, Op::ArgMax);
    let factor = if is_class { 1.0 } else { graph.spec().output_multiplier };
    output.iter().map(|&v| fixed.dequantize(v) * factor).collect()
}

impl<'a> Reference<'a> {
    /// A reference for one input.
    ///
    /// # Errors
    /// If the input's length is wrong.
    pub fn new(graph: &'a RingGraph, weights: &'a Weights, input: &'a [i64]) -> Result<Self, RingError> {
        if input.len() != graph.input().elements() {
            let what = format!("{} values for an input of shape {:?}", input.len(), graph.input().shape);
            return Err(RingError::Input { what });
        }
        Ok(Self { graph, weights, input, truncation: Truncation::Floor, relu_drop: 0, wrap: true, tap: None })
    }

    fn layer(&self, id: NodeId, node: &Node) -> Result<&'a LayerWeights, RingError> {
        self.weights.get(id).ok_or_else(|| node.error(id, "has no weights".into()))
    }

    fn truncate(&mut self, input: &[i64], width: u32, bits: u32) -> Vec<i64> {
        match &mut self.truncation {
            Truncation::Floor => input.iter().map(|&x| x >> bits).collect(),
            Truncation::Shares(rng) => input
                .iter()
                .map(|&x| truncate_shares(rng, x.wrapping_add((1 << bits) >> 1), width, bits) as i64)
                .collect(),
        }
    }

    fn look_up(&mut self, table: &Table, input: &[i64]) -> Vec<i64> {
        match &mut self.truncation {
            Truncation::Floor => input.iter().map(|&x| table.value_at(x)).collect(),
            Truncation::Shares(rng) => input.iter().map(|&x| table.masked_value(x, rng.next_u64())).collect(),
        }
    }

    /// ReLU of values in a ring of `width` bits.
    fn relu(&mut self, input: &[i64], width: u32) -> Vec<i64> {
        match &mut self.truncation {
            Truncation::Shares(rng) if self.relu_drop > 0 => {
                let drop = self.relu_drop.min(width.saturating_sub(4));
                let results = input.iter().map(|&x| {
                    let is_negative = to_signed(truncate_shares(rng, x, width, drop), width - drop) < 0;
                    if is_negative { 0 } else { x }
                });
                results.collect()
            }
            _ => input.iter().map(|&x| x.max(0)).collect(),
        }
    }

    fn compute(&mut self, id: NodeId, node: &Node, inputs: &[&[i64]]) -> Result<Vec<i64>, RingError> {
        let before = |k: usize| &self.graph.nodes()[node.inputs[k]];
        let input = inputs.first().copied().unwrap_or(&[]);
        Ok(match &node.op {
            Op::Input => self.input.to_vec(),
            Op::Conv2d(c) => {
                let l = self.layer(id, node)?;
                kernel::conv2d(&c.geometry, input, &before(0).shape, &node.shape, &l.weights, &l.bias)
            }
            Op::Linear(_) => {
                let l = self.layer(id, node)?;
                kernel::dense(input, &l.weights, &l.bias)
            }
            Op::Relu => self.relu(input, before(0).fixed.width),
            Op::MaxPool(w) => kernel::pool(w, input, &before(0).shape, &node.shape, tacit_floats::larger),
            Op::SumPool(w) => kernel::pool(w, input, &before(0).shape, &node.shape, i64::wrapping_add),
            Op::Add => input.iter().zip(inputs[1]).map(|(a, b)| a.wrapping_add(*b)).collect(),
            Op::Sub => input.iter().zip(inputs[1]).map(|(a, b)| a.wrapping_sub(*b)).collect(),
            Op::AddConst { value } => input.iter().map(|x| x.wrapping_add(*value)).collect(),
            Op::MulConst { factors, .. } => kernel::scale_positions(input, factors, i64::wrapping_mul),
            Op::Truncate { bits } => {
                let width = before(0).fixed.width;
                self.truncate(input, width, *bits)
            }
            Op::ShiftLeft { bits } => input.iter().map(|x| x.wrapping_shl(*bits)).collect(),
            Op::Widen | Op::Reshape => input.to_vec(),
            Op::Transpose { perm } => kernel::transpose(perm, input, &before(0).shape),
            Op::Concat => inputs.concat(),
            Op::Slice(s) => kernel::slice(s, input, &before(0).shape),
            Op::Pad { before: front, .. } => kernel::pad(front, input, &before(0).shape, &node.shape),
            Op::LookUp(table) => self.look_up(table, input),
            Op::ArgMax => vec![tacit_floats::first_largest(input).expect("a checked tensor has elements") as i64],
        })
    }
}

/// The sum of random shares of x, each without its `bits` lowest bits.
fn truncate_shares(rng: &mut SplitMix, x: i64, width: u32, bits: u32) -> u64 {
    let client = rng.next_u64() & ring_mask(width);
    let server = to_ring(x.wrapping_sub(client as i64), width);
    (client >> bits) + (server >> bits)
}

impl Interpreter for Reference<'_> {
    type Node = Node;
    type Wire = Vec<i64>;
    type Error = RingError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<i64>]) -> Result<Vec<i64>, RingError> {
        let inputs: Vec<&[i64]> = inputs.iter().map(|w| w.as_slice()).collect();
        let mut values = self.compute(id, node, &inputs)?;
        // A class index is in no ring.
        if self.wrap && !matches!(node.op, Op::ArgMax) {
            let width = node.fixed.width;
            values.iter_mut().for_each(|v| *v = to_signed(*v as u64, width));
        }
        if let Some(tap) = &mut self.tap {
            tap(id, node, &values);
        }
        Ok(values)
    }
}
