//! The network of the ONNX file in real numbers. Calibration runs it, rewrites change it, and back
//! ends lower it and are compared with it. Shapes have no batch: `[C, H, W]`, `[C, L]` or `[F]`.

pub mod run;

use std::ops::RangeInclusive;

use crate::function::Function;
use crate::geometry::{self, ConvGeometry, Slice, Window};
use crate::walk::topological_order;
use crate::{GraphError, MAX_NODES};

/// Largest number of multiplications of one inference (VGG-16 has 2^34). Bounds how long a hostile
/// file can occupy the importer.
pub const MAX_MACS: u64 = 1 << 37;
/// Largest number of elements of all tensors of one inference together.
pub const MAX_ACTIVATIONS: usize = 1 << 30;

/// A real-valued operation.
#[derive(Debug, Clone, PartialEq)]
pub enum FloatOp {
    /// The network's input.
    Input,
    /// Convolution; weights `[out, in / groups, kh, kw]`, bias `[out]`.
    Conv {
        /// Kernel, stride, padding, groups.
        geometry: ConvGeometry,
        /// Weights.
        weights: Vec<f32>,
        /// Bias.
        bias: Vec<f32>,
    },
    /// Fully connected; weights `[out, in]`, bias `[out]`.
    Dense {
        /// Weights.
        weights: Vec<f32>,
        /// Bias.
        bias: Vec<f32>,
    },
    /// `scale[c] * x + shift[c]`, `c` the index on the first axis.
    Affine {
        /// Factor by channel.
        scale: Vec<f32>,
        /// Addend by channel.
        shift: Vec<f32>,
    },
    /// Multiplies each position of every channel by its own public factor (averages over windows
    /// that padding cuts).
    PositionScale(Vec<f32>),
    /// `max(x, 0)`.
    Relu,
    /// A function of each element.
    Function(Function),
    /// Maximum over windows.
    MaxPool(Window),
    /// Sum over windows.
    SumPool(Window),
    /// Sum of two tensors.
    Add,
    /// First minus second.
    Sub,
    /// Product of two tensors, element by element.
    Mul,
    /// Joined along the first axis.
    Concat,
    /// Strided slice.
    Slice(Slice),
    /// Zero padding by axis.
    Pad {
        /// In front.
        before: Vec<usize>,
        /// Behind.
        after: Vec<usize>,
    },
    /// Same elements, other shape.
    Reshape,
    /// Axes in another order: axis `i` of the result is axis `perm[i]` of the input.
    Transpose(Vec<usize>),
    /// Index of the largest element.
    ArgMax,
}

impl FloatOp {
    /// Whether the operation has private weights of its own.
    pub fn is_linear(&self) -> bool {
        matches!(self, Self::Conv { .. } | Self::Dense { .. })
    }

