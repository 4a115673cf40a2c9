//! The typed model graph: checked when built, topologically sorted, immutable.

use serde::{Deserialize, Serialize};

use crate::fixed::FixedPoint;
use crate::op::{Conv2d, Op, checked_elements, infer_shape};
use crate::{GraphError, MAX_ELEMENTS, MAX_NODES, MAX_TOTAL_ELEMENTS, MAX_WINDOW_SIDE};

/// Index of a node in its graph; the node's inputs have smaller indices.
pub type NodeId = usize;

/// One node: an operation and the tensor it makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name for reports and errors (from the ONNX file where there is one).
    pub name: String,
    /// The operation.
    pub op: Op,
    /// Nodes whose tensors are its inputs.
    pub inputs: Vec<NodeId>,
    /// Shape of its tensor: `[C, H, W]` or `[F]`.
    pub shape: Vec<usize>,
    /// Ring and scale of its tensor.
    pub fixed: FixedPoint,
}

impl Node {
    /// Number of elements of the node's tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What the client learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// All values of the last tensor.
    Logits,
    /// Only the index of the largest value (the graph then ends with `ArgMax`).
    Top1,
}

/// How a client turns its raw input into the integers of the `Input` node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Subtracted per channel before division (empty: none). Applied by the client.
    pub mean: Vec<f32>,
    /// Divisor per channel (empty: none). Applied by the client.
    pub std: Vec<f32>,
    /// Multiplied onto raw 8-bit pixels first, e.g. 1/255.
    pub pixel_scale: f32,
    /// Smallest and largest value accepted after normalisation; others are refused, since they could leave the ring.
    pub range: [f32; 2],
}

/// The public part of a model: all that a client ever receives. Serialisable; becomes a `ModelGraph` after checking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Name for people.
    pub name: String,
    /// Random identity of this import; part of the digest that binds material to the model.
    pub model_id: [u8; 16],
    /// Nodes in topological order; the first is `Input`.
    pub nodes: Vec<Node>,
    /// The node whose tensor is the result.
    pub output: NodeId,
    /// What is revealed.
    pub output_mode: OutputMode,
    /// Public factor on the dequantised output (e.g. the 1/k of a final average pool).
    pub output_multiplier: f64,
    /// The ONNX file ended with a softmax, which is left to the client.
    pub softmax_by_client: bool,
    /// Input normalisation.
    pub input: InputSpec,
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
    /// The weights of a node, if it has any.
    pub fn get(&self, node: NodeId) -> Option<&LayerWeights> {
        self.layers.binary_search_by_key(&node, |l| l.node).ok().map(|i| &self.layers[i])
    }
}

/// A checked model graph.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelGraph {
    spec: ModelSpec,
}

impl ModelGraph {
    /// Checks a specification: order, arity, shapes, rings and scales, sizes.
    ///
    /// # Errors
    /// Names the first node that is wrong and says what is wrong with it.
    pub fn new(spec: ModelSpec) -> Result<Self, GraphError> {
        if spec.nodes.is_empty() || spec.nodes.len() > MAX_NODES {
            return Err(GraphError::NodeCount { count: spec.nodes.len() });
        }
        for (id, node) in spec.nodes.iter().enumerate() {
            check_node(&spec.nodes, id, node).map_err(|what| GraphError::Node {
                id,
                name: node.name.clone(),
                op: node.op.name(),
                what,
            })?;
        }
        // Each is at most MAX_ELEMENTS and there are at most MAX_NODES: no overflow.
        if spec.nodes.iter().map(Node::elements).sum::<usize>() > MAX_TOTAL_ELEMENTS {
            return Err(GraphError::TooLarge);
        }
        if spec.output >= spec.nodes.len() {
            return Err(GraphError::Output { output: spec.output, count: spec.nodes.len() });
        }
        let ends_with_argmax = matches!(spec.nodes[spec.output].op, Op::ArgMax);
        if ends_with_argmax != (spec.output_mode == OutputMode::Top1) {
            return Err(GraphError::OutputMode);
        }
        Ok(Self { spec })
    }

