//! Costs of one input or a batch, from the plan alone. Traffic is exact, memory is an estimate.

use tacit_mpc::codec::Packed;
use tacit_mpc::fss::gate::{CheckTranscript, FssCost};
use tacit_net::TrafficModel;

use super::l2_phases::TAGS_BYTES;
use super::linear_check;
use super::material_format;
use super::options::{Level, Options};
use super::plan::{self, LinearBytes, Plan, Step};
use crate::dealt::{audit, masked_weights, setup};
use tacit_backend_api::{BackendError, Costs, DealingCost, Work, seam};
use tacit_ring::{Node, RingGraph};

/// Weight of material against bytes between the parties in the search for scales: the dealer's link
/// is some ten times faster.
const MATERIAL_WORTH: f64 = 0.1;

/// Most bytes of the client's half of a batch: a client without a folder for material holds it in
/// memory.
const MAX_HALF: u64 = 1 << 28;

/// Most inputs of a batch.
pub(super) fn most_inputs(one: &Plan) -> usize {
    let costs = costs(one);
    seam::most_inputs(&costs).min((MAX_HALF / costs.dealing.client_bytes) as usize).max(1)
}

fn packed(node: &Node, batch: usize) -> usize {
    Packed::len_bytes(batch * node.elements(), node.fixed.width)
}

/// The price that the search for scales minimises.
pub(super) fn price(graph: &RingGraph, options: &Options) -> Result<f64, BackendError> {
    let steps = plan::steps(graph, options)?;
    let mut total = walk_talk(graph, &steps, options.level, 1).payload() as f64;
    total += packed(graph.output(), 1) as f64;
    for (step, node) in steps.iter().zip(graph.nodes()) {
        let mut dealt: usize =
            plan::batches(step, options.level).map(|cost| cost.client_material + cost.server_material).sum();
        let linear = LinearBytes::of(step, node, (options.level, 1));
        // The words are sent up once more, and at level `l2` also down.
        total += linear.words as f64 * if options.level == Level::L2 { 2.0 } else { 1.0 };
        dealt += linear.dealt();
        total += MATERIAL_WORTH * dealt as f64;
    }
    Ok(total)
}

/// Adds the traffic of the check at the end of a phase, with words of `widths` widths.
fn check(level: Level, widths: usize, talk: &mut TrafficModel) {
    match level {
        Level::L1 => CheckTranscript::talk(widths, talk),
        Level::L2 => CheckTranscript::agree_talk(widths, talk),
    }
}

/// The traffic of the online phase before the check.
fn walk_talk(graph: &RingGraph, steps: &[Step], level: Level, batch: usize) -> TrafficModel {
    let mut talk = TrafficModel::default();
    for (step, node) in steps.iter().zip(graph.nodes()) {
        match step {
            Step::Input => talk.up(packed(node, batch)),
            Step::Linear(_) if level == Level::L2 => talk.down(packed(node, batch)),
            Step::Linear(_) | Step::Local => {}
            Step::Widen(spec) => spec.talk(&mut talk),
            Step::LookUp(table) => plan::tagged(table, level).talk(&mut talk),
            Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                step.gates().filter(|gate| gate.n() > 0).for_each(|gate| gate.talk(&mut talk));
            }
        }
    }
    talk
}

fn online_talk(plan: &Plan) -> TrafficModel {
    let (level, [_, widths]) = (plan.level(), plan.widths().map(|widths| widths.len()));
    let mut talk = walk_talk(&plan.graph, &plan.steps, level, plan.batch);
    check(level, widths, &mut talk);
    talk.down(packed(plan.graph.output(), plan.batch));
    if level == Level::L2 {
        talk.down(TAGS_BYTES);
    }
    talk
}

