//! From the model graph to a plan: which nodes are local, which are batches of gates, which tensors are
//! encrypted once for which linear layers.

use tacit_graph::NodeId;
use tacit_mpc::gate::{GateSpec, WrapSpec};

use super::Options;
use super::linear::{Consumer, ConvSpec, LinearPlan};
use super::reduce::{Level, max_pool, tournament};
use super::truncate;
use crate::ring::fixed::{MAX_WIDENING, MIN_COMPARED_WIDTH};
use crate::ring::{Node, Op, RingGraph};
use crate::{BackendError, Numerics, seam};

/// How one node is evaluated.
#[derive(Debug)]
pub(super) enum Step {
    /// The client's input, masked.
    Input,
    /// Linear layer: member `index` of a group that shares one encrypted tensor.
    Linear { group: usize, index: usize },
    /// Each party on its own.
    Local,
    /// Sign test, multiplexer and widening in one.
    Relu(GateSpec),
    /// Rounds of pairwise maxima (max pool) or of maxima with their positions (arg max).
    Reduce { levels: Vec<(Level, GateSpec)>, indexed: bool },
    /// Signed widening.
    Widen(WrapSpec),
    /// Truncation without an error, where its carry would show in the result.
    TruncateExact { bits: u32, gate: GateSpec },
}

/// Linear layers that read one tensor: its mask is encrypted once for all of them.
pub(super) struct Group {
    /// The layers, in node order.
    pub nodes: Vec<NodeId>,
    /// Tiling and parameters.
    pub plan: LinearPlan,
}

/// A compiled model.
pub struct Plan {
    pub(super) graph: RingGraph,
    pub(super) steps: Vec<Step>,
    pub(super) groups: Vec<Group>,
    options: Options,
    digest: [u8; 32],
}

impl Plan {
    /// The graph it was compiled from.
    pub fn graph(&self) -> &RingGraph {
        &self.graph
    }

    /// Digest of the public graph, of the options and of what planning chose: both parties must have the
    /// same, and material is bound to it.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The public choices it was compiled with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Sign tests (and carry tests of exact truncations) needed for one input.
    pub fn comparisons(&self) -> u64 {
        self.gates().map(|g| g.n() as u64).sum()
    }

    /// Bound on a linear node's error before truncation (0 for other nodes).
    pub fn linear_error(&self, node: NodeId) -> u32 {
        match &self.steps[node] {
            Step::Linear { group, index } => self.groups[*group].plan.max_error(*index),
            _ => 0,
        }
    }

    /// Whether a node is a truncation that gives the floor exactly (the others may be one unit off).
    pub fn truncates_exactly(&self, node: NodeId) -> bool {
        matches!(self.steps[node], Step::TruncateExact { .. })
    }

    /// All batches of gates, in order.
    pub(super) fn gates(&self) -> impl Iterator<Item = &GateSpec> {
        self.steps.iter().flat_map(Step::gates)
    }

    /// How results relate to the reference.
    pub fn numerics(&self) -> Numerics {
        let linear = (0..self.steps.len()).map(|id| self.linear_error(id)).max().expect("a graph has nodes");
        // floor(s + 1/2) + floor(c) differs from the floor of the sum by at most one.
        Numerics::UlpPerTruncation { below: 1, above: 1, linear, relu_drop: self.options.relu_drop }
    }
}

impl Step {
    /// Its kind, and for each batch of gates the sizes on the wire and in material.
    fn canonical(&self) -> (u8, Vec<[usize; 7]>) {
        let gate = |gate: &GateSpec| {
            let (n, cost) = (gate.n(), gate.cost());
            let wire = [cost.offline_up, cost.offline_down, cost.online_up, cost.online_down];
            [n, wire[0], wire[1], wire[2], wire[3], cost.client_material, cost.server_material]
        };
        let kind = match self {
            Self::Input => 0,
            Self::Linear { .. } => 1,
            Self::Local => 2,
            Self::Relu(_) => 3,
            Self::Reduce { indexed, .. } => 4 + u8::from(*indexed),
            Self::Widen(_) => 6,
            Self::TruncateExact { .. } => 7,
        };
        (kind, self.gates().map(gate).collect())
    }

