//! The fixed-point graph: checked when built, topologically sorted and immutable.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tacit_graph::geometry::{check_size, check_window};
use tacit_graph::{Interface, MAX_NODES, MAX_TOTAL_ELEMENTS, NodeId, OutputMode, SortedGraph};

use super::RingError;
use super::fixed::{FixedPoint, MAX_FRAC_BITS, to_signed};
use super::op::{Conv2d, MAX_MAGNITUDE_BITS, MAX_NORM_BITS, Op, WeightFacts, infer_shape};

/// One node: an operation and its result tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name for reports and errors.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub name: String,
    /// The operation.
    pub op: Op,
    /// Nodes whose tensors the operation reads.
    pub inputs: Vec<NodeId>,
    /// Shape of the result: `[C, H, W]` or `[F]`.
    pub shape: Vec<usize>,
    /// Ring and scale of the result.
    pub fixed: FixedPoint,
}

impl Node {
    /// Number of elements of the node's tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The error of a node that does not fit.
    pub(super) fn error(&self, id: NodeId, what: String) -> RingError {
        RingError::Node { id, name: self.name.clone(), op: self.op.name(), what }
    }
}

/// The public part of a lowered model: all that a client receives. A checked one is a [`RingGraph`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingSpec {
    /// Random identity of the import; part of the digest that binds material.
    pub model_id: [u8; 16],
    /// Inputs and outputs.
    pub interface: Interface,
    /// Nodes in topological order; the first is `Input`.
    pub nodes: Vec<Node>,
    /// The node whose tensor is the result; an `ArgMax` exactly in output mode top-1.
    pub output: NodeId,
    /// Positive public factor on the dequantised output (e.g. the 1/k of a final average pool).
    pub output_multiplier: f64,
}

/// The private part: quantised weights by node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Weights {
    /// One entry for each `Conv2d` and `Linear` node, in node order.
    pub layers: Vec<LayerWeights>,
}

/// Weights of one linear node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerWeights {
    /// The node.
    pub node: NodeId,
    /// `[out, in / groups, kh, kw]` or `[out, in]`, row major.
    pub weights: Vec<i32>,
    /// `[out]`, at the output's scale.
    pub bias: Vec<i64>,
}

impl Weights {
    /// The weights of a node, if any.
    pub fn get(&self, node: NodeId) -> Option<&LayerWeights> {
        self.layers.binary_search_by_key(&node, |l| l.node).ok().map(|i| &self.layers[i])
    }
}

/// A checked fixed-point graph.
#[derive(Debug, Clone, PartialEq)]
pub struct RingGraph {
    spec: RingSpec,
}

impl RingGraph {
    /// Checks a specification: order, arity, shapes, rings and scales, sizes.
    ///
    /// # Errors
    /// Names the first faulty node and its fault.
    pub fn new(spec: RingSpec) -> Result<Self, RingError> {
        if spec.nodes.is_empty() || spec.nodes.len() > MAX_NODES {
            return Err(RingError::NodeCount { count: spec.nodes.len() });
        }
        for (id, node) in spec.nodes.iter().enumerate() {
            check_node(&spec.nodes, id, node).map_err(|what| node.error(id, what))?;
        }
        // No overflow: at most MAX_NODES tensors of at most MAX_ELEMENTS elements.
        if spec.nodes.iter().map(Node::elements).sum::<usize>() > MAX_TOTAL_ELEMENTS {
            return Err(RingError::TooLarge);
        }
        if spec.output >= spec.nodes.len() {
            return Err(RingError::Output { output: spec.output, count: spec.nodes.len() });
        }
        check_interface(&spec)?;
        Ok(Self { spec })
    }

    /// The specification that the graph was built from.
    pub fn spec(&self) -> &RingSpec {
        &self.spec
    }