fn offline_talk(plan: &Plan) -> TrafficModel {
    let (level, [widths, _]) = (plan.level(), plan.widths().map(|widths| widths.len()));
    let halves = [material_format::client_bytes(plan)[0], material_format::server_bytes(plan)[0]]
        .map(material_format::with_digest);
    let mut talk = TrafficModel::default();
    audit::talk(plan.options().audit, halves, &mut talk);
    let layers = || plan.steps.iter().zip(plan.graph.nodes()).filter(|(step, _)| matches!(step, Step::Linear(_)));
    layers().for_each(|(_, node)| talk.up(packed(node, plan.batch)));
    if level == Level::L2 {
        layers().for_each(|(_, node)| talk.down(packed(node, plan.batch)));
    }
    check(level, widths, &mut talk);
    talk
}

/// Adds the multiplications of linear layers.
fn made(plan: &Plan, costs: &mut Costs) {
    let (level, batch) = (plan.level(), plan.batch as u64);
    let macs = batch * plan.graph.macs();
    costs.online.server.work.macs = macs;
    // Values and tags, in rings of more than 64 bits. At level `l2` both parties have both, and a
    // few rows of each matrix and each result.
    costs.offline.client.work = Work { macs: 4 * macs, ..Work::default() };
    costs.offline.server.work = Work { macs: 2 * macs, ..Work::default() };
    if level == Level::L2 {
        costs.offline.server.work.macs += 2 * macs;
        for (_, conv, _) in masked_weights::layers(plan) {
            let [matrix, online] = linear_check::work(conv);
            costs.offline.client.work.macs += matrix;
            costs.online.client.work.macs += batch * online;
            costs.online.server.work.macs += batch * online;
        }
    }
}

/// The costs of all batches of a plan.
fn all_batches(plan: &Plan) -> impl Iterator<Item = FssCost> {
    plan.steps.iter().flat_map(|step| plan::batches(step, plan.level()))
}

/// Memory for making one half: some tensors, rows of a matrix, and pieces of a batch of gates. As
/// much again is being made, and some pieces wait to be sent.
pub(super) fn dealing_memory(plan: &Plan) -> u64 {
    let largest = plan.graph.nodes().iter().map(|n| 8 * plan.elements(n) as u64).max().expect("a graph has nodes");
    let layer = masked_weights::layers(plan).map(|(_, conv, _)| 8 * conv.weight_len() as u64).max().unwrap_or(0);
    let pieces = all_batches(plan).map(|batch| batch.dealt_at_once as u64).max().unwrap_or(0);
    let rows = match plan.level() {
        Level::L1 => masked_weights::AT_ONCE_BYTES,
        Level::L2 => linear_check::AT_ONCE_BYTES,
    };
    8 * largest + 2 * layer.min(rows) + 2 * pieces + (4 << 20)
}