    /// Its batches of gates, in order.
    pub(super) fn gates(&self) -> impl Iterator<Item = &GateSpec> {
        let (one, many): (Option<&GateSpec>, &[(Level, GateSpec)]) = match self {
            Self::Relu(gate) | Self::TruncateExact { gate, .. } => (Some(gate), &[]),
            Self::Reduce { levels, .. } => (None, levels),
            Self::Input | Self::Linear { .. } | Self::Local | Self::Widen(_) => (None, &[]),
        };
        one.into_iter().chain(many.iter().map(|(_, gate)| gate))
    }
}

/// Compiles a graph.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn compile(graph: RingGraph, options: Options) -> Result<Plan, BackendError> {
    let (steps, members) = steps(&graph, &options)?;
    let groups = members.into_iter().map(|(tensor, nodes)| make_group(&graph, &options, tensor, nodes));
    let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    let digest = digest(&graph, &options, (&steps, &groups));
    Ok(Plan { graph, options, steps, groups, digest })
}

/// Over the public part, the options, and what planning chose: the steps with the sizes of what they send and
/// keep, the sizes of tiles and the bits of ciphertexts (which follow from floating-point estimates).
fn digest(graph: &RingGraph, options: &Options, (steps, groups): (&[Step], &[Group])) -> [u8; 32] {
    let tiles: Vec<_> = groups.iter().map(|group| (&group.nodes, group.plan.choices())).collect();
    let steps: Vec<_> = steps.iter().map(Step::canonical).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps, tiles));
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest("tacit 2026-11 cheetah plan", &[&canonical])
}

/// Linear nodes by the tensor that they read.
type Members = Vec<(NodeId, Vec<NodeId>)>;

/// How each node is evaluated, with the linear layers still to be planned.
pub(super) fn steps(graph: &RingGraph, options: &Options) -> Result<(Vec<Step>, Members), BackendError> {
    let mut steps = Vec::with_capacity(graph.nodes().len());
    let mut members = Members::new();
    let exact = truncate::exact(graph);
    for (id, node) in graph.nodes().iter().enumerate() {
        let unsupported =
            |what: String| BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what };
        let step = match &node.op {
            Op::Conv2d(_) | Op::Linear(_) => join_group(&mut members, node.inputs[0], id),
            Op::Truncate { bits } if exact[id] => {
                let gate = truncate::gate(node.elements(), *bits, node.fixed.width, options.leaves);
                Step::TruncateExact { bits: *bits, gate }
            }
            _ => nonlinear_step(graph, node, options).map_err(unsupported)?,
        };
        steps.push(step);
    }
    Ok((steps, members))
}

fn join_group(members: &mut Members, tensor: NodeId, id: NodeId) -> Step {
    let known = members.iter().position(|(t, _)| *t == tensor);
    let group = known.unwrap_or_else(|| {
        members.push((tensor, Vec::new()));
        members.len() - 1
    });
    members[group].1.push(id);
    Step::Linear { group, index: members[group].1.len() - 1 }
}

fn make_group(graph: &RingGraph, options: &Options, tensor: NodeId, nodes: Vec<NodeId>) -> Result<Group, BackendError> {
    let layers: Vec<Consumer> = nodes.iter().map(|&id| consumer(graph, tensor, id)).collect();
    let plan = LinearPlan::new(&layers, options.linear_error).map_err(|error| {
        let node = &graph.nodes()[nodes[0]];
        let what = format!("it, or another layer that reads the same tensor: {error}");
        BackendError::Unsupported { node: nodes[0], name: node.name.clone(), op: node.op.name(), what }
    })?;
    Ok(Group { plan, nodes })
}

