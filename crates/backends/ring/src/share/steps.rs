//! Turns a graph's nodes into steps.

use std::sync::Arc;

use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::LookUp;

use super::batch::{Batch, Times};
use super::reduce::{Level, max_pool, tournament};
use super::truncate;
use crate::fixed::MIN_COMPARED_WIDTH;
use crate::{Node, Op, RingGraph, Table};
use tacit_backend_api::{BackendError, Result};

/// The types that a back end computes its steps with.
pub trait StepTypes {
    /// A linear layer.
    type Linear;
    /// A batch of gates `base + [y >= 0] X`.
    type Gate: Batch;
    /// A batch of signed widenings.
    type Widen;
}

/// How one node is evaluated.
pub enum Step<K: StepTypes> {
    /// The client's input, masked.
    Input,
    /// A linear layer.
    Linear(K::Linear),
    /// A local operation of each party.
    Local,
    /// Sign test, multiplexer and widening in one.
    Relu(K::Gate),
    /// Rounds of pairwise maxima (max pool) or of maxima with their positions (arg max).
    Reduce {
        /// Rounds, first to last.
        levels: Vec<(Arc<Level>, K::Gate)>,
        /// The result is the position.
        indexed: bool,
    },
    /// Signed widening.
    Widen(K::Widen),
    /// Look-ups in a public table.
    LookUp(LookUp),
    /// Exact floor division by `2^bits`, where an error of one unit would reach the output.
    TruncateExact {
        /// Bits dropped.
        bits: u32,
        /// Carry tests.
        gate: K::Gate,
    },
}

impl<K: StepTypes> Step<K> {
    /// The step's batches of gates in order, including empty ones.
    pub fn gates(&self) -> impl Iterator<Item = &K::Gate> {
        let only_gate = match self {
            Self::Relu(gate) | Self::TruncateExact { gate, .. } => Some(gate),
            _ => None,
        };
        let reduce_levels = if let Self::Reduce { levels, .. } = self { levels.as_slice() } else { &[] };
        only_gate.into_iter().chain(reduce_levels.iter().map(|(_, gate)| gate))
    }

    /// A number for the step's kind, for digests.
    pub fn number(&self) -> u8 {
        match self {
            Self::Input => 0,
            Self::Linear(_) => 1,
            Self::Local => 2,
            Self::Relu(_) => 3,
            Self::Reduce { indexed, .. } => 4 + u8::from(*indexed),
            Self::Widen(_) => 6,
            Self::TruncateExact { .. } => 7,
            Self::LookUp(_) => 8,
        }
    }

    /// The step for `batch` inputs at once, with their gates concatenated. Linear layers, and the pairs of a
    /// reduction, remain those of one input.
    pub fn times(&self, batch: usize) -> Self
    where
        K::Linear: Clone,
        K::Gate: Times,
        K::Widen: Times,
    {
        match self {
            Self::Input => Self::Input,
            Self::Linear(layer) => Self::Linear(layer.clone()),
            Self::Local => Self::Local,
            Self::Relu(gate) => Self::Relu(gate.times(batch)),
            Self::Reduce { levels, indexed } => {
                let levels = levels.iter().map(|(level, gate)| (Arc::clone(level), gate.times(batch)));
                Self::Reduce { levels: levels.collect(), indexed: *indexed }
            }
            Self::Widen(widen) => Self::Widen(widen.times(batch)),
            Self::LookUp(table) => Self::LookUp(table.times(batch)),
            Self::TruncateExact { bits, gate } => Self::TruncateExact { bits: *bits, gate: gate.times(batch) },
        }
    }
}

/// Makes a back end's steps. An error is a sentence that says why a step cannot be made.
pub trait Compile<K: StepTypes> {
    /// Whether every truncation must be exact, rather than those whose error of one unit would reach the
    /// output.
    fn exact(&self) -> bool {
        false
    }
    /// Makes the linear layer `id`, which reads the tensor of node `tensor`.
    fn linear(&mut self, tensor: NodeId, id: NodeId) -> K::Linear;
    /// Makes a ReLU of `n` values in a ring of `width` bits, into one of `wide` bits. Unless it
    /// `tests_all_bits`, the sign test may leave low bits out, and small positive results may become 0.
    fn relu(&mut self, n: usize, width: u32, wide: u32, tests_all_bits: bool) -> Result<K::Gate, String>;
    /// Makes maxima of `n` pairs; with `index`, also of positions in a ring of that many bits.
    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> K::Gate;
    /// Makes the carry tests of a truncation of `n` values by `bits` to a ring of `width` bits.
    fn carry(&mut self, n: usize, bits: u32, width: u32) -> K::Gate;
    /// Makes `n` look-ups, into a ring of `width` bits.
    fn look_up(&mut self, _n: usize, _width: u32, table: &Table) -> Result<LookUp, String> {
        let name = table.function.name();
        Err(format!("this back end has no look-up tables, which {name} needs here; `dealt` has"))
    }
    /// Makes a widening of `n` signed values.
    fn widen(&mut self, n: usize, width: u32, extra: u32) -> K::Widen;
}

