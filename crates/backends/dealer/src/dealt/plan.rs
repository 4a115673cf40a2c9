//! What compiling a graph decides: the tensors whose client share moves, the layers that use
//! lattices, and the exchanges of each gate.

use std::cmp::Reverse;

use serde::Serialize;
use tacit_graph::NodeId;
use tacit_mpc::dealt::{DealtGate, Exchanges, Value, widen_bytes};
use tacit_mpc::gate::WrapSpec;

use super::options::{Choice, Linear};
use super::{Dealt, Options};
use crate::session::cost::tensor_bytes;
use crate::session::lattice::Layers;
use crate::session::masked_weights::layer_bytes;
use crate::session::{self, Choices, Scheme};
use tacit_arith::ring::ConvSpec;
use tacit_backend_api::BackendError;
use tacit_ring::share::{self, Added, StepTypes};
use tacit_ring::{Node, RingGraph};

/// Length of a party's seed, in bytes.
pub(super) const SEED_BYTES: usize = 16;

pub(super) type Plan = session::Plan<Dealt>;
pub(super) type Step = share::Step<Dealt>;

impl StepTypes for Dealt {
    type Linear = ConvSpec;
    type Gate = DealtGate;
    type Widen = WrapSpec;
}

impl Scheme for Dealt {
    const NAME: &'static str = super::options::NAME;
    const VERSION: u32 = super::VERSION;
    type Options = Options;
    const LATTICES: bool = true;

    fn gate(options: &Options, n: usize, width: u32, drop: u32, values: Vec<Value>) -> DealtGate {
        let [one_exchange, two_exchanges] =
            [Exchanges::One, Exchanges::Two].map(|e| DealtGate::new(n, width, drop, values.clone(), e));
        match options.exchanges {
            Choice::One => one_exchange,
            Choice::Two => two_exchanges,
            Choice::Auto => {
                // In microseconds: a bit takes 1 / Mbit.
                let [sent_one, sent_two] = [&one_exchange, &two_exchanges]
                    .map(|gate| 8.0 * gate.cost().material as f64 / f64::from(options.dealer_mbit));
                let wait = 1000.0 * f64::from(options.rtt_ms);
                if sent_one <= sent_two + wait { one_exchange } else { two_exchanges }
            }
        }
    }

    fn widen(_: &Options, spec: WrapSpec) -> WrapSpec {
        spec
    }

    fn added(step: &Step, node: &Node, _: &Options) -> Added {
        Added { material: dealt_bytes(step, node, 1) as u128, macs: 0 }
    }

    fn choose(graph: &RingGraph, steps: &[Step], options: &Options) -> Result<Choices, BackendError> {
        let lattice = Layers::new(graph, &choose_lattice_layers(&masked_bytes(graph, steps), options.linear))?;
        Ok(Choices { moved_tensors: moved_tensors(graph, steps), lattice })
    }

    fn canonical_gate(gate: &DealtGate) -> impl Serialize {
        let cost = gate.cost();
        [gate.n(), cost.up, cost.down, cost.material]
    }
}

impl Plan {
    /// Whether the client moves its share of a node's tensor to one that the dealer knows.
    pub(super) fn is_moved(&self, node: NodeId) -> bool {
        self.choices.moved_tensors[node]
    }

    /// Length of the server's half, in bytes.
    pub(super) fn half_bytes(&self) -> usize {
        SEED_BYTES + (0..self.steps.len()).map(|id| self.step_bytes_dealt(id)).sum::<usize>()
    }

    /// Length of the server's material, in bytes. Adds the server's shares of linear layers that
    /// are not dealt, and the differences by which the client moves its shares.
    pub(super) fn material_bytes(&self) -> usize {
        let added = self.graph.nodes().iter().enumerate().map(|(id, node)| {
            let tensors = usize::from(self.choices.lattice.place(id).is_some()) + usize::from(self.is_moved(id));
            tensors * tensor_bytes(node, self.batch)
        });
        self.half_bytes() + added.sum::<usize>()
    }

