//! Compiles the model graph to a plan: local nodes, batches of gates, and the linear layers that
//! share one encrypted tensor.

use std::sync::Arc;

use tacit_graph::NodeId;
use tacit_mpc::gate::{GateSpec, Widening, WrapSpec};

use super::coeff::Cheetah;
use super::lattice::Lattice;
use super::linear::Consumer;
use super::options::Options;
use tacit_backend_api::{BackendError, Numerics, seam};
use tacit_ring::share::{self, Compile, StepTypes, conv_spec};
use tacit_ring::{RingGraph, slack};

pub(super) struct CheetahStepTypes;

impl StepTypes for CheetahStepTypes {
    type Linear = Member;
    type Gate = GateSpec;
    type Widen = WrapSpec;
}

/// A linear layer of a group that shares one encrypted tensor.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// Index of the group in the plan.
    pub group: usize,
    /// Index of the layer in the group.
    pub index: usize,
}

pub(super) type Step = share::Step<CheetahStepTypes>;

/// Linear layers that read one tensor, whose mask is encrypted once for all of them.
pub struct Group<L: Lattice> {
    /// The tensor.
    pub tensor: NodeId,
    /// The layers, in node order.
    pub nodes: Vec<NodeId>,
    /// Tiling and parameters.
    pub plan: L::Plan,
}

impl<L: Lattice> Group<L> {
    /// The same layers for `batch` inputs at once.
    pub fn times(&self, batch: usize) -> Self {
        Self { tensor: self.tensor, nodes: self.nodes.clone(), plan: L::times(&self.plan, batch) }
    }
}

/// A compiled model.
pub struct Plan<L: Lattice = Cheetah> {
    pub(super) graph: Arc<RingGraph>,
    /// Steps for all inputs of the batch.
    pub(super) steps: Vec<Step>,
    pub(super) groups: Vec<Group<L>>,
    /// For each node, the group that reads its tensor, if the client may choose its share of the
    /// tensor freely.
    pub(super) free: Vec<Option<usize>>,
    /// For each node, the number of low bits of the client's share of a linear layer's result that
    /// nothing reads.
    pub(super) unread: Vec<u32>,
    /// For each node, the number of low bits that rounding removes from the server's share of a
    /// linear layer's result.
    pub(super) rounded: Vec<u32>,
    pub(super) batch: usize,
    options: Options,
    digest: [u8; 32],
}

impl<L: Lattice> Plan<L> {
    /// The graph that the plan was compiled from.
    pub fn graph(&self) -> &RingGraph {
        &self.graph
    }

    /// Digest of the public graph, of the options and of the choices of planning. Both parties must
    /// have the same digest, and material is bound to it.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The public choices that the plan was compiled with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Number of inputs of one offline and one online phase.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Number of sign tests (and carry tests of exact truncations) for the inputs of a batch.
    pub fn comparisons(&self) -> u64 {
        self.gates().map(|g| g.n() as u64).sum()
    }

    /// Bound on a linear node's error before truncation (0 for other nodes).
    pub fn linear_error(&self, node: NodeId) -> u32 {
        match &self.steps[node] {
            Step::Linear(Member { group, index }) => {
                L::max_error(&self.groups[*group].plan, *index) + slack::rounding_error(self.rounded[node])
            }
            _ => 0,
        }
    }

    /// Whether a node is a truncation that gives the exact floor (other truncations may be one unit
    /// off).
    pub fn truncates_exactly(&self, node: NodeId) -> bool {
        matches!(self.steps[node], Step::TruncateExact { .. })
    }

    /// Number of low bits of the client's share of a node's tensor that are not stored, since a
    /// truncation drops them.
    pub fn unread(&self, node: NodeId) -> u32 {
        self.unread[node]
    }

    /// Number of low bits of the server's share of a node's tensor that rounding removes.
    pub(super) fn rounded(&self, node: NodeId) -> u32 {
        self.rounded[node]
    }

    pub(super) fn gates(&self) -> impl Iterator<Item = &GateSpec> {
        self.steps.iter().flat_map(|step| step.gates())
    }

    pub(super) fn lattice(&self) -> Vec<&L::Plan> {
        self.groups.iter().map(|group| &group.plan).collect()
    }

    /// The relation of results to the reference.
    pub fn numerics(&self) -> Numerics {
        if L::EXACT {
            return Numerics::Exact;
        }
        let linear = (0..self.steps.len()).map(|id| self.linear_error(id)).max().expect("a graph has nodes");
        // floor(s + 1/2) + floor(c) differs from the floor of the sum by at most one.
        Numerics::UlpPerTruncation { below: 1, above: 1, linear, relu_drop: self.options.relu_drop }
    }
}

