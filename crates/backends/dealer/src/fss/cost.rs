//! Costs of one input or a batch, from the plan alone. Traffic is exact, memory is an estimate.

use tacit_mpc::fss::gate::{CheckTranscript, FssCost};
use tacit_net::TrafficModel;

use super::client::TAGS_BYTES;
use super::plan::{LinearBytes, Plan, Step, batches, tagged_look_up};
use super::{Fss, Level, Options, linear_check};
use crate::session::cost::{self, MATERIAL_WORTH, largest_tensor, matrix_bytes, tensor_bytes};
use crate::session::{Costed, audit, masked_weights, steps};
use tacit_backend_api::{BackendError, Costs, Work};
use tacit_ring::RingGraph;

/// Adds the traffic of the check at the end of a phase, with words of `widths` widths.
fn add_check_traffic(level: Level, widths: usize, traffic: &mut TrafficModel) {
    match level {
        Level::L1 => CheckTranscript::add_traffic(widths, traffic),
        Level::L2 => CheckTranscript::add_agreement_traffic(widths, traffic),
    }
}

/// The traffic of the online phase before the check.
fn walk_traffic(graph: &RingGraph, steps: &[Step], level: Level, batch: usize) -> TrafficModel {
    let mut traffic = TrafficModel::default();
    for (step, node) in steps.iter().zip(graph.nodes()) {
        match step {
            Step::Input => traffic.up(tensor_bytes(node, batch)),
            Step::Linear(_) if level == Level::L2 => traffic.down(tensor_bytes(node, batch)),
            Step::Linear(_) | Step::Local => {}
            Step::Widen(spec) => spec.add_traffic(&mut traffic),
            Step::LookUp(table) => tagged_look_up(table, level).add_traffic(&mut traffic),
            Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                step.gates().filter(|gate| gate.n() > 0).for_each(|gate| gate.add_traffic(&mut traffic));
            }
        }
    }
    traffic
}

fn online_traffic(plan: &Plan) -> TrafficModel {
    let (level, [_, widths]) = (plan.level(), plan.widths().map(|widths| widths.len()));
    let mut traffic = walk_traffic(&plan.graph, &plan.steps, level, plan.batch);
    add_check_traffic(level, widths, &mut traffic);
    traffic.down(tensor_bytes(plan.graph.output(), plan.batch));
    if level == Level::L2 {
        traffic.down(TAGS_BYTES);
    }
    traffic
}

fn offline_traffic(plan: &Plan) -> TrafficModel {
    let (level, [widths, _]) = (plan.level(), plan.widths().map(|widths| widths.len()));
    let mut traffic = audit::traffic(plan);
    let layers = || plan.masked_layers().map(|layer| tensor_bytes(&plan.graph.nodes()[layer.id], plan.batch));
    layers().for_each(|bytes| traffic.up(bytes));
    if level == Level::L2 {
        layers().for_each(|bytes| traffic.down(bytes));
    }
    add_check_traffic(level, widths, &mut traffic);
    traffic
}

/// Adds the multiplications of linear layers to the work of both parties.
fn add_linear_work(plan: &Plan, costs: &mut Costs) {
    let (level, batch) = (plan.level(), plan.batch as u64);
    let macs = batch * plan.graph.macs();
    // Values and tags, in rings of more than 64 bits. At level `l2` both parties have both, and a
    // few rows of each matrix and each result.
    costs.offline.client.work = Work { macs: 4 * macs, ..Work::default() };
    costs.offline.server.work = Work { macs: 2 * macs, ..Work::default() };
    if level == Level::L2 {
        costs.offline.server.work.macs += 2 * macs;
        for layer in plan.masked_layers() {
            let [matrix, online] = linear_check::work(layer.conv);
            costs.offline.client.work.macs += matrix;
            costs.online.client.work.macs += batch * online;
            costs.online.server.work.macs += batch * online;
        }
    }
}

fn all_batches(plan: &Plan) -> impl Iterator<Item = FssCost> {
    plan.steps.iter().flat_map(|step| batches(step, plan.level()))
}

impl Costed for Fss {
    fn price(graph: &RingGraph, options: &Options) -> Result<f64, BackendError> {
        let (level, steps) = (options.level, steps(graph, options)?);
        let mut total = walk_traffic(graph, &steps, level, 1).payload() as f64;
        total += tensor_bytes(graph.output(), 1) as f64;
        for (step, node) in steps.iter().zip(graph.nodes()) {
            let mut dealt: usize = batches(step, level).map(|cost| cost.client_material + cost.server_material).sum();
            let linear = LinearBytes::for_step(step, node, level, 1);
            // The words are sent up once more, and at level `l2` also down.
            total += linear.words as f64 * if level == Level::L2 { 2.0 } else { 1.0 };
            dealt += linear.dealt_bytes();
            total += MATERIAL_WORTH * dealt as f64;
        }
        Ok(total)
    }

