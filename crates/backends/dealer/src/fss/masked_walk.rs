//! The online walk over masked values `xh = x - c`: the server's, and at level `l2` also the
//! client's. At level `l1` the client knows c. At level `l2` only the dealer has c, both parties
//! have the same masked values, and they have shares of what they need of c. So one walk serves
//! both parties, and the server adds the linear layers.
//!
//! The client sends its masked input, and at level `l2` the server sends the masked result of each
//! linear layer ([`super::linear_check`]).

use tacit_arith::prg::{Prg, PublicSeed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Session;
use tacit_mpc::dealt::{DealtHalf, LookUp};
use tacit_mpc::fss::gate::{
    BatchId, CheckTranscript, FssCost, FssGate, FssWiden, Half, server_look_up, server_online, server_widen,
    shared_look_up, shared_online, shared_widen,
};
use tacit_mpc::wire::PackedMessages;
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::dealer::GATE;
use super::linear_check::AffineMap;
use super::plan::{Plan, tagged_look_up};
use super::{Fss, Level};
use crate::session::lattice::NO_WEIGHTS;
use crate::session::{Bytes, Source};
use tacit_backend_api::BackendError;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{GatePosition, ServerPhase, ServerShares, linear_online, stream};
use tacit_ring::{Node, Weights};

/// Message: the client's masked input.
pub(super) const INPUT: Tag = Tag::new(0x0430, "masked input");
/// Message: the masked result of a linear layer.
const MASKED: Tag = Tag::new(0x0433, "masked result of a linear layer");

/// A party's private data in an online phase.
pub(super) enum Party<'a> {
    /// Only at level `l2`.
    Client {
        /// The stream of the input's mask.
        mask: Box<Prg>,
        input: &'a [i64],
        /// The server's results of linear layers.
        results: Vec<LayerResult>,
    },
    Server {
        weights: &'a Weights,
    },
}

/// A linear layer's masked input, and the result that the server sent. The client checks it after
/// the walk, because the projections follow its correction words.
pub(super) struct LayerResult {
    pub(super) input: Vec<u64>,
    pub(super) result: Vec<u64>,
}

pub(super) struct MaskedWalk<'a, 's> {
    pub(super) plan: &'a Plan,
    pub(super) party: Party<'a>,
    pub(super) seed: Prg,
    pub(super) hash: PublicSeed,
    pub(super) batch: u32,
    /// Correction words and projections at the client, pieces of all steps at the server.
    pub(super) source: Source<'a>,
    pub(super) transcript: CheckTranscript,
    pub(super) session: &'a mut Session<'s>,
}

/// A party's stream and dealt bytes of a batch.
struct BatchHalf<'a> {
    prg: Prg,
    bytes: Bytes<'a>,
    is_client: bool,
}

impl BatchHalf<'_> {
    /// The half for the phases of level `l1`.
    fn to_dealt(&self) -> DealtHalf<'_> {
        DealtHalf { prg: &self.prg, bytes: &self.bytes }
    }

    /// The half for the phases of level `l2`, which both parties run alike.
    fn to_half(&self) -> Half<'_> {
        if self.is_client { Half::Client(&self.prg, &self.bytes) } else { Half::Server(&self.bytes) }
    }
}

impl<'a> MaskedWalk<'a, '_> {
    /// Reads the party's half of the batch at `position`.
    fn read_half(&mut self, position: GatePosition, cost: &FssCost) -> Result<BatchHalf<'a>, BackendError> {
        let is_client = matches!(self.party, Party::Client { .. });
        let bytes = self.source.bytes(if is_client { cost.client_material } else { cost.server_material })?;
        Ok(BatchHalf { prg: stream(&self.seed, position, GATE), bytes, is_client })
    }

    /// Numbers the next batch, for its hash keys.
    fn next_batch(&mut self) -> BatchId {
        self.batch += 1;
        BatchId { hash: self.hash, number: self.batch - 1 }
    }
}

impl ServerPhase<Fss> for MaskedWalk<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        let (n, width) = (self.plan.elements(node), node.fixed.width);
        let Party::Client { mask, input, .. } = &mut self.party else {
            return Ok(self.session.channel.recv_packed(INPUT, n, width)?);
        };
        let mut masked = vec![0; n];
        mask.fill_u64(&mut masked);
        let pairs = masked.iter_mut().zip(input.iter());
        pairs.for_each(|(c, x)| *c = (*x as u64).wrapping_sub(*c) & ring_mask(width));
        self.session.channel.send_packed(INPUT, &masked, width)?;
        Ok(masked)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let (n, width, channel) = (self.plan.elements(node), node.fixed.width, &mut *self.session.channel);
        match &mut self.party {
            Party::Client { results, .. } => {
                let result = channel.recv_packed(MASKED, n, width)?;
                results.push(LayerResult { input: x.to_vec(), result: result.clone() });
                Ok(result)
            }
            Party::Server { weights } => {
                let layer = weights.get(id).ok_or(NO_WEIGHTS)?;
                let known = Zeroizing::new(self.source.packed(node, n)?);
                let result = linear_online(conv, layer, x, &known, width)?;
                if self.plan.level() == Level::L2 {
                    channel.send_packed(MASKED, &result, width)?;
                    channel.flush()?;
                    let map = AffineMap::read(&self.plan.layer(id, conv), &mut self.source)?;
                    self.transcript.project(&map.apply(conv, x, width)?);
                }
                Ok(result)
            }
        }
    }

    fn gate(
        &mut self,
        position: GatePosition,
        gate: &FssGate,
        shares: &ServerShares<'_>,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let (half, batch) = (self.read_half(position, &gate.cost())?, self.next_batch());
        let Self { plan, session, transcript, .. } = self;
        Ok(match plan.level() {
            Level::L1 => server_online(gate, batch, *shares, half.to_dealt(), session, transcript),
            Level::L2 => shared_online(gate, batch, *shares, half.to_half(), session, transcript),
        }?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let half = self.read_half(GatePosition { node: id, level: 0 }, &spec.cost())?;
        let Self { plan, session, transcript, .. } = self;
        Ok(match plan.level() {
            Level::L1 => server_widen(spec, x, half.to_dealt(), session, transcript),
            Level::L2 => shared_widen(spec, x, half.to_half(), session, transcript),
        }?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let spec = tagged_look_up(table, self.plan.level());
        let (half, batch) = (self.read_half(GatePosition { node: id, level: 0 }, &spec.cost())?, self.next_batch());
        let Self { plan, session, transcript, .. } = self;
        Ok(match plan.level() {
            Level::L1 => server_look_up(&spec, batch, x, half.to_dealt(), session, transcript),
            Level::L2 => shared_look_up(&spec, batch, x, half.to_half(), session, transcript),
        }?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