    /// Nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.spec.nodes
    }

    /// The input node's tensor.
    pub fn input(&self) -> &Node {
        &self.spec.nodes[0]
    }

    /// The node of the result.
    pub fn output(&self) -> &Node {
        &self.spec.nodes[self.spec.output]
    }

    /// The real number of one unit in an answer's last place.
    pub fn output_unit(&self) -> f64 {
        match self.output().op {
            Op::ArgMax => 1.0,
            _ => self.output().fixed.dequantize(1) * self.spec.output_multiplier,
        }
    }

    /// Multiplications of one inference in linear layers.
    pub fn macs(&self) -> u64 {
        self.linear_nodes()
            .map(|(id, (_, row))| (self.spec.nodes[id].elements() as u64).saturating_mul(row as u64))
            .fold(0, u64::saturating_add)
    }

    /// Number of weights of linear layers.
    pub fn weights(&self) -> u64 {
        self.linear_nodes()
            .map(|(_, (rows, row))| (rows as u64).saturating_mul(row as u64))
            .fold(0, u64::saturating_add)
    }

    /// Describes the nodes, for users and scripts.
    pub fn describe(&self) -> Vec<serde_json::Value> {
        let nodes = self.spec.nodes.iter().map(|node| {
            serde_json::json!({
                "kind": node.op.name(), "name": node.name, "inputs": node.inputs, "shape": node.shape,
                "fixed": node.fixed, "op": node.op,
            })
        });
        nodes.collect()
    }

    /// Linear nodes with number and length of their weight rows (one for each output channel or feature).
    pub(super) fn linear_nodes(&self) -> impl Iterator<Item = (NodeId, (usize, usize))> {
        self.spec.nodes.iter().enumerate().filter_map(|(id, node)| {
            let input = &self.spec.nodes[*node.inputs.first()?];
            match &node.op {
                Op::Conv2d(c) => {
                    let row = c.geometry.row_len(input.shape[0]).expect("a checked kernel has few elements");
                    Some((id, (c.geometry.out_channels, row)))
                }
                Op::Linear(l) => Some((id, (l.out_features, input.elements()))),
                _ => None,
            }
        })
    }

    /// Checks that there is one entry per linear node, with the lengths, magnitudes and norms that the public
    /// facts state.
    ///
    /// # Errors
    /// Names the node whose weights are missing or do not fit.
    pub fn check_weights(&self, weights: &Weights) -> Result<(), RingError> {
        let mut layer_count = 0;
        for (id, (rows, row_len)) in self.linear_nodes() {
            layer_count += 1;
            let node = &self.spec.nodes[id];
            let layer = weights.get(id).ok_or_else(|| node.error(id, "has no weights".into()))?;
            let (weight_count, bias_count) = (layer.weights.len(), layer.bias.len());
            if Some(weight_count) != rows.checked_mul(row_len) || bias_count != rows {
                return Err(node.error(id, format!("{weight_count} weights and {bias_count} biases do not fit")));
            }
            let facts = node.op.facts().expect("linear nodes state facts");
            if !layer.weights.par_chunks(row_len.max(1)).all(|row| fits(row, &facts)) {
                return Err(node.error(id, "weights larger than the public facts state".into()));
            }
        }
        if layer_count != weights.layers.len() {
            return Err(RingError::WeightCount { found: weights.layers.len(), needed: layer_count });
        }
        Ok(())
    }
}

impl SortedGraph for RingGraph {
    type Node = Node;

    fn nodes(&self) -> &[Node] {
        &self.spec.nodes
    }

    fn inputs(node: &Node) -> &[NodeId] {
        &node.inputs
    }

    fn result(&self) -> NodeId {
        self.spec.output
    }
}

/// Whether a row of weights is as small as the facts state.
fn fits(row: &[i32], facts: &WeightFacts) -> bool {
    let norm2: f64 = row.iter().map(|&w| f64::from(w) * f64::from(w)).sum();
    let largest = row.iter().fold(0, |m, w| m.max(w.unsigned_abs()));
    u64::from(largest) < 1 << facts.magnitude_bits && norm2.sqrt() <= f64::from(facts.norm_bits).exp2()
}

fn check_interface(spec: &RingSpec) -> Result<(), RingError> {
    spec.interface.check()?;
    let output = &spec.nodes[spec.output];
    let is_top1 = spec.interface.output_mode == OutputMode::Top1;
    let rules = [
        (matches!(output.op, Op::ArgMax) == is_top1, "output mode"),
        (spec.interface.input_shape == spec.nodes[0].shape, "input shape"),
        (spec.interface.output_shape == output.shape, "output shape"),
        (spec.output_multiplier.is_finite() && spec.output_multiplier > 0.0, "output factor"),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(RingError::Interface { what }),
        None => Ok(()),
    }
}

