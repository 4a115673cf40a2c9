//! The server's phases. Offline the server adds two things to its half: its shares of linear layers
//! that are not dealt, and the differences by which the client moves its shares. Online it walks
//! over its shares and reads the material in order.

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::{Packed, Writer};
use tacit_mpc::dealt::{DealtGate, LookUp, server_look_up, server_online, server_widen, widen_bytes};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{MpcError, Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::audit::Sink;
use super::client::{INPUT, MOVE, RESULT};
use super::dealer::{GATE, SEED_BYTES};
use super::lattice;
use super::plan::{DealtStepTypes, Plan};
use super::source::Source;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::Stop;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{At, NodeObserver, ServerPhase, ServerShares, ServerWalk, linear_online, stream};
use tacit_ring::{Node, Weights};

/// The server's material for one input or a batch, in the order in which the online phase reads it.
/// It holds the dealer's data, the server's shares of linear layers that are not dealt, and the
/// differences by which the client moved its shares.
pub(super) struct ServerMaterial {
    /// Digest of the plan that the material was read for.
    pub(super) plan: [u8; 32],
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// Length of the server's half, in bytes.
pub(super) fn half_bytes(plan: &Plan) -> usize {
    SEED_BYTES + (0..plan.steps.len()).map(|id| plan.dealt_bytes(id)).sum::<usize>()
}

/// Bytes of the server's shares of linear layers that are not dealt.
fn made_bytes(plan: &Plan) -> usize {
    let nodes = plan.graph.nodes().iter().enumerate().filter(|(id, _)| plan.lattice.place(*id).is_some());
    nodes.map(|(_, node)| Packed::len_bytes(plan.elements(node), node.fixed.width)).sum()
}

/// Bytes of the differences by which the client moves its shares.
fn moved_bytes(plan: &Plan) -> usize {
    let nodes = plan.graph.nodes().iter().enumerate().filter(|(id, _)| plan.moves(*id));
    nodes.map(|(_, node)| Packed::len_bytes(plan.elements(node), node.fixed.width)).sum()
}

/// Length of the server's material, in bytes.
pub(super) fn material_bytes(plan: &Plan) -> usize {
    half_bytes(plan) + made_bytes(plan) + moved_bytes(plan)
}

/// Gives elements of a node's tensor to `sink`.
fn put(values: &[u64], node: &Node, sink: &mut Sink<'_>) -> Result<(), BackendError> {
    let mut out = Writer::default();
    out.packed(&Packed::new(values, node.fixed.width));
    sink(&out.finish())
}

/// Runs the offline phase. Gives `sink` the half and, at their places, the server's shares of
/// layers that are not dealt (from `lattice`) and the client's differences.
pub(super) fn offline(
    plan: &Plan,
    (mut half, mut lattice): (Source<'_>, lattice::Server<'_>),
    channel: &mut Channel,
    sink: &mut Sink<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    half.pass(SEED_BYTES, sink)?;
    for (id, node) in plan.graph.nodes().iter().enumerate() {
        stop.begin()?;
        half.pass(plan.dealt_bytes(id), sink)?;
        if let Some(place) = plan.lattice.place(id) {
            put(&Zeroizing::new(lattice.share(place, channel)?), node, sink)?;
        }
        if plan.moves(id) {
            put(&channel.recv_packed(MOVE, plan.elements(node), node.fixed.width)?, node, sink)?;
        }
    }
    Ok(())
}

/// Runs the online phase with material of this plan. `tap` gets the server's shares.
pub(super) fn online(
    plan: &Plan,
    weights: &Weights,
    mut source: Source<'_>,
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    let mut session = Session { role: Role::Server, channel, prg };
    let mut seed = Seed([0; SEED_BYTES]);
    seed.0.copy_from_slice(&source.bytes(SEED_BYTES)?);
    let phase = Online { plan, weights, seed: Prg::from_seed(seed), source, session: &mut session };
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ServerWalk { graph, steps, batch: *batch, phase, tap: &mut |id, share| tap(id, share) };
    let share = stop.walk(&**graph, &mut shares)?;
    session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
    Ok(session.channel.flush()?)
}

struct Online<'a, 's> {
    plan: &'a Plan,
    weights: &'a Weights,
    seed: Prg,
    source: Source<'a>,
    session: &'a mut Session<'s>,
}

impl ServerPhase<DealtStepTypes> for Online<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        Ok(self.session.channel.recv_packed(INPUT, self.plan.elements(node), node.fixed.width)?)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(BackendError::Misuse("the weights belong to another model"))?;
        let known = Zeroizing::new(self.source.packed(node, self.plan.elements(node))?);
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(&mut self, at: At, gate: &DealtGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let given = self.source.bytes(gate.cost().material)?;
        let half = (&stream(&self.seed, at, GATE), &*given);
        Ok(server_online(gate, (shares.tested, shares.values, shares.bases), half, self.session)?)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let given = self.source.bytes(widen_bytes(spec))?;
        let stream = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(server_widen(spec, x, (&stream, &*given), self.session)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let given = self.source.bytes(table.material())?;
        let stream = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(server_look_up(table, x, (&stream, &*given), self.session)?)
    }

    fn settle(&mut self, id: NodeId, node: &Node, mut share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        if self.plan.moves(id) {
            let moved = self.source.packed(node, self.plan.elements(node))?;
            let mask = ring_mask(node.fixed.width);
            share.iter_mut().zip(moved).for_each(|(s, d)| *s = s.wrapping_add(d) & mask);
        }
        Ok(share)
    }
}

/// Checks the length of stored material. Wrong content shows only in use.
pub(super) fn check_length(plan: &Plan, bytes: u64) -> Result<(), BackendError> {
    let needed = material_bytes(plan);
    if bytes != needed as u64 {
        return Err(MpcError::Material { what: format!("{bytes} bytes, {needed} expected") }.into());
    }
    Ok(())
}