/// Compiles each node to a step.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn steps<K: StepTypes>(graph: &RingGraph, make: &mut impl Compile<K>) -> Result<Vec<Step<K>>> {
    let exact = if make.exact() { truncate::all_truncations(graph) } else { truncate::exact(graph) };
    let (reaches_output, clips) = (truncate::revealed_nodes(graph), truncate::into_tables(graph));
    let nodes = graph.nodes().iter().enumerate();
    nodes
        .map(|(id, node)| match &node.op {
            Op::Conv2d(_) | Op::Linear(_) => Ok(Step::Linear(make.linear(node.inputs[0], id))),
            Op::Truncate { bits } if exact[id] => {
                Ok(Step::TruncateExact { bits: *bits, gate: make.carry(node.elements(), *bits, node.fixed.width) })
            }
            _ => nonlinear(graph, node, reaches_output[id] || clips[id], make).map_err(|what| {
                let what = if is_final_function(graph, id) { format!("{CUT_ADVICE}; or: {what}") } else { what };
                BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what }
            }),
        })
        .collect()
}

/// Advice for a network that ends with a function.
const CUT_ADVICE: &str = "only sums and copies follow this function: cut the network in front of it, at the logit (`onnx.utils.extract_model`, \
                   with the tensor that it reads as the output), and apply it and what follows to the answer";

/// Whether node `id` is a function of each element with only free operations behind it, such as the sigmoid
/// of a classifier of two classes, which joins both probabilities from it.
fn is_final_function(graph: &RingGraph, id: NodeId) -> bool {
    let nodes = graph.nodes();
    let mut is_behind = vec![false; nodes.len()];
    is_behind[id] = matches!(nodes[id].op, Op::LookUp(_));
    for (reader, node) in nodes.iter().enumerate().skip(id + 1) {
        is_behind[reader] = node.inputs.iter().any(|&input| is_behind[input]);
        let costs = matches!(node.op, Op::Conv2d(_) | Op::Linear(_) | Op::Relu | Op::MaxPool(_) | Op::LookUp(_));
        if is_behind[reader] && costs {
            return false;
        }
    }
    is_behind[id]
}

/// `tests_all_bits` is set where a ReLU that leaves low bits out of its test would show in the result, or
/// would let an index leave its table.
fn nonlinear<K: StepTypes>(
    graph: &RingGraph,
    node: &Node,
    tests_all_bits: bool,
    make: &mut impl Compile<K>,
) -> Result<Step<K>, String> {
    let Some(input) = node.inputs.first().map(|&i| &graph.nodes()[i]) else { return Ok(Step::Input) };
    let (n, width, wide) = (input.elements(), input.fixed.width, node.fixed.width);
    if width < MIN_COMPARED_WIDTH && matches!(node.op, Op::Relu | Op::MaxPool(_) | Op::ArgMax | Op::Widen) {
        return Err(format!("a ring of {width} bits is too narrow for a sign test (at least {MIN_COMPARED_WIDTH})"));
    }
    let mut levels = |levels: Vec<Level>, index| {
        let with_gate = |level: Level| {
            let gate = make.maximum(level.left.len(), width, index);
            (Arc::new(level), gate)
        };
        levels.into_iter().map(with_gate).collect()
    };
    Ok(match &node.op {
        Op::Relu => Step::Relu(make.relu(n, width, wide, tests_all_bits)?),
        Op::LookUp(table) => Step::LookUp(make.look_up(n, wide, table)?),
        Op::MaxPool(w) => Step::Reduce { levels: levels(max_pool(&input.shape, w, &node.shape), None), indexed: false },
        Op::ArgMax => {
            if n as u64 >= 1 << (wide - 1).min(63) || width + wide > 64 {
                return Err(format!("{n} positions do not fit a ring of {wide} bits beside values of {width} bits"));
            }
            Step::Reduce { levels: levels(tournament(n), Some(wide)), indexed: true }
        }
        Op::Widen if wide > width => Step::Widen(make.widen(n, width, wide - width)),
        _ => Step::Local,
    })
}

/// The convolution that a linear node computes on node `tensor`. A fully connected layer is a 1 x 1
/// convolution of a 1 x 1 image.
pub fn conv_spec(graph: &RingGraph, tensor: NodeId, id: NodeId) -> ConvSpec {
    let (input, node) = (&graph.nodes()[tensor], &graph.nodes()[id]);
    match &node.op {
        Op::Conv2d(c) => {
            let g = &c.geometry;
            ConvSpec {
                in_ch: input.shape[0],
                out_ch: g.out_channels,
                in_h: input.shape[1],
                in_w: input.shape[2],
                kernel: g.kernel.into(),
                stride: g.stride.into(),
                dilation: g.dilation.into(),
                pads: g.pads,
                groups: g.groups,
            }
        }
        Op::Linear(_) => ConvSpec::linear(input.elements(), node.elements()),
        other => unreachable!("{} is no linear layer", other.name()),
    }
}