fn check_node(nodes: &[Node], id: NodeId, node: &Node) -> Result<(), String> {
    if (id == 0) != matches!(node.op, Op::Input) {
        return Err("the input must be the first node and the only input".into());
    }
    let (min_inputs, max_inputs) = node.op.arity();
    if node.inputs.len() < min_inputs || node.inputs.len() > max_inputs {
        return Err(format!("has {} inputs", node.inputs.len()));
    }
    if node.inputs.iter().any(|&i| i >= id) {
        return Err("reads a node that comes later: the graph is not sorted or has a cycle".into());
    }
    node.fixed.check().map_err(|e| e.to_string())?;
    check_parameters(&node.op)?;
    let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| nodes[i].shape.as_slice()).collect();
    let shape = infer_shape(&node.op, &shapes, &node.shape)?;
    if shape != node.shape {
        return Err(format!("states shape {:?}, but its inputs give {shape:?}", node.shape));
    }
    check_size(&shape)?;
    match &node.op {
        Op::Conv2d(c) => check_window(c.geometry.kernel, c.geometry.pads, node.elements())?,
        Op::MaxPool(w) | Op::SumPool(w) => check_window(w.kernel, w.pads, node.elements())?,
        _ => {}
    }
    check_fixed(nodes, node)
}

/// Checks bounds that keep later arithmetic on shapes and scales free of overflow.
fn check_parameters(op: &Op) -> Result<(), String> {
    match op {
        Op::Conv2d(c) => c.geometry.check()?,
        Op::Truncate { bits } | Op::ShiftLeft { bits } if *bits > MAX_FRAC_BITS => {
            return Err(format!("a shift by {bits} bits is not supported"));
        }
        Op::MulConst { frac_bits, .. } if *frac_bits > MAX_FRAC_BITS => {
            return Err(format!("a factor with {frac_bits} fraction bits is not supported"));
        }
        _ => {}
    }
    match op.facts() {
        Some(f)
            if f.frac_bits > MAX_FRAC_BITS || f.magnitude_bits > MAX_MAGNITUDE_BITS || f.norm_bits > MAX_NORM_BITS =>
        {
            Err(format!("weight facts are out of range: {f:?}"))
        }
        _ => Ok(()),
    }
}

fn check_fixed(nodes: &[Node], node: &Node) -> Result<(), String> {
    let Some(input_fixed) = node.inputs.first().map(|&i| nodes[i].fixed) else {
        return Ok(());
    };
    let (width, frac) = (node.fixed.width, node.fixed.frac_bits);
    if node.inputs.iter().any(|&i| nodes[i].fixed.frac_bits != input_fixed.frac_bits) {
        return Err("inputs have different scales".into());
    }
    let narrowest = node.inputs.iter().map(|&i| nodes[i].fixed.width).min().unwrap_or(width);
    let (width_ok, wanted_frac) = match &node.op {
        Op::Input => (true, frac),
        Op::Conv2d(Conv2d { weights, .. }) => (width <= narrowest, input_fixed.frac_bits + weights.frac_bits),
        Op::Linear(l) => (width <= narrowest, input_fixed.frac_bits + l.weights.frac_bits),
        Op::Truncate { bits } => (
            width + bits == input_fixed.width && *bits <= input_fixed.frac_bits,
            input_fixed.frac_bits.wrapping_sub(*bits),
        ),
        Op::ShiftLeft { bits } => (width <= narrowest && *bits < 48, input_fixed.frac_bits + bits),
        Op::MulConst { frac_bits, .. } => (width <= narrowest && *frac_bits < 48, input_fixed.frac_bits + frac_bits),
        Op::Relu | Op::Widen => (width >= input_fixed.width, input_fixed.frac_bits),
        Op::MaxPool(_) => (width == input_fixed.width, input_fixed.frac_bits),
        Op::ArgMax => (true, 0),
        Op::LookUp(table) => {
            let [low, high] = table.range().map(|end| to_signed(end as u64, width) == end).ends();
            (input_fixed.width == table.bits() && low && high, table.frac_bits)
        }
        _ => (width <= narrowest, input_fixed.frac_bits),
    };
    if !width_ok {
        return Err(format!("a ring of {width} bits does not follow from inputs of at least {narrowest} bits"));
    }
    if frac != wanted_frac {
        return Err(format!("states {frac} fraction bits, but its inputs give {wanted_frac}"));
    }
    Ok(())
}