    /// Bytes that the dealer gives the server for a step: 0 for layers that use lattices.
    pub(super) fn step_bytes_dealt(&self, node: NodeId) -> usize {
        let step = &self.steps[node];
        if self.choices.lattice.place(node).is_some() {
            0
        } else {
            dealt_bytes(step, &self.graph.nodes()[node], self.batch)
        }
    }
}

/// The linear layers of a graph, with the bytes of each one's `E` if it is dealt.
fn masked_bytes(graph: &RingGraph, steps: &[Step]) -> Vec<(NodeId, u64)> {
    let nodes = steps.iter().zip(graph.nodes()).enumerate();
    let bytes = nodes.filter_map(|(id, (step, node))| match step {
        Step::Linear(conv) => Some((id, layer_bytes(conv.weight_len(), node.fixed.width))),
        _ => None,
    });
    bytes.collect()
}

/// Bytes that the dealer gives the server for a step of `batch` inputs.
pub(super) fn dealt_bytes(step: &Step, node: &Node, batch: usize) -> usize {
    match step {
        Step::Linear(_) => tensor_bytes(node, batch),
        Step::Widen(spec) => widen_bytes(spec),
        Step::LookUp(table) => table.material(),
        _ => step.gates().map(|gate| gate.cost().material).sum(),
    }
}

/// The tensors whose client share is unknown to the dealer although it is needed. They follow from
/// a linear layer by local steps alone, and a gate or a linear layer reads them or they are the
/// result (so that the client stores nothing but its seed).
pub(super) fn moved_tensors(graph: &RingGraph, steps: &[Step]) -> Vec<bool> {
    let mut needed = vec![false; steps.len()];
    needed[graph.spec().output] = true;
    for (step, node) in steps.iter().zip(graph.nodes()) {
        if !matches!(step, Step::Local) {
            node.inputs.iter().for_each(|&i| needed[i] = true);
        }
    }
    // One walk is enough: whether a tensor is moved depends only on earlier tensors.
    let (mut moved, mut unknown) = (vec![false; steps.len()], vec![false; steps.len()]);
    for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
        let is_unknown = match step {
            Step::Linear(_) => true,
            Step::Local => node.inputs.iter().any(|&i| unknown[i]),
            _ => false,
        };
        moved[id] = is_unknown && needed[id];
        unknown[id] = is_unknown && !needed[id];
    }
    moved
}

/// Returns the `layers` that use lattices under the option `linear`. `layers` are nodes in order,
/// with the bytes of `E` of each.
fn choose_lattice_layers(layers: &[(NodeId, u64)], linear: Linear) -> Vec<NodeId> {
    let limit = match linear {
        Linear::Dealt => return Vec::new(),
        Linear::He => return layers.iter().map(|(id, _)| *id).collect(),
        Linear::Auto { limit } => limit,
    };
    let mut largest = layers.to_vec();
    // The sort is stable: of layers of equal size, the first in the graph stays first.
    largest.sort_by_key(|(_, bytes)| Reverse(*bytes));
    let mut dealt: u64 = layers.iter().map(|(_, bytes)| bytes).sum();
    let mut lattice_layers = Vec::new();
    for (id, bytes) in largest.into_iter().filter(|(_, bytes)| *bytes > 0) {
        if dealt <= limit {
            break;
        }
        dealt -= bytes;
        lattice_layers.push(id);
    }
    lattice_layers.sort_unstable();
    lattice_layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_layers_use_lattices_first() {
        let layers = [(1, 3), (4, 9), (6, 9), (8, 1)];
        let choose = |limit| choose_lattice_layers(&layers, Linear::Auto { limit });
        assert!(choose(22).is_empty() && choose_lattice_layers(&layers, Linear::Dealt).is_empty());
        assert_eq!(choose(21), [4]);
        assert_eq!(choose(13), [4]);
        assert_eq!(choose(12), [4, 6]);
        assert_eq!(choose(3), [1, 4, 6]);
        assert_eq!(choose(0), [1, 4, 6, 8]);
        assert_eq!(choose_lattice_layers(&layers, Linear::He), [1, 4, 6, 8]);
    }
}