    /// Name used in errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::Conv { .. } => "Conv",
            Self::Dense { .. } => "Dense",
            Self::Affine { .. } => "Affine",
            Self::PositionScale(_) => "PositionScale",
            Self::Relu => "Relu",
            Self::Function(function) => function.name(),
            Self::MaxPool(_) => "MaxPool",
            Self::SumPool(_) => "SumPool",
            Self::Add => "Add",
            Self::Sub => "Sub",
            Self::Mul => "Mul",
            Self::Concat => "Concat",
            Self::Slice(_) => "Slice",
            Self::Pad { .. } => "Pad",
            Self::Reshape => "Reshape",
            Self::Transpose(_) => "Transpose",
            Self::ArgMax => "ArgMax",
        }
    }

    /// The numbers of the operation: weights, then bias; factors, then addends.
    pub fn numbers(&self) -> [&[f32]; 2] {
        match self {
            Self::Conv { weights, bias, .. } | Self::Dense { weights, bias } => [weights, bias],
            Self::Affine { scale, shift } => [scale, shift],
            Self::PositionScale(factors) => [factors, &[]],
            _ => [&[], &[]],
        }
    }

    /// How many inputs the operation may have.
    pub fn arity(&self) -> RangeInclusive<usize> {
        match self {
            Self::Input => 0..=0,
            Self::Add | Self::Sub | Self::Mul => 2..=2,
            Self::Concat => 1..=usize::MAX,
            _ => 1..=1,
        }
    }

    /// Returns the shape of the result on inputs of the given shapes; only `Input` and `Reshape`
    /// need `declared`.
    fn infer_shape(&self, inputs: &[&[usize]], declared: &[usize]) -> Result<Vec<usize>, String> {
        let shape = inputs.first().copied().unwrap_or(&[]);
        match self {
            Self::Input => Ok(declared.to_vec()),
            Self::Conv { geometry, .. } => geometry::conv_shape(geometry, shape),
            Self::Dense { bias, .. } => geometry::dense_shape(bias.len(), shape),
            Self::Affine { .. } | Self::PositionScale(_) | Self::Relu | Self::Function(_) => Ok(shape.to_vec()),
            Self::MaxPool(w) | Self::SumPool(w) => geometry::pool_shape(w, shape),
            Self::Add | Self::Sub | Self::Mul => geometry::pair_shape(inputs),
            Self::Concat => geometry::concat_shape(inputs),
            Self::Slice(s) => geometry::slice_shape(s, shape),
            Self::Pad { before, after } => geometry::pad_shape(before, after, shape),
            Self::Reshape => geometry::reshape_shape(declared, shape),
            Self::Transpose(perm) => geometry::transpose_shape(perm, shape),
            Self::ArgMax => geometry::arg_max_shape(shape),
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatNode {
    /// Name from the file.
    pub name: String,
    /// Operation.
    pub op: FloatOp,
    /// Nodes whose tensors the operation reads.
    pub inputs: Vec<usize>,
    /// Shape of the result.
    pub shape: Vec<usize>,
}

impl FloatNode {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A network. Node 0 is the input; `output` is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatGraph {
    /// Nodes; sorted topologically after `sort`.
    pub nodes: Vec<FloatNode>,
    /// The result.
    pub output: usize,
}

impl FloatGraph {
    /// A graph with only an input.
    ///
    /// # Errors
    /// If the shape is empty or too large.
    pub fn new(name: &str, shape: Vec<usize>) -> Result<Self, String> {
        geometry::check_size(&shape)?;
        let node = FloatNode { name: name.into(), op: FloatOp::Input, inputs: vec![], shape };
        Ok(Self { nodes: vec![node], output: 0 })
    }

    /// Adds a node and returns its index; only `Reshape` needs `shape`.
    ///
    /// # Errors
    /// If the shapes do not fit, or the tensor is too large.
    pub fn push(&mut self, name: &str, op: FloatOp, inputs: &[usize], shape: &[usize]) -> Result<usize, String> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|&i| self.nodes[i].shape.as_slice()).collect();
        let shape = checked_shape(&op, &shapes, shape)?;
        if self.nodes.len() >= MAX_NODES {
            return Err(format!("more than {MAX_NODES} nodes"));
        }
        self.nodes.push(FloatNode { name: name.into(), op, inputs: inputs.to_vec(), shape });
        Ok(self.nodes.len() - 1)
    }

    /// Returns the readers of each node.
    pub fn users(&self) -> Vec<Vec<usize>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            for &i in &node.inputs {
                users[i].push(id);
            }
        }
        users
    }

    /// Returns the group of each node, named by one of its members. A node joins the group of its
    /// inputs if `joins` accepts its operation.
    pub fn groups(&self, joins: impl Fn(&FloatOp) -> bool) -> Vec<usize> {
        fn root(group: &mut [usize], mut i: usize) -> usize {
            while group[i] != i {
                group[i] = group[group[i]];
                i = group[i];
            }
            i
        }
        let mut group: Vec<usize> = (0..self.nodes.len()).collect();
        for (id, node) in self.nodes.iter().enumerate().filter(|(_, n)| joins(&n.op)) {
            for &i in &node.inputs {
                let (a, b) = (root(&mut group, i), root(&mut group, id));
                group[a] = b;
            }
        }
        (0..group.len()).map(|id| root(&mut group, id)).collect()
    }

    /// Removes nodes that the result does not need and sorts the others topologically (stable if
    /// possible). The input always stays.
    ///
    /// # Errors
    /// If there is a cycle.
    pub fn sort(&mut self) -> Result<(), GraphError> {
        let mut needed = vec![false; self.nodes.len()];
        let mut todo = vec![self.output];
        while let Some(id) = todo.pop() {
            if !std::mem::replace(&mut needed[id], true) {
                todo.extend(&self.nodes[id].inputs);
            }
        }
        needed[0] = true;
        let unread = self.nodes.iter().map(|n| n.inputs.len()).collect();
        let order = topological_order(&needed, &self.users(), unread);
        let mut new_id = vec![usize::MAX; self.nodes.len()];
        order.iter().enumerate().for_each(|(new, &old)| new_id[old] = new);
        if order.len() != needed.iter().filter(|&&n| n).count() {
            return Err(GraphError::OnnxFile { what: "the graph has a cycle".into() });
        }
        let mut old: Vec<Option<FloatNode>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        for &id in &order {
            if let Some(mut node) = old[id].take() {
                node.inputs.iter_mut().for_each(|i| *i = new_id[*i]);
                self.nodes.push(node);
            }
        }
        self.output = new_id[self.output];
        Ok(())
    }

    /// Number of multiplications of a node.
    pub fn macs_of(&self, node: &FloatNode) -> u64 {
        match &node.op {
            FloatOp::Conv { geometry, weights, .. } => {
                (node.elements() as u64).saturating_mul((weights.len() / geometry.out_channels.max(1)) as u64)
            }
            FloatOp::Dense { weights, .. } => weights.len() as u64,
            FloatOp::MaxPool(w) | FloatOp::SumPool(w) => {
                (node.elements() as u64).saturating_mul((w.kernel[0] as u64).saturating_mul(w.kernel[1] as u64))
            }
            _ => 0,
        }
    }

    /// Number of multiplications of one inference (pooling windows included).
    pub fn macs(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, n| sum.saturating_add(self.macs_of(n)))
    }

    /// Returns how many inferences take at most `work` multiplications.
    pub fn runs_within(&self, work: u64) -> usize {
        usize::try_from(work / self.macs().max(1)).unwrap_or(usize::MAX)
    }

    /// Refuses networks that are too large to evaluate.
    ///
    /// # Errors
    /// If the network exceeds [`MAX_MACS`] or [`MAX_ACTIVATIONS`].
    pub fn check_work(&self) -> Result<(), GraphError> {
        let elements = self.nodes.iter().fold(0usize, |n, x| n.saturating_add(x.elements()));
        if self.macs() > MAX_MACS || elements > MAX_ACTIVATIONS {
            return Err(GraphError::TooLarge { macs: self.macs(), elements });
        }
        Ok(())
    }

    /// Checks the whole network: order, arity, shapes, lengths of weights, windows, work.
    ///
    /// # Errors
    /// Names the first faulty node and its fault.
    pub fn check(&self) -> Result<(), GraphError> {
        let count = self.nodes.len();
        if count == 0 || count > MAX_NODES {
            return Err(GraphError::NodeCount { count });
        }
        for (id, node) in self.nodes.iter().enumerate() {
            self.check_node(id, node).map_err(|what| GraphError::Node {
                id,
                name: node.name.clone(),
                op: node.op.name(),
                what,
            })?;
        }
        if self.output >= count {
            return Err(GraphError::Output { output: self.output, count });
        }
        self.check_work()
    }

    fn check_node(&self, id: usize, node: &FloatNode) -> Result<(), String> {
        if (id == 0) != matches!(node.op, FloatOp::Input) {
            return Err("the input must be the first node and the only input".into());
        }
        if !node.op.arity().contains(&node.inputs.len()) {
            return Err(format!("has {} inputs", node.inputs.len()));
        }
        if node.inputs.iter().any(|&i| i >= id) {
            return Err("reads a node that comes later: the graph is not sorted or has a cycle".into());
        }
        let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| self.nodes[i].shape.as_slice()).collect();
        let shape = checked_shape(&node.op, &shapes, &node.shape)?;
        if shape != node.shape {
            return Err(format!("states shape {:?}, but its inputs give {shape:?}", node.shape));
        }
        if node.op.numbers().iter().any(|list| list.iter().any(|v| !v.is_finite())) {
            return Err("holds a weight or constant that is no number".into());
        }
        match &node.op {
            FloatOp::Conv { geometry: g, .. } => geometry::check_window(g.kernel, g.pads, node.elements()),
            FloatOp::MaxPool(w) | FloatOp::SumPool(w) => geometry::check_window(w.kernel, w.pads, node.elements()),
            _ => Ok(()),
        }
    }
}

