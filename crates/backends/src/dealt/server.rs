//! The server's phases. Offline it takes its half from the dealer and what moves the client's shares from the
//! client; online it walks over its shares, piece by piece through both.

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::Packed;
use tacit_mpc::dealt::{DealtGate, LookUp, server_look_up, server_online, server_widen, widen_bytes};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{MpcError, Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::{INPUT, MOVE, RESULT};
use super::dealer::{GATE, SEED_BYTES};
use super::plan::{Parts, Plan, dealt_bytes};
use super::source::Source;
use crate::BackendError;
use crate::ring::fixed::ring_mask;
use crate::ring::share::{At, ServerPhase, ServerShares, ServerWalk, Tap, linear_online, stream};
use crate::ring::{Node, Weights};
use crate::seam::Stop;

/// The server's material for one input or a batch: what the dealer gave, and what the client moved its shares
/// by, in the order in which the online phase reads it.
pub(super) struct ServerMaterial {
    /// Digest of the plan that it was read for.
    pub(super) plan: [u8; 32],
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// Bytes of the server's half.
pub(super) fn half_bytes(plan: &Plan) -> usize {
    let steps = plan.steps.iter().zip(plan.graph.nodes());
    SEED_BYTES + steps.map(|(step, node)| dealt_bytes(step, node, plan.batch)).sum::<usize>()
}

/// Bytes of what the client moves its shares by.
pub(super) fn moved_bytes(plan: &Plan) -> usize {
    let nodes = plan.graph.nodes().iter().enumerate().filter(|(id, _)| plan.moves(*id));
    nodes.map(|(_, node)| Packed::len_bytes(plan.elements(node), node.fixed.width)).sum()
}

/// Bytes of all that the server keeps.
pub(super) fn material_bytes(plan: &Plan) -> usize {
    half_bytes(plan) + moved_bytes(plan)
}

/// Puts the two together as they come: of the half in pieces of any size, and of what the client sends as
/// far as it is needed.
pub(super) struct Intake<'a> {
    plan: &'a Plan,
    /// How much of the half comes next, and the node that the client moves its share of behind that.
    parts: Box<dyn Iterator<Item = (usize, Option<&'a Node>)> + 'a>,
    left: usize,
    moved: Option<&'a Node>,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    stop: &'a Stop,
}

impl<'a> Intake<'a> {
    /// Gives the material to `sink`.
    pub(super) fn new(
        plan: &'a Plan,
        sink: &'a mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
        stop: &'a Stop,
    ) -> Self {
        let nodes = plan.steps.iter().zip(plan.graph.nodes()).enumerate();
        let part = |(id, (step, node))| (dealt_bytes(step, node, plan.batch), plan.moves(id).then_some(node));
        let parts = Box::new(std::iter::once((SEED_BYTES, None)).chain(nodes.map(part)));
        Self { plan, parts, left: 0, moved: None, sink, stop }
    }

    /// The next bytes of the dealer's half.
    pub(super) fn half(&mut self, mut bytes: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        loop {
            while self.left == 0 {
                if let Some(node) = self.moved.take() {
                    let values = channel.recv_packed(MOVE, self.plan.elements(node), node.fixed.width)?;
                    let mut out = tacit_mpc::codec::Writer::default();
                    out.packed(&Packed::new(&values, node.fixed.width));
                    (self.sink)(&out.finish())?;
                }
                self.stop.begin()?;
                match self.parts.next() {
                    Some((left, moved)) => (self.left, self.moved) = (left, moved),
                    None if bytes.is_empty() => return Ok(()),
                    None => return Err(length("more")),
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            (self.sink)(now)?;
            self.left -= now.len();
            bytes = later;
        }
    }

    /// Nothing more comes from the dealer.
    pub(super) fn finish(mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.half(&[], channel)?;
        if self.left > 0 { Err(length("fewer")) } else { Ok(()) }
    }
}

fn length(what: &str) -> BackendError {
    BackendError::Material { what: format!("{what} bytes from the dealer than its half has") }
}

/// The online phase with material of this plan; `tap` is shown the server's shares.
pub(super) fn online(
    plan: &Plan,
    weights: &Weights,
    mut source: Source<'_>,
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut Tap<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    let mut session = Session { role: Role::Server, channel, prg };
    let mut seed = Seed([0; SEED_BYTES]);
    seed.0.copy_from_slice(&source.bytes(SEED_BYTES)?);
    let phase = Online { plan, weights, seed: Prg::from_seed(seed), source, session: &mut session };
    let mut tap = |id: NodeId, share: &[u64]| tap(id, share);
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ServerWalk { graph, steps, batch: *batch, phase, tap: &mut tap };
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

impl ServerPhase<Parts> for Online<'_, '_> {
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

/// Refuses stored material of another length. What stands in it shows when it is used.
pub(super) fn check_length(plan: &Plan, bytes: u64) -> Result<(), BackendError> {
    let needed = material_bytes(plan);
    if bytes != needed as u64 {
        return Err(MpcError::Material { what: format!("{bytes} bytes, {needed} expected") }.into());
    }
    Ok(())
}
