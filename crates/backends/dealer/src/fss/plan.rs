//! Compiles a graph to a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::{LookUp, Value};
use tacit_mpc::fss::gate::{FssCost, FssGate, FssLookUp, FssWiden};

use super::mac_matmul;
use super::{Level, Options, linear_check};
use crate::dealt::masked_weights::MaskedPlan;
use tacit_backend_api::{BackendError, Numerics, seam};
use tacit_ring::share::{self, Added, Compile, StepTypes, conv_spec};
use tacit_ring::{Node, RingGraph, Table};

/// The step types of this back end.
pub(crate) struct FssStepTypes;

impl StepTypes for FssStepTypes {
    type Linear = ConvSpec;
    type Gate = FssGate;
    type Widen = FssWiden;
}

pub(crate) type Step = share::Step<FssStepTypes>;

/// A compiled model.
pub struct Plan {
    pub(super) graph: Arc<RingGraph>,
    /// The steps, for all inputs of the batch.
    pub(super) steps: Vec<Step>,
    /// Number of inputs in the batch.
    pub(super) batch: usize,
    options: Options,
    digest: [u8; 32],
    binding: [u8; 32],
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

    /// The parties whose messages are checked.
    pub(super) fn level(&self) -> Level {
        self.options.level
    }

    /// Digest of what the parties and the dealer must have alike, for the plan for one input.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Digest that material is bound to: the plan, the model it is [`bound_to`](Self::bound_to),
    /// and the batch.
    #[must_use]
    pub fn binding(&self) -> [u8; 32] {
        self.binding
    }

    /// Binds the plan to a model, by the digests of its masked weights and of the keys of their
    /// masks.
    #[must_use]
    pub fn bound_to(self, [masked_weights, keys]: [&[u8; 32]; 2]) -> Self {
        let binding = seam::digest("tacit 2026-11 fss", &[&self.digest, masked_weights, keys]);
        Self { binding, ..self }
    }

    /// The relation of results to the reference: truncating both shares is off by at most one unit.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        Numerics::UlpPerTruncation { below: 1, above: 1, linear: 0, relu_drop: self.options.relu_drop }
    }

    /// Widths of the words that the client sends offline, and online.
    pub(super) fn widths(&self) -> [BTreeSet<u32>; 2] {
        let (mut offline, mut online) = (BTreeSet::new(), BTreeSet::new());
        for (step, node) in self.steps.iter().zip(self.graph.nodes()) {
            match step {
                Step::Linear(_) => drop(offline.insert(node.fixed.width)),
                Step::Widen(_) | Step::LookUp(_) => drop(online.insert(node.fixed.width)),
                _ => {
                    let gates = step.gates().filter(|gate| gate.n() > 0);
                    online.extend(gates.flat_map(|gate| gate.values().iter().map(|v| v.width())));
                }
            }
        }
        [offline, online]
    }
}

/// Returns the size and the costs of a batch of gates.
fn canonical_gate(gate: &FssGate) -> (usize, usize, usize, usize, usize) {
    let cost = gate.cost();
    (gate.n(), cost.up, cost.down, cost.client_material, cost.server_material)
}

impl MaskedPlan for Plan {
    type Types = FssStepTypes;

    fn graph(&self) -> &RingGraph {
        &self.graph
    }

    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn biases(&self) -> bool {
        self.level() == Level::L2
    }
}

/// Compiles a graph.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn compile(graph: RingGraph, options: Options) -> Result<Plan, BackendError> {
    let steps = steps(&graph, &options)?;
    share::check_sizes(&graph, &steps, |step, node| added(step, node, options.level))?;
    for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
        if let Step::Linear(conv) = step
            && let Err(what) = mac_matmul::check(conv, node.fixed.width)
        {
            return Err(BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what });
        }
    }
    let digest = digest(&graph, &options, &steps);
    Ok(Plan { graph: Arc::new(graph), steps, batch: 1, options, digest, binding: digest })
}

/// Returns the material and the multiplications of a step beside those of its weights.
fn added(step: &Step, node: &Node, level: Level) -> Added {
    let of_batches = batches(step, level).map(|cost| cost.server_material as u128).sum::<u128>();
    let material = of_batches + LinearBytes::of(step, node, (level, 1)).dealt() as u128;
    let macs = match step {
        Step::Linear(conv) if level == Level::L2 => linear_check::work(conv).iter().map(|n| u128::from(*n)).sum(),
        _ => 0,
    };
    Added { material, macs }
}

