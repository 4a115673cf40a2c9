//! Compiles a graph to a plan: the tensors whose client share moves, and the exchanges of each
//! gate.

use std::sync::Arc;

use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::Packed;
use tacit_mpc::dealt::{DealtGate, Exchanges, LookUp, Value, widen_bytes};
use tacit_mpc::gate::WrapSpec;

use super::Options;
use super::lattice::Layers;
use super::masked_weights::{MaskedPlan, bytes_of};
use super::options::Choice;
use tacit_backend_api::{BackendError, Numerics, seam};
use tacit_ring::share::{self, Added, Compile, StepTypes, conv_spec};
use tacit_ring::{Node, RingGraph, Table};

/// The step types of this back end.
pub(crate) struct DealtStepTypes;

impl StepTypes for DealtStepTypes {
    type Linear = ConvSpec;
    type Gate = DealtGate;
    type Widen = WrapSpec;
}

pub(crate) type Step = share::Step<DealtStepTypes>;

/// A compiled model.
pub struct Plan {
    pub(super) graph: Arc<RingGraph>,
    /// The steps, for all inputs of the batch.
    pub(super) steps: Vec<Step>,
    /// Number of inputs in the batch.
    pub(super) batch: usize,
    /// For each node, whether the client moves its share of the tensor.
    moves: Vec<bool>,
    /// The linear layers that use lattices instead of the dealer.
    pub(super) lattice: Layers,
    options: Options,
    digest: [u8; 32],
}

impl Plan {
    /// The graph that the plan was compiled from.
    #[must_use]
    pub fn graph(&self) -> &RingGraph {
        &self.graph
    }

    /// The public options that the plan was compiled with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Number of inputs of one offline and one online phase.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Number of elements of a node's tensor, over all inputs of the batch.
    pub(super) fn elements(&self, node: &Node) -> usize {
        self.batch * node.elements()
    }

    /// Digest of what the parties and the dealer must have alike, for the plan for one input.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Whether the client moves its share of a node's tensor to one that the dealer knows.
    #[must_use]
    pub fn moves(&self, node: NodeId) -> bool {
        self.moves[node]
    }

    /// Bytes that the dealer gives the server for a node.
    pub(super) fn dealt_bytes(&self, node: NodeId) -> usize {
        let step = &self.steps[node];
        if self.lattice.place(node).is_some() { 0 } else { dealt_bytes(step, &self.graph.nodes()[node], self.batch) }
    }

    /// The relation of results to the reference. Truncating both shares is off by at most one unit;
    /// linear layers are off only if they are not dealt.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        let (linear, relu_drop) = (self.lattice.max_error(), self.options.relu_drop);
        Numerics::UlpPerTruncation { below: 1, above: 1, linear, relu_drop }
    }
}

/// Returns the size and the costs of a batch of gates.
fn canonical_gate(gate: &DealtGate) -> (usize, usize, usize, usize) {
    let cost = gate.cost();
    (gate.n(), cost.up, cost.down, cost.material)
}

impl MaskedPlan for Plan {
    type Types = DealtStepTypes;

    fn graph(&self) -> &RingGraph {
        &self.graph
    }

    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn masks_node(&self, node: NodeId) -> bool {
        self.lattice.place(node).is_none()
    }
}

/// Compiles a graph.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn compile(graph: RingGraph, options: Options) -> Result<Plan, BackendError> {
    let steps = steps(&graph, &options)?;
    share::check_sizes(&graph, &steps, |step, node| Added { material: dealt_bytes(step, node, 1) as u128, macs: 0 })?;
    let moves = moves(&graph, &steps);
    let lattice = Layers::new(&graph, &masked_bytes(&graph, &steps), options.linear)?;
    let digest = digest(&graph, &options, &steps, &lattice);
    Ok(Plan { graph: Arc::new(graph), steps, batch: 1, moves, lattice, options, digest })
}

/// Returns the plan for `batch` inputs from the plan for one, with the same exchanges.
///
/// # Panics
/// If `one` is the plan of a batch.
#[must_use]
pub fn batched(one: &Plan, batch: usize) -> Plan {
    assert_eq!(one.batch, 1, "plans of batches are made from the plan for one input");
    let steps = one.steps.iter().map(|step| step.times(batch)).collect();
    let (moves, lattice) = (one.moves.clone(), one.lattice.times(batch));
    Plan { graph: Arc::clone(&one.graph), steps, batch, moves, lattice, options: one.options, digest: one.digest }
}

