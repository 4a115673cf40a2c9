//! Costs of one input or a batch, computed from the plan alone. Traffic is exact for the first
//! input of a connection; memory is an estimate.

use tacit_mpc::codec::Packed;
use tacit_mpc::ot::{self, PlannedOts, params};
use tacit_net::TrafficModel;

use super::lattice::Lattice;
use super::options::Options;
use super::plan::{self, Member, Plan, Step};
use tacit_backend_api::{BackendError, Costs, PartyCost, PhaseCost, Sides, Work};
use tacit_ring::{Node, RingGraph};

/// Returns the payload bytes, both ways, of the online phase of one input. The search for scales
/// minimises this number. Linear layers send nothing online, so no lattice plan is needed.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn online_bytes<L: Lattice>(graph: &RingGraph, options: &Options) -> Result<u64, BackendError> {
    let (steps, _) = plan::steps::<L>(graph, options)?;
    let mut traffic = TrafficModel::default();
    add_online_traffic(graph, &steps, 1, &mut traffic);
    Ok(traffic.payload())
}

/// Returns the costs of the setup and of a plan's inputs, as the first of a connection.
pub fn costs<L: Lattice>(plan: &Plan<L>) -> Costs {
    let mut costs = Costs {
        setup: setup_cost(plan, phase_traffic(plan, TrafficOf::setup)),
        offline: phase_traffic(plan, TrafficOf::offline),
        online: phase_traffic(plan, TrafficOf::online),
        comparisons: plan.comparisons(),
        weights: plan.graph.weights(),
        ..Costs::default()
    };
    // The seed belongs to no node.
    add_stored_bytes(&mut costs, 16, 0);
    plan.steps.iter().for_each(|step| add_stored_pieces(step, &mut costs));
    for (id, node) in plan.graph.nodes().iter().enumerate().filter(|(_, node)| node.op.facts().is_some()) {
        let (n, width) = (plan.batch * node.elements(), node.fixed.width);
        add_stored_bytes(
            &mut costs,
            packed_bytes(n, width - plan.unread(id)),
            packed_bytes(n, width - plan.rounded(id)),
        );
    }
    for group in &plan.groups {
        let Sides { client, server } = L::work(&group.plan);
        let choosing = L::mask_choice_cost(&group.plan);
        costs.offline.add_work(client, server);
        costs.offline.add_work(choosing, PartyCost::default());
        costs.online.add_work(choosing, PartyCost::default());
    }
    costs.offline.add_work(PartyCost::default(), L::public_values_cost(&plan.lattice()));
    costs.online.server.work.macs = plan.batch as u64 * plan.graph.macs();
    let Sides { client, server } = extension_costs(rots(plan));
    costs.offline.add_work(client, server);
    set_peak_memory(plan, &mut costs);
    costs
}

fn phase_traffic<L: Lattice>(plan: &Plan<L>, add_traffic: fn(&Plan<L>, &mut TrafficModel)) -> PhaseCost {
    let mut traffic = TrafficModel::default();
    add_traffic(plan, &mut traffic);
    PhaseCost::from(traffic)
}

/// Appends the messages of a plan's phases to a traffic model.
pub struct TrafficOf;

impl TrafficOf {
    /// The setup: base OTs, OT bootstrap and the lattice half's keys for a connection.
    pub fn setup<L: Lattice>(plan: &Plan<L>, traffic: &mut TrafficModel) {
        ot::add_setup_traffic(traffic);
        L::add_setup_traffic(&plan.lattice(), traffic);
    }

    /// The offline phase of a connection's first input. Later inputs differ, since the OT extension
    /// has leftovers from earlier ones.
    pub fn offline<L: Lattice>(plan: &Plan<L>, traffic: &mut TrafficModel) {
        L::add_public_traffic(&plan.lattice(), traffic);
        let rots = rots(plan);
        let mut ots = PlannedOts::new(rots.client, rots.server);
        for step in &plan.steps {
            match step {
                Step::Linear(Member { group, index: 0 }) => {
                    L::add_traffic(&plan.groups[*group].plan, &mut ots, traffic)
                }
                Step::Widen(wrap) => wrap.add_offline_traffic(&mut ots, traffic),
                Step::Linear(_) | Step::Input | Step::Local | Step::LookUp(_) => {}
                Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                    step.gates()
                        .filter(|gate| gate.n() > 0)
                        .for_each(|gate| gate.add_offline_traffic(&mut ots, traffic));
                }
            }
        }
    }

    /// The online phase.
    pub fn online<L: Lattice>(plan: &Plan<L>, traffic: &mut TrafficModel) {
        add_online_traffic(&plan.graph, &plan.steps, plan.batch, traffic);
    }
}

