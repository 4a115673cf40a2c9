//! The server's phases. Offline it takes its half from the dealer and what moves the client's shares from the
//! client; online it walks over its shares, piece by piece through both.

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::{Packed, Reader};
use tacit_mpc::dealt::{DealtGate, server_online, server_widen, widen_bytes};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{MpcError, Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::{INPUT, MOVE, RESULT};
use super::dealer::{GATE, SEED_BYTES};
use super::plan::{Parts, Plan, dealt_bytes};
use crate::BackendError;
use crate::ring::fixed::ring_mask;
use crate::ring::share::{At, ServerPhase, ServerShares, ServerWalk, Tap, linear_online, stream};
use crate::ring::{Node, Weights};
use crate::seam::Stop;

/// The server's material for one input.
pub(super) struct ServerMaterial {
    /// Digest of the plan that it was read for.
    pub(super) plan: [u8; 32],
    /// What the dealer gave, then what the client moved its shares by: packed, in node order.
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// Bytes of the server's half.
pub(super) fn half_bytes(plan: &Plan) -> usize {
    let steps = plan.steps.iter().zip(plan.graph.nodes());
    SEED_BYTES + steps.map(|(step, node)| dealt_bytes(step, node)).sum::<usize>()
}

/// Nodes whose tensors the client moves its share of.
pub(super) fn moved_nodes(plan: &Plan) -> impl Iterator<Item = &Node> {
    plan.graph.nodes().iter().enumerate().filter(|(id, _)| plan.moves(*id)).map(|(_, node)| node)
}

/// Bytes of what the client moves its shares by.
pub(super) fn moved_bytes(plan: &Plan) -> usize {
    moved_nodes(plan).map(|node| Packed::len_bytes(node.elements(), node.fixed.width)).sum()
}

/// Appends what the client moves its shares by to the dealer's half.
pub(super) fn offline(
    plan: &Plan,
    mut half: Zeroizing<Vec<u8>>,
    channel: &mut Channel,
    stop: &Stop,
) -> Result<ServerMaterial, BackendError> {
    if half.len() != half_bytes(plan) {
        let what = format!("the dealer's half has {} bytes, {} expected", half.len(), half_bytes(plan));
        return Err(BackendError::Material { what });
    }
    half.reserve_exact(moved_bytes(plan));
    for node in moved_nodes(plan) {
        stop.begin()?;
        let values = channel.recv_packed(MOVE, node.elements(), node.fixed.width)?;
        let mut out = tacit_mpc::codec::Writer::default();
        out.packed(&Packed::new(&values, node.fixed.width));
        half.extend_from_slice(&out.finish());
    }
    Ok(ServerMaterial { plan: plan.digest(), bytes: half })
}

/// The online phase; `tap` is shown the server's shares.
pub(super) fn online(
    plan: &Plan,
    weights: &Weights,
    material: &ServerMaterial,
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut Tap<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    if material.plan != plan.digest() {
        return Err(BackendError::Misuse("the material belongs to another plan"));
    }
    let mut session = Session { role: Role::Server, channel, prg };
    let (dealt, moved) = material.bytes.split_at(half_bytes(plan));
    let (mut dealt, moved) = (Reader::new(dealt), Reader::new(moved));
    let mut seed = Seed([0; SEED_BYTES]);
    seed.0.copy_from_slice(dealt.bytes(SEED_BYTES)?);
    let phase = Online { plan, weights, seed: Prg::from_seed(seed), dealt, moved, session: &mut session };
    let mut tap = |id: NodeId, share: &[u64]| tap(id, share);
    let mut shares = ServerWalk { graph: &plan.graph, steps: &plan.steps, phase, tap: &mut tap };
    let share = stop.walk(&plan.graph, &mut shares)?;
    session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
    Ok(session.channel.flush()?)
}

struct Online<'a, 's> {
    plan: &'a Plan,
    weights: &'a Weights,
    seed: Prg,
    dealt: Reader<'a>,
    moved: Reader<'a>,
    session: &'a mut Session<'s>,
}

impl ServerPhase<Parts> for Online<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        Ok(self.session.channel.recv_packed(INPUT, node.elements(), node.fixed.width)?)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(BackendError::Misuse("the weights belong to another model"))?;
        let known = self.dealt.packed(node.elements(), node.fixed.width)?.values();
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(&mut self, at: At, gate: &DealtGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let given = self.dealt.bytes(gate.cost().material)?;
        let half = (&stream(&self.seed, at, GATE), given);
        Ok(server_online(gate, (shares.tested, shares.values, shares.bases), half, self.session)?)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let given = self.dealt.bytes(widen_bytes(spec))?;
        let stream = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(server_widen(spec, x, (&stream, given), self.session)?)
    }

    fn settle(&mut self, id: NodeId, node: &Node, mut share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        if self.plan.moves(id) {
            let moved = self.moved.packed(node.elements(), node.fixed.width)?.values();
            let mask = ring_mask(node.fixed.width);
            share.iter_mut().zip(moved).for_each(|(s, d)| *s = s.wrapping_add(d) & mask);
        }
        Ok(share)
    }
}

/// Reads stored material. What stands in it shows when it is used.
pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<ServerMaterial, BackendError> {
    let needed = half_bytes(plan) + moved_bytes(plan);
    if bytes.len() != needed {
        return Err(MpcError::Material { what: format!("{} bytes, {needed} expected", bytes.len()) }.into());
    }
    Ok(ServerMaterial { plan: plan.digest(), bytes: Zeroizing::new(bytes.to_vec()) })
}