/// The linear layers of a graph, with the bytes of each one's `E` if it is dealt.
fn masked_bytes(graph: &RingGraph, steps: &[Step]) -> Vec<(NodeId, u64)> {
    let nodes = steps.iter().zip(graph.nodes()).enumerate();
    let bytes = nodes.filter_map(|(id, (step, node))| match step {
        Step::Linear(conv) => Some((id, bytes_of(conv.weight_len(), node.fixed.width))),
        _ => None,
    });
    bytes.collect()
}

/// Bytes that the dealer gives the server for a step of `batch` inputs.
pub(super) fn dealt_bytes(step: &Step, node: &Node, batch: usize) -> usize {
    match step {
        Step::Linear(_) => Packed::len_bytes(batch * node.elements(), node.fixed.width),
        Step::Widen(spec) => widen_bytes(spec),
        Step::LookUp(table) => table.material(),
        _ => step.gates().map(|gate| gate.cost().material).sum(),
    }
}

/// Compiles the step of each node.
pub(super) fn steps(graph: &RingGraph, options: &Options) -> Result<Vec<Step>, BackendError> {
    share::steps(graph, &mut Maker { graph, options })
}

/// The tensors whose client share is unknown to the dealer although it is needed. They follow from
/// a linear layer by local steps alone, and a gate or a linear layer reads them or they are the
/// result (so that the client stores nothing but its seed).
pub(super) fn moves(graph: &RingGraph, steps: &[Step]) -> Vec<bool> {
    let mut needed = vec![false; steps.len()];
    needed[graph.spec().output] = true;
    for (step, node) in steps.iter().zip(graph.nodes()) {
        if !matches!(step, Step::Local) {
            node.inputs.iter().for_each(|&i| needed[i] = true);
        }
    }
    // One walk is enough: whether a tensor is moved depends only on earlier tensors.
    let (mut moves, mut unknown) = (vec![false; steps.len()], vec![false; steps.len()]);
    for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
        let made = match step {
            Step::Linear(_) => true,
            Step::Local => node.inputs.iter().any(|&i| unknown[i]),
            _ => false,
        };
        moves[id] = made && needed[id];
        unknown[id] = made && !needed[id];
    }
    moves
}

fn digest(graph: &RingGraph, options: &Options, steps: &[Step], lattice: &Layers) -> [u8; 32] {
    let steps: Vec<_> = steps.iter().map(|s| (s.number(), s.gates().map(canonical_gate).collect::<Vec<_>>())).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps, lattice.choices()));
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest("tacit 2026-11 dealt plan", &[&canonical])
}

/// Compiles steps.
struct Maker<'a> {
    graph: &'a RingGraph,
    options: &'a Options,
}

impl Maker<'_> {
    fn gate(&self, n: usize, width: u32, drop: u32, values: &[Value]) -> DealtGate {
        let [one, two] = [Exchanges::One, Exchanges::Two].map(|e| DealtGate::new(n, width, drop, values.to_vec(), e));
        match self.options.exchanges {
            Choice::One => one,
            Choice::Two => two,
            Choice::Auto => {
                // In microseconds: a bit takes 1 / Mbit.
                let [sent_one, sent_two] =
                    [&one, &two].map(|gate| 8.0 * gate.cost().material as f64 / f64::from(self.options.dealer_mbit));
                let wait = 1000.0 * f64::from(self.options.rtt_ms);
                if sent_one <= sent_two + wait { one } else { two }
            }
        }
    }
}

impl Compile<DealtStepTypes> for Maker<'_> {
    fn linear(&mut self, tensor: NodeId, id: NodeId) -> ConvSpec {
        conv_spec(self.graph, tensor, id)
    }

    fn relu(&mut self, n: usize, width: u32, wide: u32, tests_all_bits: bool) -> Result<DealtGate, String> {
        let drop = if tests_all_bits { 0 } else { self.options.relu_drop.min(width - 4) };
        Ok(self.gate(n, width, drop, &[Value::Tested { wide }]))
    }

    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> DealtGate {
        let values = std::iter::once(Value::Tested { wide: width }).chain(index.map(|width| Value::Other { width }));
        self.gate(n, width, 0, &values.collect::<Vec<_>>())
    }

    fn carry(&mut self, n: usize, bits: u32, width: u32) -> DealtGate {
        self.gate(n, bits + 1, 0, &[Value::MinusOne { width }])
    }

    fn look_up(&mut self, n: usize, width: u32, table: &Table) -> Result<LookUp, String> {
        table.look_up(n, width)
    }

    fn widen(&mut self, n: usize, width: u32, extra: u32) -> WrapSpec {
        WrapSpec { n, width, extra }
    }
}
