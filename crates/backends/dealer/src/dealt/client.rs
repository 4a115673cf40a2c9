//! The client's phases. Offline the client computes `E r`, or gets its share of `W r` from the
//! server for layers that are not dealt, and sends the differences that move its shares. Online it
//! needs only its seed.

use tacit_arith::prg::Prg;
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Session;
use tacit_mpc::dealt::{DealtGate, LookUp, client_look_up, client_online, client_widen};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::wire::PackedMessages;
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::Dealt;
use super::dealer::{GATE, linear_mask, moved_share, read_seed};
use super::plan::{Plan, SEED_BYTES};
use crate::session::lattice;
use crate::session::masked_weights::MaskedWeights;
use crate::session::{ClientOffline, ClientPhases, Run, StoredHalf};
use tacit_backend_api::BackendError;
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{ClientPhase, ClientShares, GatePosition, check_input, receive_result, stream};

/// Message: the client's masked input.
pub(super) const INPUT: Tag = Tag::new(0x0420, "masked input");
/// Message: the server's share of the result.
pub(super) const RESULT: Tag = Tag::new(0x0421, "share of the result");
/// Message, offline: the difference by which the client's share of a tensor moves.
pub(super) const MOVE: Tag = Tag::new(0x0422, "moved share");

impl ClientPhases for Dealt {
    /// The head is the whole half, and nothing is stored after it.
    fn offline(run: Run<'_, '_, Self>, inputs: ClientOffline<'_>) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let (Run { plan, session, stop }, ClientOffline { masked_weights, keys, head }) = (run, inputs);
        let lattice = lattice::Client::new(&plan.choices.lattice, keys, session.prg);
        let (seed, channel) = (Prg::from_seed(read_seed(head)), &mut *session.channel);
        let share_stream = Prg::from_seed(seed.seed().clone());
        let phase = Offline { plan, masked_weights, lattice, next: 0, seed, channel };
        let (_, Offline { channel, .. }) = plan.walk_client(share_stream, phase, stop)?;
        channel.flush()?;
        Ok(Zeroizing::default())
    }

    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, input: &[i64]) -> Result<Vec<i64>, BackendError> {
        let Run { plan, session, stop } = run;
        check_input(&plan.graph, plan.batch, input)?;
        let seed = Prg::from_seed(read_seed(&half.open(&plan.binding())?.bytes(SEED_BYTES)?));
        let share_stream = Prg::from_seed(seed.seed().clone());
        let (share, Online { session, .. }) =
            plan.walk_client(share_stream, Online { plan, input, seed, session }, stop)?;
        receive_result(&plan.graph, &share, RESULT, session.channel)
    }
}

struct Offline<'a> {
    plan: &'a Plan,
    masked_weights: &'a MaskedWeights,
    lattice: lattice::Client<'a>,
    /// Index of the next dealt linear layer.
    next: usize,
    seed: Prg,
    channel: &'a mut Channel,
}

impl ClientPhase<Dealt> for Offline<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        let width = self.plan.graph.nodes()[id].fixed.width;
        if let Some(place) = self.plan.choices.lattice.place(id) {
            return self.lattice.share(place, r, self.channel);
        }
        let mut share = self.masked_weights.layer(self.next).apply(conv, r)?;
        self.next += 1;
        let masks = Zeroizing::new(linear_mask(&self.seed, id, share.len(), width));
        share.iter_mut().zip(masks.iter()).for_each(|(c, t)| *c = c.wrapping_add(*t) & ring_mask(width));
        Ok(share)
    }

    fn gate(&mut self, _: GatePosition, _: &DealtGate, _: &ClientShares<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn widen(&mut self, _: NodeId, _: &WrapSpec, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        Ok(())
    }

    fn look_up(&mut self, _: NodeId, _: &LookUp, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        Ok(())
    }

    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        if !self.plan.is_moved(id) {
            return Ok(share);
        }
        let target = moved_share(self.plan, &self.seed, id, node);
        let share = Zeroizing::new(share);
        let difference: Vec<u64> = share.iter().zip(&target).map(|(c, r)| c.wrapping_sub(*r)).collect();
        self.channel.send_packed(MOVE, &difference, node.fixed.width)?;
        Ok(target)
    }
}

struct Online<'a, 's> {
    plan: &'a Plan,
    input: &'a [i64],
    seed: Prg,
    session: &'a mut Session<'s>,
}

impl ClientPhase<Dealt> for Online<'_, '_> {
    fn input(&mut self, share: &[u64], width: u32) -> Result<(), BackendError> {
        let masked: Vec<u64> = self.input.iter().zip(share).map(|(&x, r)| (x as u64).wrapping_sub(*r)).collect();
        Ok(self.session.channel.send_packed(INPUT, &masked, width)?)
    }

    /// Returns zeros: this share is not read before it is moved.
    fn linear(&mut self, conv: &ConvSpec, _: NodeId, _: &[u64]) -> Result<Vec<u64>, BackendError> {
        Ok(vec![0; self.plan.batch * conv.out_len()])
    }

    fn gate(
        &mut self,
        position: GatePosition,
        gate: &DealtGate,
        shares: &ClientShares<'_>,
    ) -> Result<(), BackendError> {
        Ok(client_online(gate, *shares, &stream(&self.seed, position, GATE), self.session)?)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, c: &[u64], target: &[u64]) -> Result<(), BackendError> {
        let stream = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        Ok(client_widen(spec, c, target, &stream, self.session)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, _: &[u64], target: &[u64]) -> Result<(), BackendError> {
        let stream = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        Ok(client_look_up(table, target, &stream, self.session)?)
    }

    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(if self.plan.is_moved(id) { moved_share(self.plan, &self.seed, id, node) } else { share })
    }
}
