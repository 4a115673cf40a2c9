//! What the costs of all back ends with a dealer share. Traffic is exact, memory is an estimate.

use tacit_mpc::Role;
use tacit_mpc::codec::Packed;
use tacit_net::TrafficModel;

use super::correlation::Correlation;
use super::plan::{Plan, Scheme};
use super::setup;
use tacit_backend_api::{Costs, DealingCost, PartyCost};
use tacit_ring::Node;
use tacit_ring::share::Batch;

/// Weight of material against bytes between the parties in the search for scales: the dealer's link
/// is some ten times faster.
pub(crate) const MATERIAL_WORTH: f64 = 0.1;

/// Bytes of a node's tensor as it is sent, for `batch` inputs.
pub(crate) fn tensor_bytes(node: &Node, batch: usize) -> usize {
    Packed::len_bytes(batch * node.elements(), node.fixed.width)
}

/// Bytes of the largest tensor, in words.
pub(crate) fn largest_tensor<C: Scheme>(plan: &Plan<C>) -> u64 {
    plan.graph.nodes().iter().map(|n| 8 * plan.elements(n) as u64).max().expect("a graph has nodes")
}

/// The bytes of each matrix of `E` in memory.
pub(crate) fn matrix_bytes<C: Scheme>(plan: &Plan<C>) -> impl Iterator<Item = u64> {
    // An entry is stored as 4 bytes, or 8 in rings beyond 32 bits.
    plan.masked_layers().map(|layer| layer.conv.weight_len() as u64 * if layer.width > 32 { 8 } else { 4 })
}

/// Begins a plan's costs from the traffic of its phases: comparisons, multiplications of the online
/// phase, the setup, and bytes of the halves.
pub(crate) fn base_costs<C: Correlation>(plan: &Plan<C>, offline: TrafficModel, online: TrafficModel) -> Costs {
    let [client, server] = [Role::Client, Role::Server].map(|role| C::half_bytes(plan, role));
    let (mut setup, lattice) = (setup::traffic(plan), &plan.choices.lattice);
    lattice.add_setup_traffic(&mut setup);
    let mut costs = Costs {
        setup: setup.into(),
        offline: offline.into(),
        online: online.into(),
        weights: plan.graph.weights(),
        dealing: DealingCost {
            client_bytes: client.dealt_len(),
            server_bytes: server.dealt_len(),
            ..DealingCost::default()
        },
        ..Costs::default()
    };
    costs.comparisons = plan.steps.iter().flat_map(|step| step.gates()).map(|gate| gate.n() as u64).sum();
    costs.online.server.work.macs = plan.batch as u64 * plan.graph.macs();
    costs.setup.client.stored_bytes = matrix_bytes(plan).sum();
    // The matrices are streamed.
    costs.setup.client.peak_memory_bytes = costs.setup.client.stored_bytes + (64 << 20);
    costs.setup.server.peak_memory_bytes = 64 << 20;
    costs.setup.add_work(PartyCost::default(), lattice.keys());
    costs.offline.client.stored_bytes = client.stored_len();
    costs.offline.server.stored_bytes = server.stored_len();
    costs
}
