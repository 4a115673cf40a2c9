//! Costs of one input or a batch, from the plan alone. Traffic is exact, memory is an estimate.

use tacit_mpc::codec::Packed;
use tacit_mpc::dealt::widen_talk;
use tacit_net::TrafficModel;

use super::dealer::SEED_BYTES;
use super::options::Options;
use super::plan::{self, Plan, Step};
use super::{audit, masked_weights, server, setup};
use tacit_backend_api::{BackendError, Costs, DealingCost, PartyCost, Work};
use tacit_ring::{Node, RingGraph};

/// Weight of the server's material against bytes between the parties in the search for scales: the
/// dealer's link is some ten times faster.
const MATERIAL_WORTH: f64 = 0.1;

fn packed(node: &Node, batch: usize) -> usize {
    Packed::len_bytes(batch * node.elements(), node.fixed.width)
}

/// The price that the search for scales minimises.
pub(super) fn price(graph: &RingGraph, options: &Options) -> Result<f64, BackendError> {
    let steps = plan::steps(graph, options)?;
    let moves = plan::moves(graph, &steps);
    let mut total = online_talk(graph, &steps, 1).payload() as f64;
    for ((step, node), moved) in steps.iter().zip(graph.nodes()).zip(moves) {
        total += if moved { packed(node, 1) as f64 } else { 0.0 };
        total += MATERIAL_WORTH * plan::dealt_bytes(step, node, 1) as f64;
    }
    Ok(total)
}

/// The traffic of the online phase.
fn online_talk(graph: &RingGraph, steps: &[Step], batch: usize) -> TrafficModel {
    let mut talk = TrafficModel::default();
    for (step, node) in steps.iter().zip(graph.nodes()) {
        match step {
            Step::Input => talk.up(packed(node, batch)),
            Step::Widen(spec) => widen_talk(spec, &mut talk),
            Step::LookUp(table) => table.talk(&mut talk),
            Step::Linear(_) | Step::Local => {}
            Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                step.gates().filter(|gate| gate.n() > 0).for_each(|gate| gate.talk(&mut talk));
            }
        }
    }
    talk.down(packed(graph.output(), batch));
    talk
}

/// The traffic of the setup: keys for layers that are not dealt, and `E` of the others.
fn setup_talk(plan: &Plan) -> TrafficModel {
    let mut talk = setup::talk(masked_weights::bytes(plan));
    plan.lattice.setup_talk(&mut talk);
    talk
}

/// Multiplications of the dealt linear layers.
fn dealt_macs(plan: &Plan) -> u64 {
    let of_layers =
        masked_weights::layers(plan).map(|(_, conv, _)| (conv.weight_len() / conv.out_ch * conv.out_len()) as u64);
    plan.batch as u64 * of_layers.sum::<u64>()
}

/// The traffic of the offline phase: the order, layers that are not dealt, and the moves of shares.
fn offline_talk(plan: &Plan, half: u64) -> TrafficModel {
    let mut talk = TrafficModel::default();
    audit::talk(plan.options().audit, [SEED_BYTES as u64, half], &mut talk);
    for (id, node) in plan.graph.nodes().iter().enumerate() {
        plan.lattice.talk(id, &mut talk);
        if plan.moves(id) {
            talk.up(packed(node, plan.batch));
        }
    }
    talk
}

/// AES blocks of both parties' streams, for a step.
fn aes(step: &Step) -> [u64; 2] {
    let table = if let Step::LookUp(table) = step { Some(table.cost()) } else { None };
    let all = step.gates().filter(|gate| gate.n() > 0).map(|gate| gate.cost()).chain(table);
    all.fold([0, 0], |[client, server], one| [client + one.client_aes as u64, server + one.server_aes as u64])
}

/// The costs of a plan's inputs, of the setup, and of dealing.
pub(super) fn costs(plan: &Plan) -> Costs {
    let half = server::half_bytes(plan) as u64;
    let mut costs = Costs {
        setup: setup_talk(plan).into(),
        offline: offline_talk(plan, half).into(),
        online: online_talk(&plan.graph, &plan.steps, plan.batch).into(),
        weights: plan.graph.weights(),
        ..Costs::default()
    };
    for step in &plan.steps {
        let [client, server] = aes(step);
        costs.online.client.work.aes_blocks += client;
        costs.online.server.work.aes_blocks += server;
        costs.comparisons += step.gates().map(|g| g.n() as u64).sum::<u64>();
    }
    costs.online.server.work.macs = plan.batch as u64 * plan.graph.macs();
    let macs = dealt_macs(plan);
    costs.offline.client.work = Work { macs, ..Work::default() };
    costs.offline.client.stored_bytes = SEED_BYTES as u64;
    costs.offline.server.stored_bytes = server::material_bytes(plan) as u64;
    let [client, server] = plan.lattice.work();
    costs.offline.add_work(client, server);
    let largest = plan.graph.nodes().iter().map(|n| 8 * plan.elements(n) as u64).max().expect("a graph has nodes");
    // A matrix entry is stored as 4 bytes, or 8 in rings beyond 32 bits.
    let matrices: u64 =
        masked_weights::layers(plan).map(|(_, c, width)| c.weight_len() as u64 * if width > 32 { 8 } else { 4 }).sum();
    memory(plan, &mut costs, [matrices, largest]);
    let gates = costs.online.client.work.aes_blocks + costs.online.server.work.aes_blocks;
    let layer = masked_weights::layers(plan).map(|(_, c, _)| 4 * c.weight_len() as u64).max().unwrap_or(0);
    costs.dealing = DealingCost {
        client_bytes: SEED_BYTES as u64,
        server_bytes: half,
        work: Work { macs, aes_blocks: gates + matrices / 16, ..Work::default() },
        peak_memory_bytes: 2 * layer.min(masked_weights::AT_ONCE_BYTES) + 8 * largest,
    };
    costs
}

/// Sets the phases' peak memory, on top of the ciphertexts of layers that are not dealt, which are
/// counted already. `matrices` are the bytes of `E` in memory, `largest` those of the largest
/// tensor.
fn memory(plan: &Plan, costs: &mut Costs, [matrices, largest]: [u64; 2]) {
    costs.setup.client.stored_bytes = matrices;
    // The matrices are streamed.
    costs.setup.client.peak_memory_bytes = matrices + (64 << 20);
    costs.setup.server.peak_memory_bytes = 64 << 20;
    costs.setup.add_work(PartyCost::default(), plan.lattice.keys());
    let kept = costs.offline.server.stored_bytes;
    costs.offline.client.peak_memory_bytes += matrices + 4 * largest;
    // A server with a folder for material holds little of it in memory.
    costs.offline.server.peak_memory_bytes += kept + 2 * largest;
    costs.online.client.peak_memory_bytes = 6 * largest;
    costs.online.server.peak_memory_bytes = kept + 6 * largest;
}