    /// The specification it was built from.
    pub fn spec(&self) -> &ModelSpec {
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

    /// The result's node.
    pub fn output(&self) -> &Node {
        &self.spec.nodes[self.spec.output]
    }

    /// For each node the number of nodes that read it (the result counts as read once more).
    pub fn use_counts(&self) -> Vec<usize> {
        let mut uses = vec![0; self.spec.nodes.len()];
        for node in &self.spec.nodes {
            for &i in &node.inputs {
                uses[i] += 1;
            }
        }
        uses[self.spec.output] += 1;
        uses
    }

    /// Checks that weights fit the graph: one entry per linear node, lengths, magnitudes and norms as the public facts say.
    ///
    /// # Errors
    /// Names the node whose weights are missing or do not fit.
    pub fn check_weights(&self, weights: &Weights) -> Result<(), GraphError> {
        let mut seen = 0;
        for (id, node) in self.spec.nodes.iter().enumerate() {
            let (rows, row_len, facts) = match &node.op {
                Op::Conv2d(c) => {
                    let channels = self.spec.nodes[node.inputs[0]].shape[0] / c.groups;
                    let window = channels.checked_mul(c.kernel[0]).and_then(|n| n.checked_mul(c.kernel[1]));
                    (c.out_channels, window.unwrap_or(usize::MAX), c.weights)
                }
                Op::Linear(l) => (l.out_features, self.spec.nodes[node.inputs[0]].elements(), l.weights),
                _ => continue,
            };
            seen += 1;
            let fail = |what: String| GraphError::Node { id, name: node.name.clone(), op: node.op.name(), what };
            let layer = weights.get(id).ok_or_else(|| fail("has no weights".into()))?;
            if Some(layer.weights.len()) != rows.checked_mul(row_len) || layer.bias.len() != rows {
                return Err(fail(format!(
                    "{} weights and {} biases do not fit",
                    layer.weights.len(),
                    layer.bias.len()
                )));
            }
            for row in layer.weights.chunks(row_len.max(1)) {
                let norm2: f64 = row.iter().map(|&w| f64::from(w) * f64::from(w)).sum();
                let largest = row.iter().map(|w| w.unsigned_abs()).max().unwrap_or(0);
                if u64::from(largest) >= 1 << facts.magnitude_bits || norm2.sqrt() > (facts.norm_bits as f64).exp2() {
                    return Err(fail("weights larger than the public facts state".into()));
                }
            }
        }
        if seen != weights.layers.len() {
            return Err(GraphError::WeightCount { found: weights.layers.len(), needed: seen });
        }
        Ok(())
    }
}

fn check_node(nodes: &[Node], id: NodeId, node: &Node) -> Result<(), String> {
    if (id == 0) != matches!(node.op, Op::Input) {
        return Err("the input must be the first node and the only input".into());
    }
    let (least, most) = node.op.arity();
    if node.inputs.len() < least || node.inputs.len() > most {
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
    match checked_elements(&shape) {
        Some(n) if (1..=MAX_ELEMENTS).contains(&n) => {}
        _ => {
            return Err(format!("shape {shape:?} is empty or has more than {MAX_ELEMENTS} elements"));
        }
    }
    check_windows(node)?;
    check_fixed(nodes, node)
}

/// Bounds what a plan allocates per window: a stranger's graph may state any kernel.
fn check_windows(node: &Node) -> Result<(), String> {
    let (kernel, pads) = match &node.op {
        Op::Conv2d(c) => (c.kernel, c.pads),
        Op::MaxPool(w) | Op::SumPool(w) => (w.kernel, w.pads),
        _ => return Ok(()),
    };
    let fits = |x: usize| x <= MAX_WINDOW_SIDE;
    if !kernel.into_iter().all(fits)
        || !pads.into_iter().all(fits)
        || node.elements() * (kernel[0] + kernel[1]) > MAX_TOTAL_ELEMENTS
    {
        return Err(format!(
            "a window of {kernel:?} with padding {pads:?} is larger than is supported ({MAX_WINDOW_SIDE} a side)"
        ));
    }
    Ok(())
}

/// Bounds that keep all later arithmetic on shapes and scales free of overflow.
fn check_parameters(op: &Op) -> Result<(), String> {
    let facts = match op {
        Op::Conv2d(c) => {
            if c.kernel.iter().chain(&c.stride).chain(&c.dilation).chain(&c.pads).any(|&v| v > MAX_ELEMENTS) {
                return Err("kernel, stride, dilation or padding is too large".into());
            }
            c.weights
        }
        Op::Linear(l) => l.weights,
        Op::Truncate { bits } | Op::ShiftLeft { bits } if *bits >= 48 => {
            return Err(format!("a shift by {bits} bits is not supported"));
        }
        Op::MulConst { frac_bits, .. } if *frac_bits >= 48 => {
            return Err(format!("a factor with {frac_bits} fraction bits is not supported"));
        }
        _ => return Ok(()),
    };
    if facts.frac_bits >= 48 || facts.magnitude_bits > 31 || facts.norm_bits > 60 {
        return Err(format!("weight facts are out of range: {facts:?}"));
    }
    Ok(())
}

fn check_fixed(nodes: &[Node], node: &Node) -> Result<(), String> {
    let Some(first) = node.inputs.first().map(|&i| nodes[i].fixed) else {
        return Ok(());
    };
    let (width, frac) = (node.fixed.width, node.fixed.frac_bits);
    for &i in &node.inputs {
        if nodes[i].fixed.frac_bits != first.frac_bits {
            return Err("inputs have different scales".into());
        }
    }
    let narrowest = node.inputs.iter().map(|&i| nodes[i].fixed.width).min().unwrap_or(width);
    let (width_ok, wanted_frac) = match &node.op {
        Op::Input => (true, frac),
        Op::Conv2d(Conv2d { weights, .. }) => (width <= narrowest, first.frac_bits + weights.frac_bits),
        Op::Linear(l) => (width <= narrowest, first.frac_bits + l.weights.frac_bits),
        Op::Truncate { bits } => {
            (width + bits == first.width && *bits <= first.frac_bits, first.frac_bits.wrapping_sub(*bits))
        }
        Op::ShiftLeft { bits } => (width <= narrowest && *bits < 48, first.frac_bits + bits),
        Op::MulConst { frac_bits, .. } => (width <= narrowest && *frac_bits < 48, first.frac_bits + frac_bits),
        Op::Relu | Op::Widen => (width >= first.width, first.frac_bits),
        Op::MaxPool(_) => (width == first.width, first.frac_bits),
        Op::ArgMax => (true, 0),
        _ => (width <= narrowest, first.frac_bits),
    };
    if !width_ok {
        return Err(format!("a ring of {width} bits does not follow from inputs of at least {narrowest} bits"));
    }
    if frac != wanted_frac {
        return Err(format!("states {frac} fraction bits, but its inputs give {wanted_frac}"));
    }
    Ok(())
}
