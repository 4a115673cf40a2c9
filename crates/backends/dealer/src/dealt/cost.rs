//! Costs of one input or a batch, from the plan alone. Traffic is exact, memory is an estimate.

use tacit_mpc::dealt::add_widen_traffic;
use tacit_net::{Sides, TrafficModel};

use super::plan::{self, Plan, SEED_BYTES, Step};
use super::{Dealt, Options};
use crate::session::cost::{self, MATERIAL_WORTH, largest_tensor, matrix_bytes, tensor_bytes};
use crate::session::{Costed, LinearLayer, audit, masked_weights, steps};
use tacit_backend_api::{BackendError, Costs, Work};
use tacit_ring::RingGraph;

fn online_traffic(graph: &RingGraph, steps: &[Step], batch: usize) -> TrafficModel {
    let mut traffic = TrafficModel::default();
    for (step, node) in steps.iter().zip(graph.nodes()) {
        match step {
            Step::Input => traffic.up(tensor_bytes(node, batch)),
            Step::Widen(spec) => add_widen_traffic(spec, &mut traffic),
            Step::LookUp(table) => table.add_traffic(&mut traffic),
            Step::Linear(_) | Step::Local => {}
            Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                step.gates().filter(|gate| gate.n() > 0).for_each(|gate| gate.add_traffic(&mut traffic));
            }
        }
    }
    traffic.down(tensor_bytes(graph.output(), batch));
    traffic
}

fn dealt_macs(plan: &Plan) -> u64 {
    let macs = plan.masked_layers().map(|LinearLayer { conv, .. }| conv.weight_len() / conv.out_ch * conv.out_len());
    (plan.batch * macs.sum::<usize>()) as u64
}

/// The traffic of the offline phase: the order, layers that are not dealt, and the moves of shares.
fn offline_traffic(plan: &Plan) -> TrafficModel {
    let mut traffic = audit::traffic(plan);
    for (id, node) in plan.graph.nodes().iter().enumerate() {
        plan.choices.lattice.add_traffic(id, &mut traffic);
        if plan.is_moved(id) {
            traffic.up(tensor_bytes(node, plan.batch));
        }
    }
    traffic
}

/// AES blocks of both parties' streams, for a step.
fn aes_blocks(step: &Step) -> Sides<u64> {
    let table = if let Step::LookUp(table) = step { Some(table.cost()) } else { None };
    let mut blocks = Sides::default();
    for cost in step.gates().filter(|gate| gate.n() > 0).map(|gate| gate.cost()).chain(table) {
        blocks.client += cost.client_aes as u64;
        blocks.server += cost.server_aes as u64;
    }
    blocks
}

impl Costed for Dealt {
    fn price(graph: &RingGraph, options: &Options) -> Result<f64, BackendError> {
        let steps = steps(graph, options)?;
        let moved_tensors = plan::moved_tensors(graph, &steps);
        let mut total = online_traffic(graph, &steps, 1).payload() as f64;
        for ((step, node), moved) in steps.iter().zip(graph.nodes()).zip(moved_tensors) {
            total += if moved { tensor_bytes(node, 1) as f64 } else { 0.0 };
            total += MATERIAL_WORTH * plan::dealt_bytes(step, node, 1) as f64;
        }
        Ok(total)
    }

    fn client_dealing_memory(_: &Plan) -> u64 {
        SEED_BYTES as u64
    }

    fn costs(plan: &Plan) -> Costs {
        let online = online_traffic(&plan.graph, &plan.steps, plan.batch);
        let mut costs = cost::base_costs(plan, offline_traffic(plan), online);
        for step in &plan.steps {
            let Sides { client, server } = aes_blocks(step);
            costs.online.client.work.aes_blocks += client;
            costs.online.server.work.aes_blocks += server;
        }
        let macs = dealt_macs(plan);
        costs.offline.client.work = Work { macs, ..Work::default() };
        let Sides { client, server } = plan.choices.lattice.work();
        costs.offline.add_work(client, server);
        set_peak_memory(plan, &mut costs);
        let gates = costs.online.client.work.aes_blocks + costs.online.server.work.aes_blocks;
        let layer = plan.masked_layers().map(|layer| 4 * layer.conv.weight_len() as u64).max().unwrap_or(0);
        costs.dealing.work = Work { macs, aes_blocks: gates + matrix_bytes(plan).sum::<u64>() / 16, ..Work::default() };
        costs.dealing.peak_memory_bytes = 2 * layer.min(masked_weights::AT_ONCE_BYTES) + 8 * largest_tensor(plan);
        costs
    }
}

/// Sets the phases' peak memory, on top of the ciphertexts of layers that are not dealt, which are
/// counted already.
fn set_peak_memory(plan: &Plan, costs: &mut Costs) {
    let (matrices, largest) = (costs.setup.client.stored_bytes, largest_tensor(plan));
    let server_stored = costs.offline.server.stored_bytes;
    costs.offline.client.peak_memory_bytes += matrices + 4 * largest;
    // A server with a folder for material holds little of it in memory.
    costs.offline.server.peak_memory_bytes += server_stored + 2 * largest;
    costs.online.client.peak_memory_bytes = 6 * largest;
    costs.online.server.peak_memory_bytes = server_stored + 6 * largest;
}