/// Returns the plan for `batch` inputs from the plan for one, with the same exchanges.
///
/// # Panics
/// If `one` is the plan of a batch.
#[must_use]
pub fn batched(one: &Plan, batch: usize) -> Plan {
    assert_eq!(one.batch, 1, "plans of batches are made from the plan for one input");
    let steps = one.steps.iter().map(|step| step.times(batch)).collect();
    let (graph, binding) = (Arc::clone(&one.graph), seam::batch_digest(&one.binding, batch));
    Plan { graph, steps, batch, options: one.options, digest: one.digest, binding }
}

/// The costs of a step's batches of gates, widenings and look-ups.
pub(super) fn batches(step: &Step, level: Level) -> impl Iterator<Item = FssCost> {
    let more = match step {
        Step::Widen(spec) => Some(spec.cost()),
        Step::LookUp(table) => Some(tagged(table, level).cost()),
        _ => None,
    };
    step.gates().filter(|gate| gate.n() > 0).map(|gate| gate.cost()).chain(more)
}

/// The look-up with tags.
pub(super) fn tagged(table: &LookUp, level: Level) -> FssLookUp {
    FssLookUp::new(table, level.checked()).expect("tables are checked when a plan is made")
}

/// Bytes of a linear layer in the server's half, for a batch of inputs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinearBytes {
    /// `A r - t`.
    pub(super) words: usize,
    /// Values that check the client's words, or the server's own shares. Not needed online.
    pub(super) checked: usize,
    /// Values that check the layer's result, at level `l2`.
    pub(super) projected: usize,
}

impl LinearBytes {
    /// The sizes for a step; zeros for a step other than a linear layer.
    pub(super) fn of(step: &Step, node: &Node, (level, batch): (Level, usize)) -> Self {
        let Step::Linear(conv) = step else { return Self::default() };
        let (n, width) = (batch * node.elements(), node.fixed.width);
        let words = tacit_mpc::codec::Packed::len_bytes(n, width);
        let each = (batch * conv.in_len() + n) * mac_matmul::word_bytes(mac_matmul::ring(width));
        match level {
            Level::L1 => Self { words, checked: each, projected: 0 },
            Level::L2 => Self { words, checked: 2 * each, projected: linear_check::bytes(conv, width, batch) },
        }
    }

    /// Bytes that are dealt.
    pub(super) fn dealt(&self) -> usize {
        self.words + self.checked + self.projected
    }

    /// Bytes that are stored for the online phase.
    pub(super) fn kept(&self) -> usize {
        self.words + self.projected
    }
}

/// Compiles the step of each node.
pub(super) fn steps(graph: &RingGraph, options: &Options) -> Result<Vec<Step>, BackendError> {
    share::steps(graph, &mut Maker { graph, options })
}

fn digest(graph: &RingGraph, options: &Options, steps: &[Step]) -> [u8; 32] {
    let steps: Vec<_> = steps.iter().map(|s| (s.number(), s.gates().map(canonical_gate).collect::<Vec<_>>())).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps));
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest("tacit 2026-11 fss plan", &[&canonical])
}

/// Compiles steps.
struct Maker<'a> {
    graph: &'a RingGraph,
    options: &'a Options,
}

impl Maker<'_> {
    fn gate(&self, n: usize, width: u32, drop: u32, values: Vec<Value>) -> FssGate {
        FssGate::new(n, width, drop, values, self.options.level.checked())
    }
}

impl Compile<FssStepTypes> for Maker<'_> {
    fn linear(&mut self, tensor: NodeId, id: NodeId) -> ConvSpec {
        conv_spec(self.graph, tensor, id)
    }

    fn relu(&mut self, n: usize, width: u32, wide: u32, tests_all_bits: bool) -> Result<FssGate, String> {
        let drop = if tests_all_bits { 0 } else { self.options.relu_drop.min(width - 4) };
        Ok(self.gate(n, width, drop, vec![Value::Tested { wide }]))
    }

    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> FssGate {
        let values = std::iter::once(Value::Tested { wide: width }).chain(index.map(|width| Value::Other { width }));
        self.gate(n, width, 0, values.collect())
    }

    fn carry(&mut self, n: usize, bits: u32, width: u32) -> FssGate {
        self.gate(n, bits + 1, 0, vec![Value::MinusOne { width }])
    }

    fn look_up(&mut self, n: usize, width: u32, table: &Table) -> Result<LookUp, String> {
        let (made, name, bits) = (table.look_up(n, width)?, table.function.name(), table.index_bits());
        FssLookUp::new(&made, self.options.level.checked()).map(|_| made).map_err(|_| {
            format!(
                "{name} in a table of 2^{bits} entries: a table with tags has 2^12 at most; lower it with \
                 table_bits=12 or less, or take the back end `dealt`"
            )
        })
    }

    fn widen(&mut self, n: usize, width: u32, extra: u32) -> FssWiden {
        FssWiden { n, width, extra, checked: self.options.level.checked() }
    }
}