/// A step's kind, and for each batch of gates the sizes on the wire and in material.
fn canonical(step: &Step) -> (u8, Vec<[usize; 7]>) {
    let gates = step.gates().map(|gate| {
        let (n, cost) = (gate.n(), gate.cost());
        let wire = [cost.offline_up, cost.offline_down, cost.online_up, cost.online_down];
        [n, wire[0], wire[1], wire[2], wire[3], cost.client_material, cost.server_material]
    });
    (step.number(), gates.collect())
}

/// Compiles a graph.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn compile<L: Lattice>(graph: RingGraph, options: Options) -> Result<Plan<L>, BackendError> {
    let (steps, members) = steps::<L>(&graph, &options)?;
    let exact: Vec<bool> = steps.iter().map(|step| matches!(step, Step::TruncateExact { .. })).collect();
    let errors = slack::allowed_errors(&graph, &exact, options.linear_error);
    let drafts = members
        .iter()
        .map(|(tensor, nodes)| Ok((draft::<L>(&graph, &options, &errors, *tensor, nodes)?, is_free(&steps[*tensor]))));
    let plans = L::plans(drafts.collect::<Result<_, BackendError>>()?);
    let groups = members.into_iter().zip(plans);
    let groups: Vec<Group<L>> = groups.map(|((tensor, nodes), plan)| Group { tensor, nodes, plan }).collect();
    let mut free = vec![None; steps.len()];
    let free_groups = groups.iter().enumerate().filter(|(_, group)| is_free(&steps[group.tensor]));
    free_groups.for_each(|(index, group)| free[group.tensor] = Some(index));
    let digest = digest(&graph, &options, &steps, &groups);
    let rounded: Vec<u32> = rounded_bits(&graph, &errors);
    let unread = slack::unread_bits(&graph, &exact);
    let graph = Arc::new(graph);
    Ok(Plan { free, unread, rounded, graph, options, steps, groups, batch: 1, digest })
}

/// Returns whether the client may choose its share of a step's result.
fn is_free(step: &Step) -> bool {
    matches!(step, Step::Input | Step::Relu(_))
}

/// For each node, the number of low bits that rounding removes from the server's share.
fn rounded_bits(graph: &RingGraph, errors: &[u32]) -> Vec<u32> {
    let nodes = graph.nodes().iter().zip(errors);
    nodes.map(|(node, &error)| if node.op.facts().is_some() { slack::rounded_bits(error) } else { 0 }).collect()
}

/// Derives the plan for `batch` inputs at once from the plan for one input. Each exchange has the gates
/// of all inputs; the linear layers of all inputs use the same weights.
///
/// # Panics
/// If the plan is for several inputs already.
#[must_use]
pub fn batched<L: Lattice>(single_plan: &Plan<L>, batch: usize) -> Plan<L> {
    assert_eq!(single_plan.batch, 1, "plans of batches are made from the plan for one input");
    Plan {
        graph: Arc::clone(&single_plan.graph),
        steps: single_plan.steps.iter().map(|step| step.times(batch)).collect(),
        groups: single_plan.groups.iter().map(|group| group.times(batch)).collect(),
        free: single_plan.free.clone(),
        unread: single_plan.unread.clone(),
        rounded: single_plan.rounded.clone(),
        batch,
        options: single_plan.options,
        digest: seam::batch_digest(&single_plan.digest, batch),
    }
}

/// Digest of the public part, the options and the choices of planning: the steps with the sizes of
/// their messages and material, the sizes of tiles, and the bits of ciphertexts (which follow from
/// floating-point estimates).
fn digest<L: Lattice>(graph: &RingGraph, options: &Options, steps: &[Step], groups: &[Group<L>]) -> [u8; 32] {
    let tiles: Vec<_> = groups.iter().map(|group| (&group.nodes, L::choices(&group.plan))).collect();
    let steps: Vec<_> = steps.iter().map(canonical).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps, tiles));
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest(L::DOMAIN, &[&canonical])
}

/// Linear nodes by the tensor that they read.
type Members = Vec<(NodeId, Vec<NodeId>)>;

/// Returns the steps of all nodes, and the linear layers that are still to be planned.
pub(super) fn steps<L: Lattice>(graph: &RingGraph, options: &Options) -> Result<(Vec<Step>, Members), BackendError> {
    let mut maker = Maker { options, exact: L::EXACT, members: Members::new() };
    let steps = share::steps(graph, &mut maker)?;
    Ok((steps, maker.members))
}

struct Maker<'a> {
    options: &'a Options,
    exact: bool,
    members: Members,
}