    /// Counts some tensors, and twice the rows of a matrix and the pieces of a batch of gates: some
    /// are made while others wait to be sent. The server's half needs as much.
    fn client_dealing_memory(plan: &Plan) -> u64 {
        let layer = plan.masked_layers().map(|layer| 8 * layer.conv.weight_len() as u64).max().unwrap_or(0);
        let pieces = all_batches(plan).map(|batch| batch.dealt_at_once as u64).max().unwrap_or(0);
        let rows = match plan.level() {
            Level::L1 => masked_weights::AT_ONCE_BYTES,
            Level::L2 => linear_check::AT_ONCE_BYTES,
        };
        8 * largest_tensor(plan) + 2 * layer.min(rows) + 2 * pieces + (4 << 20)
    }

    fn costs(plan: &Plan) -> Costs {
        let mut costs = cost::base_costs(plan, offline_traffic(plan), online_traffic(plan));
        for batch in all_batches(plan) {
            costs.online.client.work.aes_blocks += batch.client_aes + batch.hashes;
            costs.online.server.work.aes_blocks += batch.server_aes + batch.hashes;
        }
        add_linear_work(plan, &mut costs);
        set_peak_memory(plan, &mut costs);
        let gates = costs.online.client.work.aes_blocks + costs.online.server.work.aes_blocks;
        let projections = plan.masked_layers().map(|layer| linear_check::work(layer.conv)[0]);
        let projected = if plan.level() == Level::L2 { projections.sum() } else { 0 };
        // Each half is dealt on its own, with two hashes a level.
        let aes_blocks = 2 * gates + costs.setup.client.stored_bytes / 16;
        let macs = plan.batch as u64 * plan.graph.macs() + projected;
        costs.dealing.work = Work { macs, aes_blocks, ..Work::default() };
        costs.dealing.peak_memory_bytes = Self::client_dealing_memory(plan);
        costs
    }
}

/// Sets the peak memory of the phases that make and use material.
fn set_peak_memory(plan: &Plan, costs: &mut Costs) {
    let (matrices, largest) = (costs.setup.client.stored_bytes, largest_tensor(plan));
    let [client_stored, server_stored] = [&costs.offline.client, &costs.offline.server].map(|party| party.stored_bytes);
    // Opened words take 48 bytes each, as a share with tag, in a list that doubles by copying.
    let word = 3 * 48;
    let opened: u64 = all_batches(plan).map(|batch| batch.opened as u64).sum();
    let transcript = word * opened + all_batches(plan).map(|batch| batch.held as u64).max().unwrap_or(0);
    costs.online.client.peak_memory_bytes = client_stored + transcript + 16 * largest;
    costs.online.server.peak_memory_bytes = server_stored + transcript + 16 * largest;
    let linear = plan.masked_layers().map(|layer| (layer.batch * layer.conv.out_len()) as u64).sum::<u64>();
    // A party with a folder for material holds little of it in memory. The server's stored material
    // replaces its half and is a part of it.
    let (half, layer) = (costs.dealing.server_bytes, matrix_bytes(plan).max().unwrap_or(0));
    costs.offline.client.peak_memory_bytes = matrices + client_stored + word * linear + 16 * largest;
    costs.offline.server.peak_memory_bytes = half + layer + word * linear + 16 * largest;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Correlation;
    use crate::session::{MAX_HALF, max_inputs};
    use tacit_mpc::Role;
    use tacit_ring::Op;
    use tacit_ring::fixtures::{node, spec};

    #[test]
    fn memory_of_look_ups_counts() {
        let entries = (0..64).map(|i| i % 23 - 9).collect();
        let function = tacit_graph::Function::Sigmoid;
        let table = tacit_ring::Table { function, entries, lines: None, frac_bits: 4, error: 1 };
        let n = 1000;
        let nodes = (0..8).map(|i| match i {
            0 => node(Op::Input, &[], &[n], 6, 4),
            i => node(Op::LookUp(table.clone()), &[i - 1], &[n], 6, 4),
        });
        let plan = Plan::compile(RingGraph::new(spec(nodes.collect())).unwrap(), Options::default()).unwrap();
        let online = Fss::costs(&plan).online.client.peak_memory_bytes;
        // Seven layers in the transcript, and blocks of the bits of one: entries of -9 to 13 have 5
        // bits.
        let min_bytes = Fss::half_bytes(&plan, Role::Client).stored + 7 * n * 3 * 48 + 16 * 5 * n;
        assert!((min_bytes as u64..2 * min_bytes as u64).contains(&online), "{online}, {min_bytes}");
    }

    #[test]
    fn limits_batch_by_client_half() {
        let max_batch = |n: usize| {
            let nodes = vec![node(Op::Input, &[], &[n], 13, 4), node(Op::Relu, &[0], &[n], 13, 4)];
            let single = Plan::compile(RingGraph::new(spec(nodes)).unwrap(), Options::default()).unwrap();
            let inputs = max_inputs(&single);
            assert!(Fss::half_bytes(&single.batched(inputs), Role::Client).dealt as u64 <= MAX_HALF);
            inputs
        };
        assert_eq!((max_batch(1000), max_batch(1_000_000)), (32, 1));
        assert!((2..32).contains(&max_batch(100_000)));
    }
}
