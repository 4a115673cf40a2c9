//! From the graph to a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::Value;
use tacit_mpc::fss::gate::{FssGate, FssWiden};

use super::wide;
use super::{Level, Options, project};
use crate::dealt::statics::Masked;
use crate::ring::share::{self, Batch, Compile, Kind, Times, conv_spec};
use crate::ring::{Node, RingGraph};
use crate::{BackendError, Numerics, seam};

/// The steps of this back end.
pub(crate) struct Parts;

impl Kind for Parts {
    type Linear = ConvSpec;
    type Gate = FssGate;
    type Widen = FssWiden;
}

impl Batch for FssGate {
    fn n(&self) -> usize {
        self.n()
    }
}

impl Times for FssGate {
    fn times(&self, batch: usize) -> Self {
        self.times(batch)
    }
}

impl Times for FssWiden {
    fn times(&self, batch: usize) -> Self {
        Self { n: batch * self.n, ..*self }
    }
}

pub(crate) type Step = share::Step<Parts>;

/// A compiled model.
pub struct Plan {
    pub(super) graph: Arc<RingGraph>,
    /// Of all inputs of the batch.
    pub(super) steps: Vec<Step>,
    /// Inputs at once.
    pub(super) batch: usize,
    options: Options,
    digest: [u8; 32],
    binding: [u8; 32],
}

impl Plan {
    /// The graph it was compiled from.
    #[must_use]
    pub fn graph(&self) -> &RingGraph {
        &self.graph
    }

    /// The public choices it was compiled with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Inputs that one offline and one online phase are for.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Elements that a node's tensor has, of all inputs of the batch.
    pub(super) fn elements(&self, node: &Node) -> usize {
        self.batch * node.elements()
    }

    /// Whose messages are checked.
    pub(super) fn level(&self) -> Level {
        self.options.level
    }

    /// Digest of all that the parties and the dealer must have alike; of the plan for one input.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// What material is bound to: the plan, the `E` it is [`bound_to`](Self::bound_to), and the batch.
    #[must_use]
    pub fn binding(&self) -> [u8; 32] {
        self.binding
    }

    /// The same plan for one model: material belongs to the model whose masked weights have this digest.
    #[must_use]
    pub fn bound_to(self, statics: &[u8; 32]) -> Self {
        let binding = seam::digest("tacit 2026-11 fss", &[&self.digest, statics]);
        Self { binding, ..self }
    }

    /// How results relate to the reference: truncations of both shares are off by one unit at most.
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
                Step::Widen(_) => drop(online.insert(node.fixed.width)),
                _ => {
                    let gates = step.gates().filter(|gate| gate.n() > 0);
                    online.extend(gates.flat_map(|gate| gate.values().iter().map(|v| v.width())));
                }
            }
        }
        [offline, online]
    }
}

impl Masked for Plan {
    type Parts = Parts;

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
    let most = |step: &Step, node: &Node| {
        let of_gates = step.gates().map(|gate| gate.cost().server_material as u128).sum::<u128>();
        of_gates + linear_bytes(step, node, (options.level, 1)).map_or(0, |[words, tags]| (words + tags) as u128)
    };
    share::check_sizes(&graph, &steps, most)?;
    for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
        if let Step::Linear(conv) = step
            && let Err(what) = wide::check(conv, node.fixed.width)
        {
            return Err(BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what });
        }
    }
    let digest = digest(&graph, &options, &steps);
    Ok(Plan { graph: Arc::new(graph), steps, batch: 1, options, digest, binding: digest })
}

/// The plan for `batch` inputs at once that follows from a plan for one, with the same exchanges.
///
/// # Panics
/// If the plan is for several inputs already.
#[must_use]
pub fn batched(one: &Plan, batch: usize) -> Plan {
    assert_eq!(one.batch, 1, "plans of batches are made from the plan for one input");
    let steps = one.steps.iter().map(|step| step.times(batch)).collect();
    let (graph, binding) = (Arc::clone(&one.graph), seam::batch_digest(&one.binding, batch));
    Plan { graph, steps, batch, options: one.options, digest: one.digest, binding }
}

/// Of a linear layer of `batch` inputs, bytes of the server's words `A r - t`, and of what it checks tags
/// with; where both parties are checked, of its shares and of what its results are checked by.
pub(super) fn linear_bytes(step: &Step, node: &Node, (level, batch): (Level, usize)) -> Option<[usize; 2]> {
    let Step::Linear(conv) = step else { return None };
    let (n, width) = (batch * node.elements(), node.fixed.width);
    let words = tacit_mpc::codec::Packed::len_bytes(n, width);
    let each = (batch * conv.in_len() + n) * wide::word_bytes(wide::ring(width));
    let rest = match level {
        Level::L1 => each,
        Level::L2 => 2 * each + project::bytes(conv, width, batch),
    };
    Some([words, rest])
}

/// How each node is evaluated.
pub(super) fn steps(graph: &RingGraph, options: &Options) -> Result<Vec<Step>, BackendError> {
    share::steps(graph, &mut Maker { graph, options })
}

fn digest(graph: &RingGraph, options: &Options, steps: &[Step]) -> [u8; 32] {
    let gate = |gate: &FssGate| {
        let cost = gate.cost();
        (gate.n(), cost.up, cost.down, cost.client_material, cost.server_material)
    };
    let steps: Vec<_> = steps.iter().map(|s| (s.number(), s.gates().map(gate).collect::<Vec<_>>())).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps));
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest("tacit 2026-11 fss plan", &[&canonical])
}

/// Makes steps.
struct Maker<'a> {
    graph: &'a RingGraph,
    options: &'a Options,
}

impl Maker<'_> {
    fn gate(&self, n: usize, (width, drop): (u32, u32), values: Vec<Value>) -> FssGate {
        FssGate::new(n, width, drop, values, self.options.level.checked())
    }
}

impl Compile<Parts> for Maker<'_> {
    fn linear(&mut self, tensor: NodeId, id: NodeId) -> ConvSpec {
        conv_spec(self.graph, tensor, id)
    }

    fn relu(&mut self, n: usize, width: u32, wide: u32) -> Result<FssGate, String> {
        Ok(self.gate(n, (width, self.options.relu_drop.min(width - 4)), vec![Value::Tested { wide }]))
    }

    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> FssGate {
        let values = std::iter::once(Value::Tested { wide: width }).chain(index.map(|width| Value::Other { width }));
        self.gate(n, (width, 0), values.collect())
    }

    fn carry(&mut self, n: usize, bits: u32, width: u32) -> FssGate {
        self.gate(n, (bits + 1, 0), vec![Value::MinusOne { width }])
    }

    fn widen(&mut self, n: usize, width: u32, extra: u32) -> FssWiden {
        FssWiden { n, width, extra, checked: self.options.level.checked() }
    }
}