fn add_online_traffic(graph: &RingGraph, steps: &[Step], batch: usize, traffic: &mut TrafficModel) {
    let tensor_bytes = |node: &Node| Packed::len_bytes(batch * node.elements(), node.fixed.width);
    for (step, node) in steps.iter().zip(graph.nodes()) {
        match step {
            Step::Input => traffic.up(tensor_bytes(node)),
            Step::Widen(wrap) => {
                wrap.add_online_traffic(traffic);
                traffic.up(Packed::len_bytes(wrap.n, wrap.extra));
            }
            // Plans of this back end have no look-ups.
            Step::Linear(_) | Step::Local | Step::LookUp(_) => {}
            Step::Relu(_) | Step::TruncateExact { .. } | Step::Reduce { .. } => {
                step.gates().filter(|gate| gate.n() > 0).for_each(|gate| gate.add_online_traffic(traffic));
            }
        }
    }
    traffic.down(tensor_bytes(graph.output()));
}

/// Returns the random OTs of a plan's inputs by their receiver.
pub(super) fn rots<L: Lattice>(plan: &Plan<L>) -> Sides<usize> {
    let gates = plan.gates().filter(|g| g.n() > 0).map(|g| g.cost());
    let (client, server) = gates.fold((0, 0), |(c, s), cost| (c + cost.client_rots, s + cost.server_rots));
    let widened = plan.steps.iter().map(|step| if let Step::Widen(wrap) = step { wrap.n } else { 0 });
    let lifted = plan.groups.iter().map(|group| L::rots(&group.plan));
    Sides { client: client + widened.sum::<usize>() + lifted.sum::<usize>(), server }
}

fn packed_bytes(n: usize, width: u32) -> u64 {
    Packed::len_bytes(n, width) as u64
}

/// Adds what a step leaves in the material, except for linear layers.
fn add_stored_pieces(step: &Step, costs: &mut Costs) {
    if let Step::Widen(wrap) = step {
        let extra = packed_bytes(wrap.n, wrap.extra);
        add_stored_bytes(costs, extra, 2 * extra);
    }
    for cost in step.gates().filter(|gate| gate.n() > 0).map(|gate| gate.cost()) {
        add_stored_bytes(costs, cost.client_material as u64, cost.server_material as u64);
    }
}

fn add_stored_bytes(costs: &mut Costs, client: u64, server: u64) {
    costs.offline.client.stored_bytes += client;
    costs.offline.server.stored_bytes += server;
}

/// Work of the OT extension in both directions, at client and server. The tree leaf of an OT costs
/// one AES call at both parties; its strings cost two at the sender and one at the receiver.
fn extension_costs(rots: Sides<usize>) -> Sides<PartyCost> {
    let (received, sent) = (rots.client as u64, rots.server as u64);
    Sides { client: extension_work(received, sent), server: extension_work(sent, received) }
}

/// Returns the work of the OT extension at a party that receives and sends so many OTs.
fn extension_work(received: u64, sent: u64) -> PartyCost {
    let work = Work { ots: received + sent, aes_blocks: 2 * received + 3 * sent, ..Work::default() };
    PartyCost { work, ..PartyCost::default() }
}

/// The cost of the setup; `traffic` has its traffic alone.
fn setup_cost<L: Lattice>(plan: &Plan<L>, traffic: PhaseCost) -> PhaseCost {
    let stored = 2 * 16 * params::SMALL.secret() as u64;
    let party = PartyCost {
        peak_memory_bytes: 2 * ot::SETUP_BYTES as u64 + stored,
        stored_bytes: stored,
        ..PartyCost::default()
    };
    let mut setup = PhaseCost { client: party, server: party, ..traffic };
    setup.add_work(PartyCost::default(), L::setup_key_cost(&plan.lattice()));
    setup
}

/// Sets the memory peaks: material, the secrets of one OT extension and of the next, ciphertexts of the
/// largest group, and the two largest tensors in 64-bit words.
fn set_peak_memory<L: Lattice>(plan: &Plan<L>, costs: &mut Costs) {
    let rots = rots(plan);
    let largest =
        plan.graph.nodes().iter().map(|n| 8 * (plan.batch * n.elements()) as u64).max().expect("a graph has nodes");
    let common = extension_bytes(rots.client) + extension_bytes(rots.server) + 2 * largest;
    for (offline, online) in
        [(&mut costs.offline.client, &mut costs.online.client), (&mut costs.offline.server, &mut costs.online.server)]
    {
        offline.peak_memory_bytes += offline.stored_bytes + common;
        online.peak_memory_bytes = offline.stored_bytes + 2 * largest;
    }
}

/// Returns the bytes of the secrets of an extension to `n` OTs, and of the next.
fn extension_bytes(n: usize) -> u64 {
    2 * 16 * params::set_for(n).secret() as u64
}