fn nonlinear_step(graph: &RingGraph, node: &Node, options: &Options) -> Result<Step, String> {
    let Some(input) = node.inputs.first().map(|&i| &graph.nodes()[i]) else { return Ok(Step::Input) };
    let (n, width, wide) = (input.elements(), input.fixed.width, node.fixed.width);
    if width < MIN_COMPARED_WIDTH && matches!(node.op, Op::Relu | Op::MaxPool(_) | Op::ArgMax | Op::Widen) {
        return Err(format!("a ring of {width} bits is too narrow for a sign test (at least {MIN_COMPARED_WIDTH})"));
    }
    let gate = |n, widths| GateSpec::new(n, width, 0, options.leaves, widths);
    Ok(match &node.op {
        Op::Relu => {
            // The multiplexer takes the value and its wrap bits from one word of OT output.
            if 2 * wide - width > MAX_WIDENING {
                return Err(format!(
                    "widening from {width} to {wide} bits needs {} bits, at most {MAX_WIDENING}",
                    2 * wide - width
                ));
            }
            let drop = options.relu_drop.min(width - 4);
            Step::Relu(GateSpec::widening(n, width, drop, options.leaves, wide))
        }
        Op::MaxPool(w) => {
            let levels = max_pool(&input.shape, w, &node.shape);
            Step::Reduce {
                levels: levels.into_iter().map(|l| (gate(l.left.len(), vec![width]), l)).map(|(g, l)| (l, g)).collect(),
                indexed: false,
            }
        }
        Op::ArgMax => {
            if n as u64 >= 1 << (wide - 1).min(63) || width + wide > 64 {
                return Err(format!("{n} positions do not fit a ring of {wide} bits beside values of {width} bits"));
            }
            let levels = tournament(n).into_iter().map(|l| (gate(l.left.len(), vec![width, wide]), l));
            Step::Reduce { levels: levels.map(|(g, l)| (l, g)).collect(), indexed: true }
        }
        Op::Widen if wide > width => Step::Widen(WrapSpec { n, width, extra: wide - width }),
        _ => Step::Local,
    })
}

/// What the lattice part needs to know of a linear node. A fully connected layer is a 1 x 1 convolution of a
/// 1 x 1 image.
fn consumer(graph: &RingGraph, tensor: NodeId, id: NodeId) -> Consumer {
    let (input, node) = (&graph.nodes()[tensor], &graph.nodes()[id]);
    let (conv, facts) = match &node.op {
        Op::Conv2d(c) => {
            let g = &c.geometry;
            let conv = ConvSpec {
                in_ch: input.shape[0],
                out_ch: g.out_channels,
                in_h: input.shape[1],
                in_w: input.shape[2],
                kernel: g.kernel.into(),
                stride: g.stride.into(),
                dilation: g.dilation.into(),
                pads: g.pads,
                groups: g.groups,
            };
            (conv, c.weights)
        }
        Op::Linear(l) => (ConvSpec::linear(input.elements(), node.elements()), l.weights),
        other => unreachable!("{} joins no group of linear layers", other.name()),
    };
    Consumer { conv, ring_bits: node.fixed.width, norm_log2: facts.norm_bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::FixedPoint;
    use crate::ring::reference::tests::spec;

    fn widening_relu(width: u32, wide: u32) -> RingGraph {
        let node = |op, inputs, width| Node {
            name: "n".into(),
            op,
            inputs,
            shape: vec![2],
            fixed: FixedPoint { width, frac_bits: 4 },
        };
        let nodes = vec![node(Op::Input, vec![], width), node(Op::Relu, vec![0], wide)];
        RingGraph::new(spec(nodes)).expect("a valid graph")
    }

    #[test]
    fn relu_that_widens_beyond_a_word_of_masks_is_unsupported() {
        let compiled = |width, wide| compile(widening_relu(width, wide), Options::default());
        assert!(compiled(16, 40).is_ok());
        assert!(matches!(compiled(15, 40), Err(BackendError::Unsupported { node: 1, .. })));
    }
}
