//! The server's phases. Offline the server adds two things to its half: its shares of linear layers
//! that are not dealt, and the differences by which the client moves its shares. Online it walks
//! over its shares and reads the material in order.

use tacit_arith::prg::Prg;
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Session;
use tacit_mpc::dealt::{DealtGate, DealtHalf, LookUp, server_look_up, server_online, server_widen, widen_bytes};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::wire::PackedMessages;
use zeroize::Zeroizing;

use super::Dealt;
use super::client::{INPUT, MOVE, RESULT};
use super::dealer::{GATE, read_seed};
use super::plan::{Plan, SEED_BYTES};
use crate::session::lattice::{self, NO_WEIGHTS};
use crate::session::{Run, ServerOffline, ServerPhases, Source, StoredHalf, packed_bytes};
use tacit_backend_api::BackendError;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{GatePosition, ServerPhase, ServerShares, linear_online, stream};
use tacit_ring::{Node, Weights};

impl ServerPhases for Dealt {
    /// Stores the half and, at their places, the server's shares of layers that are not dealt and
    /// the client's differences.
    fn offline(run: Run<'_, '_, Self>, inputs: ServerOffline<'_>) -> Result<(), BackendError> {
        let Run { plan, session: Session { channel, prg, .. }, stop } = run;
        let ServerOffline { weights, client_keys, mut half, sink, .. } = inputs;
        let mut lattice = lattice::Server::new(&plan.choices.lattice, client_keys, weights, prg);
        half.pass(SEED_BYTES, sink)?;
        for (id, node) in plan.graph.nodes().iter().enumerate() {
            stop.begin()?;
            half.pass(plan.step_bytes_dealt(id), sink)?;
            if let Some(place) = plan.choices.lattice.place(id) {
                let share = Zeroizing::new(lattice.share(place, channel)?);
                sink(&packed_bytes(&share, node.fixed.width))?;
            }
            if plan.is_moved(id) {
                let difference = channel.recv_packed(MOVE, plan.elements(node), node.fixed.width)?;
                sink(&packed_bytes(&difference, node.fixed.width))?;
            }
        }
        Ok(())
    }

    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, weights: &Weights) -> Result<(), BackendError> {
        let Run { plan, session, stop } = run;
        let mut source = half.open(&plan.binding())?;
        let seed = Prg::from_seed(read_seed(&source.bytes(SEED_BYTES)?));
        let phase = Online { plan, weights, seed, source, session };
        let (share, Online { session, .. }) = plan.walk_server(phase, stop)?;
        session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
        Ok(session.channel.flush()?)
    }
}

struct Online<'a, 's> {
    plan: &'a Plan,
    weights: &'a Weights,
    seed: Prg,
    source: Source<'a>,
    session: &'a mut Session<'s>,
}

impl ServerPhase<Dealt> for Online<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        Ok(self.session.channel.recv_packed(INPUT, self.plan.elements(node), node.fixed.width)?)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(NO_WEIGHTS)?;
        let known = Zeroizing::new(self.source.packed(node, self.plan.elements(node))?);
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(
        &mut self,
        position: GatePosition,
        gate: &DealtGate,
        shares: &ServerShares<'_>,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let dealt_bytes = self.source.bytes(gate.cost().material)?;
        let half = DealtHalf { prg: &stream(&self.seed, position, GATE), bytes: &dealt_bytes };
        Ok(server_online(gate, *shares, half, self.session)?)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let dealt_bytes = self.source.bytes(widen_bytes(spec))?;
        let stream = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        Ok(server_widen(spec, x, DealtHalf { prg: &stream, bytes: &dealt_bytes }, self.session)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let dealt_bytes = self.source.bytes(table.material())?;
        let stream = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        Ok(server_look_up(table, x, DealtHalf { prg: &stream, bytes: &dealt_bytes }, self.session)?)
    }

    fn settle(&mut self, id: NodeId, node: &Node, mut share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        if self.plan.is_moved(id) {
            let difference = self.source.packed(node, self.plan.elements(node))?;
            let mask = ring_mask(node.fixed.width);
            share.iter_mut().zip(difference).for_each(|(s, d)| *s = s.wrapping_add(d) & mask);
        }
        Ok(share)
    }
}