/// Returns the shape of the result of `op`, if shapes, sizes and lengths of weights fit.
fn checked_shape(op: &FloatOp, inputs: &[&[usize]], declared: &[usize]) -> Result<Vec<usize>, String> {
    if let FloatOp::Conv { geometry, .. } = op {
        geometry.check()?;
    }
    let shape = op.infer_shape(inputs, declared)?;
    geometry::check_size(&shape)?;
    check_lengths(op, inputs)?;
    Ok(shape)
}

fn check_lengths(op: &FloatOp, shapes: &[&[usize]]) -> Result<(), String> {
    let input_shape = shapes.first().copied().unwrap_or(&[]);
    let ok = match op {
        FloatOp::Conv { geometry: g, weights, bias } => {
            let needed = g.row_len(input_shape[0]).and_then(|row| row.checked_mul(g.out_channels));
            needed == Some(weights.len()) && bias.len() == g.out_channels
        }
        FloatOp::Dense { weights, bias } => Some(weights.len()) == bias.len().checked_mul(input_shape[0]),
        FloatOp::Affine { scale, shift } => input_shape.first() == Some(&scale.len()) && scale.len() == shift.len(),
        FloatOp::PositionScale(f) => !input_shape.is_empty() && f.len() == input_shape[1..].iter().product::<usize>(),
        _ => true,
    };
    if ok { Ok(()) } else { Err(format!("its weights do not fit an input of shape {input_shape:?}")) }
}
