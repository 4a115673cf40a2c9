//! What one input or a batch costs, from the plan alone. Payload bytes: frame headers come on top. Exact but
//! for the traffic of the OT extension, which depends on what earlier inputs of a connection left over, and
//! for memory, which is an estimate.

use tacit_mpc::codec::Packed;
use tacit_mpc::ot::{self, params};

use super::lattice::Lattice;
use super::options::Options;
use super::plan::{self, Plan, Step};
use crate::ring::{Node, RingGraph};
use crate::{BackendError, Costs, PartyCost, PhaseCost, Work};

/// Payload bytes both ways of the online phase of one input: what the search for scales goes by. Linear
/// layers send nothing online, so they need no plan for this.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn online_bytes<L: Lattice>(graph: &RingGraph, options: &Options) -> Result<u64, BackendError> {
    let (steps, _) = plan::steps::<L>(graph, options)?;
    let nodes = steps.iter().zip(graph.nodes()).map(|(step, node)| of_step(step, node, 1).online.bytes());
    Ok(result(graph, 1).online.bytes() + nodes.sum::<u64>())
}

/// Costs of a plan's inputs, and of the setup.
pub fn costs<L: Lattice>(plan: &Plan<L>) -> Costs {
    let mut costs = result(&plan.graph, plan.batch);
    for (step, node) in plan.steps.iter().zip(plan.graph.nodes()) {
        add(&mut costs, of_step(step, node, plan.batch));
    }
    for (id, node) in plan.graph.nodes().iter().enumerate().filter(|(_, node)| node.op.facts().is_some()) {
        let (n, width) = (plan.batch * node.elements(), node.fixed.width);
        keeps(&mut costs, packed(n, width - plan.unread(id)), packed(n, width - plan.rounded(id)));
    }
    for group in &plan.groups {
        costs.offline += L::cost(&group.plan);
    }
    costs.online.server.work.macs = plan.batch as u64 * plan.graph.macs();
    let (client_rots, server_rots) = rots(plan);
    costs.offline += extension(client_rots, server_rots);
    costs.setup = setup(L::setup_cost(&plan.lattice()));
    memory(plan, &mut costs);
    costs
}

/// Random OTs of a plan's inputs, with the client and with the server as receiver.
pub(super) fn rots<L: Lattice>(plan: &Plan<L>) -> (usize, usize) {
    let gates = plan.gates().filter(|g| g.n() > 0).map(|g| g.cost());
    let (client, server) = gates.fold((0, 0), |(c, s), one| (c + one.client_rots, s + one.server_rots));
    let widened = plan.steps.iter().map(|step| if let Step::Widen(wrap) = step { wrap.n } else { 0 });
    let lifted = plan.groups.iter().map(|group| L::rots(&group.plan));
    (client + widened.sum::<usize>() + lifted.sum::<usize>(), server)
}

fn packed(n: usize, width: u32) -> u64 {
    Packed::len_bytes(n, width) as u64
}

fn add(costs: &mut Costs, other: Costs) {
    costs.offline += other.offline;
    costs.online += other.online;
    costs.comparisons += other.comparisons;
}

/// Online and offline cost of a node, but for linear layers and the OT extension.
fn of_step(step: &Step, node: &Node, batch: usize) -> Costs {
    let mut costs = Costs::default();
    let elements = packed(batch * node.elements(), node.fixed.width);
    match step {
        Step::Input => costs.online.up_bytes = elements,
        Step::Widen(wrap) => {
            let extra = packed(wrap.n, wrap.extra);
            costs.offline.up_bytes = wrap.n.div_ceil(8) as u64;
            costs.online = PhaseCost { up_bytes: extra, down_bytes: extra, exchanges: 1, ..PhaseCost::default() };
            keeps(&mut costs, extra, 2 * extra);
        }
        // No plan of this back end has look-ups.
        Step::Linear(_) | Step::Local | Step::LookUp(_) => {}
        Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
            for gate in step.gates().filter(|g| g.n() > 0) {
                let one = gate.cost();
                costs.offline.up_bytes += one.offline_up as u64;
                costs.offline.down_bytes += one.offline_down as u64;
                costs.online.up_bytes += one.online_up as u64;
                costs.online.down_bytes += one.online_down as u64;
                costs.online.exchanges += one.exchanges as u64;
                costs.comparisons += gate.n() as u64;
                keeps(&mut costs, one.client_material as u64, one.server_material as u64);
            }
        }
    }
    costs
}

/// The way of the input and of the result; and the seed, which belongs to no node.
fn result(graph: &RingGraph, batch: usize) -> Costs {
    let output = graph.output();
    let down_bytes = packed(batch * output.elements(), output.fixed.width);
    let mut costs =
        Costs { online: PhaseCost { down_bytes, exchanges: 1, ..PhaseCost::default() }, ..Costs::default() };
    keeps(&mut costs, 16, 0);
    costs
}

fn keeps(costs: &mut Costs, client: u64, server: u64) {
    costs.offline.client.stored_bytes += client;
    costs.offline.server.stored_bytes += server;
}

/// The OT extension in both directions. An OT costs its leaf of a tree one AES call at both parties, its
/// strings two at the sender and one at the receiver.
fn extension(client_receives: usize, server_receives: usize) -> PhaseCost {
    let (received, sent) = (client_receives as u64, server_receives as u64);
    let ots = received + sent;
    let party = |received: u64, sent: u64| PartyCost {
        work: Work { ots, aes_blocks: 2 * received + 3 * sent, ..Work::default() },
        ..PartyCost::default()
    };
    PhaseCost {
        up_bytes: params::extension_bytes(server_receives),
        down_bytes: params::extension_bytes(client_receives),
        client: party(received, sent),
        server: party(sent, received),
        ..PhaseCost::default()
    }
}

/// Base OTs, OT bootstrap and the keys of the lattice half.
fn setup(lattice: PhaseCost) -> PhaseCost {
    let stored = 2 * 16 * (1u64 << params::SMALL.log_secret);
    let party = PartyCost {
        peak_memory_bytes: 2 * ot::SETUP_BYTES as u64 + stored,
        stored_bytes: stored,
        ..PartyCost::default()
    };
    let mut setup = PhaseCost {
        up_bytes: ot::SETUP_BYTES as u64,
        down_bytes: ot::SETUP_BYTES as u64,
        exchanges: 3,
        client: party,
        server: party,
    };
    setup += lattice;
    setup
}

/// Peaks: material, the secrets of the OT extension, ciphertexts of the largest group, and the two largest
/// tensors in 64-bit words.
fn memory<L: Lattice>(plan: &Plan<L>, costs: &mut Costs) {
    let (client_rots, server_rots) = rots(plan);
    let set = |n: usize| 16u64 << params::set_for(n).log_secret;
    let largest =
        plan.graph.nodes().iter().map(|n| 8 * (plan.batch * n.elements()) as u64).max().expect("a graph has nodes");
    let common = set(client_rots) + set(server_rots) + 2 * largest;
    for (offline, online) in
        [(&mut costs.offline.client, &mut costs.online.client), (&mut costs.offline.server, &mut costs.online.server)]
    {
        offline.peak_memory_bytes += offline.stored_bytes + common;
        online.peak_memory_bytes = offline.stored_bytes + 2 * largest;
    }
}