impl Compile<CheetahStepTypes> for Maker<'_> {
    fn exact(&self) -> bool {
        self.exact
    }

    fn linear(&mut self, tensor: NodeId, id: NodeId) -> Member {
        let position = self.members.iter().position(|(t, _)| *t == tensor);
        let group = position.unwrap_or_else(|| {
            self.members.push((tensor, Vec::new()));
            self.members.len() - 1
        });
        self.members[group].1.push(id);
        Member { group, index: self.members[group].1.len() - 1 }
    }

    fn relu(&mut self, n: usize, width: u32, wide: u32, tests_all_bits: bool) -> Result<GateSpec, String> {
        let drop = if tests_all_bits { 0 } else { self.options.relu_drop.min(width - 4) };
        let [on_the_way, behind] = [Widening::OnTheWay, Widening::Behind]
            .map(|place| GateSpec::widening(n, width, drop, self.options.leaves, wide, place));
        let [on_the_way_bytes, behind_bytes] =
            [&on_the_way, &behind].map(|gate| gate.cost().online_up + gate.cost().online_down);
        // Widening within the gate takes the value and its wrap bits from one word of OT output.
        let behind_pays = on_the_way_bytes >= behind_bytes + self.options.round_trip as usize;
        Ok(if behind_pays || 2 * wide - width > u64::BITS { behind } else { on_the_way })
    }

    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> GateSpec {
        GateSpec::new(n, width, 0, self.options.leaves, std::iter::once(width).chain(index).collect())
    }

    fn carry(&mut self, n: usize, bits: u32, width: u32) -> GateSpec {
        GateSpec::subtracting(n, bits + 1, self.options.leaves, width)
    }

    fn widen(&mut self, n: usize, width: u32, extra: u32) -> WrapSpec {
        WrapSpec { n, width, extra }
    }
}

/// Drafts a plan of the layers `nodes`, which all read `tensor`; `errors` are the units that each
/// node's result may be off by.
///
/// # Errors
/// `Unsupported` names the first of the layers if they cannot be planned.
pub fn draft<L: Lattice>(
    graph: &RingGraph,
    options: &Options,
    errors: &[u32],
    tensor: NodeId,
    nodes: &[NodeId],
) -> Result<L::Draft, BackendError> {
    let layers: Vec<Consumer> = nodes.iter().map(|&id| consumer(graph, tensor, id)).collect();
    let linear_error = nodes.iter().map(|&id| errors[id]).min().expect("a group has a layer");
    L::draft(&layers, &Options { linear_error, ..*options }).map_err(|error| {
        let node = &graph.nodes()[nodes[0]];
        let what = format!("it, or another layer that reads the same tensor: {error}");
        BackendError::Unsupported { node: nodes[0], name: node.name.clone(), op: node.op.name(), what }
    })
}

fn consumer(graph: &RingGraph, tensor: NodeId, id: NodeId) -> Consumer {
    let node = &graph.nodes()[id];
    let facts = node.op.facts().expect("only layers with weights join a group");
    Consumer { conv: conv_spec(graph, tensor, id), ring_bits: node.fixed.width, norm_log2: facts.norm_bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_ring::FixedPoint;
    use tacit_ring::fixtures::spec;
    use tacit_ring::{Linear, Node, Op, WeightFacts};

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
    fn a_relu_of_an_output_tests_every_bit() {
        let bytes = |graph: &RingGraph, relu_drop| {
            let options = Options { relu_drop, ..Options::default() };
            let plan = compile::<Cheetah>(graph.clone(), options).expect("it compiles");
            plan.gates().map(|gate| gate.cost().online_up).sum::<usize>()
        };
        let visible = widening_relu(20, 20);
        assert_eq!(bytes(&visible, 8), bytes(&visible, 0));
        let mut spec = visible.spec().clone();
        let weights = WeightFacts { frac_bits: 2, magnitude_bits: 3, norm_bits: 4 };
        let fixed = FixedPoint { width: 20, frac_bits: 6 };
        let op = Op::Linear(Linear { out_features: 2, weights });
        spec.nodes.push(Node { name: "n".into(), op, inputs: vec![1], shape: vec![2], fixed });
        spec.output = 2;
        let hidden = RingGraph::new(spec).expect("a valid graph");
        assert!(bytes(&hidden, 8) < bytes(&hidden, 0));
    }

    #[test]
    fn a_relu_widens_behind_its_gate_if_that_saves_bytes() {
        let exchanges = |width, wide, round_trip| {
            let options = Options { round_trip, ..Options::default() };
            let plan = compile::<Cheetah>(widening_relu(width, wide), options).expect("it compiles");
            plan.gates().map(|gate| gate.cost().exchanges).sum::<usize>()
        };
        assert_eq!(exchanges(16, 32, 1 << 17), exchanges(16, 16, 0));
        assert_eq!(exchanges(16, 32, 0), exchanges(16, 16, 0) + 1);
        // One word of masks is too short for widening within the gate.
        assert_eq!(exchanges(16, 40, 1 << 17), exchanges(16, 16, 0));
        assert_eq!(exchanges(15, 40, 1 << 17), exchanges(16, 16, 0) + 1);
    }
}
