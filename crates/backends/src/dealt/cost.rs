//! What one input or a batch costs, from the plan alone. Payload bytes: frame headers come on top. Memory is
//! an estimate.

use tacit_mpc::codec::Packed;
use tacit_mpc::dealt::DealtCost;

use super::dealer::SEED_BYTES;
use super::options::Options;
use super::plan::{self, Plan, Step};
use super::{audit, server, statics};
use crate::ring::{Node, RingGraph};
use crate::{BackendError, Costs, DealingCost, PhaseCost, Work};

/// What of a server's material counts beside bytes between the parties when scales are searched: it comes
/// over a link that is some ten times faster.
const MATERIAL_WORTH: f64 = 0.1;

fn packed(node: &Node, batch: usize) -> u64 {
    Packed::len_bytes(batch * node.elements(), node.fixed.width) as u64
}

/// The price that the search for scales goes by.
pub(super) fn price(graph: &RingGraph, options: &Options) -> Result<f64, BackendError> {
    let steps = plan::steps(graph, options)?;
    let moves = plan::moves(graph, &steps);
    let mut total = result(graph, 1).bytes() as f64;
    for ((step, node), moved) in steps.iter().zip(graph.nodes()).zip(moves) {
        total += online(step, node, 1).bytes() as f64;
        total += if moved { packed(node, 1) as f64 } else { 0.0 };
        total += MATERIAL_WORTH * plan::dealt_bytes(step, node, 1) as f64;
    }
    Ok(total)
}

fn result(graph: &RingGraph, batch: usize) -> PhaseCost {
    PhaseCost { down_bytes: packed(graph.output(), batch), exchanges: 1, ..PhaseCost::default() }
}

fn add(cost: &mut PhaseCost, one: &DealtCost) {
    cost.up_bytes += one.up as u64;
    cost.down_bytes += one.down as u64;
    cost.exchanges += one.exchanges as u64;
    cost.client.work.aes_blocks += one.client_aes as u64;
    cost.server.work.aes_blocks += one.server_aes as u64;
}

fn online(step: &Step, node: &Node, batch: usize) -> PhaseCost {
    let mut cost = PhaseCost::default();
    match step {
        Step::Input => cost.up_bytes = packed(node, batch),
        Step::Widen(spec) => {
            cost.up_bytes = Packed::len_bytes(spec.n, spec.extra) as u64;
            cost.down_bytes = spec.n.div_ceil(8) as u64;
            cost.exchanges = 1;
        }
        Step::LookUp(table) => add(&mut cost, &table.cost()),
        Step::Linear(_) | Step::Local => {}
        Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
            for gate in step.gates().filter(|g| g.n() > 0) {
                add(&mut cost, &gate.cost());
            }
        }
    }
    cost
}

/// Costs of a plan's inputs, of the setup, and of dealing.
pub(super) fn costs(plan: &Plan) -> Costs {
    let statics = statics::bytes(plan);
    let macs = plan.batch as u64 * plan.graph.macs();
    let mut costs = Costs { online: result(&plan.graph, plan.batch), ..Costs::default() };
    for (step, node) in plan.steps.iter().zip(plan.graph.nodes()) {
        costs.online += online(step, node, plan.batch);
        costs.comparisons += step.gates().map(|g| g.n() as u64).sum::<u64>();
    }
    costs.online.server.work.macs = macs;
    let (half, moved) = (server::half_bytes(plan) as u64, server::moved_bytes(plan) as u64);
    let largest = plan.graph.nodes().iter().map(|n| 8 * plan.elements(n) as u64).max().expect("a graph has nodes");
    // A matrix entry is kept as 4 bytes, or 8 in rings beyond 32 bits.
    let matrices: u64 =
        statics::layers(plan).map(|(_, c, width)| c.weight_len() as u64 * if width > 32 { 8 } else { 4 }).sum();
    costs.setup = PhaseCost { up_bytes: 1, down_bytes: statics, exchanges: 1, ..PhaseCost::default() };
    costs.setup.client.stored_bytes = matrices;
    // Taken as it comes.
    costs.setup.client.peak_memory_bytes = matrices + (64 << 20);
    costs.setup.server.peak_memory_bytes = 64 << 20;
    let ([up, down], exchanges) = audit::costs(plan.options().audit, [SEED_BYTES as u64, half]);
    costs.offline = PhaseCost { up_bytes: moved + up, down_bytes: down, exchanges, ..PhaseCost::default() };
    costs.offline.client.work = Work { macs, ..Work::default() };
    costs.offline.client.stored_bytes = SEED_BYTES as u64;
    costs.offline.server.stored_bytes = half + moved;
    costs.offline.client.peak_memory_bytes = matrices + 4 * largest;
    // A server with a folder for material holds little of it in memory.
    costs.offline.server.peak_memory_bytes = half + moved + 2 * largest;
    costs.online.client.peak_memory_bytes = 6 * largest;
    costs.online.server.peak_memory_bytes = half + moved + 6 * largest;
    let gates = costs.online.client.work.aes_blocks + costs.online.server.work.aes_blocks;
    let layer = statics::layers(plan).map(|(_, c, _)| 4 * c.weight_len() as u64).max().unwrap_or(0);
    costs.dealing = DealingCost {
        client_bytes: SEED_BYTES as u64,
        server_bytes: half,
        work: Work { macs, aes_blocks: gates + matrices / 16, ..Work::default() },
        peak_memory_bytes: 2 * layer.min(statics::AT_ONCE_BYTES) + 8 * largest,
    };
    costs
}