/// The costs of a plan's inputs, of the setup, and of dealing.
pub(super) fn costs(plan: &Plan) -> Costs {
    let (level, macs) = (plan.level(), plan.batch as u64 * plan.graph.macs());
    let mut costs = Costs {
        setup: setup::talk(masked_weights::bytes(plan)).into(),
        offline: offline_talk(plan).into(),
        online: online_talk(plan).into(),
        weights: plan.graph.weights(),
        ..Costs::default()
    };
    costs.comparisons = plan.steps.iter().flat_map(|step| step.gates()).map(|gate| gate.n() as u64).sum();
    for one in all_batches(plan) {
        costs.online.client.work.aes_blocks += one.client_aes + one.hashes;
        costs.online.server.work.aes_blocks += one.server_aes + one.hashes;
    }
    let [client, kept] = material_format::client_bytes(plan).map(material_format::with_digest);
    let [half, stored] = material_format::server_bytes(plan).map(material_format::with_digest);
    let largest = plan.graph.nodes().iter().map(|n| 8 * plan.elements(n) as u64).max().expect("a graph has nodes");
    // Opened words take 48 bytes each, as a share with tag, in a list that doubles by copying.
    let word = 3 * 48;
    let opened: u64 = all_batches(plan).map(|batch| batch.opened as u64).sum();
    let transcript = word * opened + all_batches(plan).map(|batch| batch.held as u64).max().unwrap_or(0);
    let matrices: u64 = matrix_bytes(plan).sum();
    let layer = matrix_bytes(plan).max().unwrap_or(0);
    costs.online.client.peak_memory_bytes = kept + transcript + 16 * largest;
    costs.online.server.peak_memory_bytes = stored + transcript + 16 * largest;
    let gates = costs.online.client.work.aes_blocks + costs.online.server.work.aes_blocks;
    costs.setup.client.stored_bytes = matrices;
    // The matrices are streamed.
    costs.setup.client.peak_memory_bytes = matrices + (64 << 20);
    costs.setup.server.peak_memory_bytes = 64 << 20;
    made(plan, &mut costs);
    costs.offline.client.stored_bytes = kept;
    costs.offline.server.stored_bytes = stored;
    let linear = masked_weights::layers(plan).map(|(_, conv, _)| (plan.batch * conv.out_len()) as u64).sum::<u64>();
    // A party with a folder for material holds little of it in memory. The server's stored material
    // replaces its half and is a part of it.
    costs.offline.client.peak_memory_bytes = matrices + kept + word * linear + 16 * largest;
    costs.offline.server.peak_memory_bytes = half + layer + word * linear + 16 * largest;
    let projections = masked_weights::layers(plan).map(|(_, conv, _)| linear_check::work(conv)[0]);
    let projected = if level == Level::L2 { projections.sum() } else { 0 };
    costs.dealing = DealingCost {
        client_bytes: client,
        server_bytes: half,
        // Each half is dealt on its own, with two hashes a level.
        work: Work { macs: macs + projected, aes_blocks: 2 * gates + matrices / 16, ..Work::default() },
        peak_memory_bytes: dealing_memory(plan),
    };
    costs
}

/// Returns the bytes of each stored matrix.
fn matrix_bytes(plan: &Plan) -> impl Iterator<Item = u64> {
    // An entry is stored as 4 bytes, or 8 in rings beyond 32 bits.
    masked_weights::layers(plan).map(|(_, conv, width)| conv.weight_len() as u64 * if width > 32 { 8 } else { 4 })
}

#[cfg(test)]
mod tests {
    use super::super::compile;
    use super::*;
    use tacit_ring::Op;
    use tacit_ring::fixtures::{node, spec};

    #[test]
    fn what_look_ups_open_and_hold_counts() {
        let entries = (0..64).map(|i| i % 23 - 9).collect();
        let function = tacit_graph::Function::Sigmoid;
        let table = tacit_ring::Table { function, entries, lines: None, frac_bits: 4, error: 1 };
        let n = 1000;
        let nodes = (0..8).map(|i| match i {
            0 => node(Op::Input, &[], &[n], 6, 4),
            i => node(Op::LookUp(table.clone()), &[i - 1], &[n], 6, 4),
        });
        let plan = compile(RingGraph::new(spec(nodes.collect())).unwrap(), Options::default()).unwrap();
        let online = costs(&plan).online.client.peak_memory_bytes;
        // Seven layers in the transcript, and blocks of the bits of one: entries of -9 to 13 have 5
        // bits.
        let least = material_format::client_bytes(&plan)[1] + 7 * n * 3 * 48 + 16 * 5 * n;
        assert!((least as u64..2 * least as u64).contains(&online), "{online}, {least}");
    }

    #[test]
    fn a_clients_half_of_a_batch_is_no_larger_than_what_memory_holds() {
        let most = |n: usize| {
            let nodes = vec![node(Op::Input, &[], &[n], 13, 4), node(Op::Relu, &[0], &[n], 13, 4)];
            let one = compile(RingGraph::new(spec(nodes)).unwrap(), Options::default()).unwrap();
            let most = most_inputs(&one);
            assert!(material_format::client_bytes(&plan::batched(&one, most))[0] as u64 <= MAX_HALF);
            most
        };
        assert_eq!((most(1000), most(1_000_000)), (32, 1));
        assert!((2..32).contains(&most(100_000)));
    }
}
