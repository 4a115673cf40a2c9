//! What one input costs, from the plan alone. Payload bytes: frame headers and the traffic of the OT extension come on top.

use tacit_mpc::codec::Packed;

use super::Options;
use super::plan::{self, Plan, Step};
use crate::ring::{Op, RingGraph};
use crate::{BackendError, PhaseCosts};

/// Costs of one input.
pub(super) fn cost(plan: &Plan) -> PhaseCosts {
    let mut cost = of_steps(&plan.graph, &plan.steps);
    cost.comparisons = plan.comparisons();
    let (client_rots, server_rots) = rots(plan);
    (cost.offline.client_rots, cost.offline.server_rots) = (client_rots as u64, server_rots as u64);
    for group in &plan.groups {
        let linear = group.plan.cost();
        cost.offline.up_bytes += linear.up_bytes;
        cost.offline.down_bytes += linear.down_bytes();
        cost.offline.exchanges += 1;
    }
    cost
}

/// Payload bytes both ways of the online phase of one input. Linear layers send nothing online, so they need no plan for this.
///
/// # Errors
/// `Unsupported` names the first node that cannot be compiled.
pub fn online_bytes(graph: &RingGraph, options: &Options) -> Result<u64, BackendError> {
    let (steps, _) = plan::steps(graph, options)?;
    let online = of_steps(graph, &steps).online;
    Ok(online.up_bytes + online.down_bytes)
}

/// Costs of everything but the lattice part of linear layers, whose masked results are only stored here.
fn of_steps(graph: &RingGraph, steps: &[Step]) -> PhaseCosts {
    let mut cost = PhaseCosts::default();
    let packed = |n: usize, width: u32| Packed::len_bytes(n, width) as u64;
    for gate in plan::gates(steps).filter(|g| g.n() > 0) {
        let one = gate.cost();
        cost.offline.up_bytes += one.offline_up as u64;
        cost.offline.down_bytes += one.offline_down as u64;
        cost.online.up_bytes += one.online_up as u64;
        cost.online.down_bytes += one.online_down as u64;
        cost.online.exchanges += one.exchanges as u64;
        cost.client_material_bytes += one.client_material as u64;
        cost.server_material_bytes += one.server_material as u64;
    }
    for (step, node) in steps.iter().zip(graph.nodes()) {
        let elements = packed(node.elements(), node.fixed.width);
        match step {
            Step::Input => cost.online.up_bytes += elements,
            Step::Widen(wrap) => {
                cost.offline.up_bytes += wrap.n.div_ceil(8) as u64;
                cost.online.up_bytes += packed(wrap.n, wrap.extra);
                cost.online.down_bytes += packed(wrap.n, wrap.extra);
                cost.online.exchanges += 2;
                cost.client_material_bytes += packed(wrap.n, wrap.extra);
                cost.server_material_bytes += 2 * packed(wrap.n, wrap.extra);
            }
            _ if matches!(node.op, Op::Conv2d(_) | Op::Linear(_)) => {
                cost.client_material_bytes += elements;
                cost.server_material_bytes += elements;
            }
            _ => {}
        }
    }
    let output = graph.output();
    cost.online.down_bytes += packed(output.elements(), output.fixed.width);
    cost.online.exchanges += 2;
    cost.client_material_bytes += 16;
    cost
}

/// Random OTs of one input, with the client and with the server as receiver.
pub(super) fn rots(plan: &Plan) -> (usize, usize) {
    let gates = plan.gates().filter(|g| g.n() > 0).map(|g| g.cost());
    let (client, server) = gates.fold((0, 0), |(c, s), one| (c + one.client_rots, s + one.server_rots));
    let widened = plan.steps.iter().map(|step| if let Step::Widen(wrap) = step { wrap.n } else { 0 });
    (client + widened.sum::<usize>(), server)
}
