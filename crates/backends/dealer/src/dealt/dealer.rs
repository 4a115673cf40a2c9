//! The dealer runs the client's walk over masks. It knows the client's seed, and so every share
//! that the client chose. It takes the other shares (of linear outputs) as zero, because it never
//! needs them.

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::NodeId;
use tacit_mpc::dealt::{DealtGate, LookUp, deal, deal_look_up, deal_widen};
use tacit_mpc::gate::WrapSpec;
use tacit_mpc::{MpcError, Role};
use tacit_net::Sides;
use zeroize::Zeroizing;

use super::Dealt;
use super::plan::{Plan, SEED_BYTES};
use crate::session::masked_weights;
use crate::session::{Correlation, HalfBytes, Sink, packed_bytes};
use tacit_arith::ring::ConvSpec;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::Stop;
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{ClientPhase, ClientShares, GatePosition, chosen, stream};

/// Parts of the client's seed beside its chosen shares (`share::chosen`): the randomness of a batch
/// of gates, the mask `t` of a linear layer, and the new share of a moved tensor.
pub(super) const GATE: u8 = 0xf0;
pub(super) const LINEAR: u8 = 0xf1;
pub(super) const MOVED: u8 = 0xf2;

/// Reads a party's seed, the first 16 bytes of its half.
pub(super) fn read_seed(half: &[u8]) -> Seed {
    Seed(*half.first_chunk().expect("a half begins with a seed"))
}

/// The client's new share of a moved tensor.
pub(super) fn moved_share(plan: &Plan, seed: &Prg, id: NodeId, node: &Node) -> Vec<u64> {
    chosen(seed, GatePosition { node: id, level: 0 }, MOVED, plan.elements(node), node.fixed.width)
}

/// The client's mask `t` of a linear layer's result.
pub(super) fn linear_mask(seed: &Prg, id: NodeId, elements: usize, width: u32) -> Vec<u64> {
    chosen(seed, GatePosition { node: id, level: 0 }, LINEAR, elements, width)
}

impl Correlation for Dealt {
    type Stated = [[u8; 32]; 1];
    const CLIENT_SPOOLS: bool = false;

    fn stated(masked_weights: [u8; 32], _: &[u8]) -> Self::Stated {
        [masked_weights]
    }

    fn half_bytes(plan: &Plan, role: Role) -> HalfBytes {
        let (dealt, stored) = match role {
            Role::Client => (SEED_BYTES, SEED_BYTES),
            Role::Server => (plan.half_bytes(), plan.material_bytes()),
        };
        HalfBytes { head: SEED_BYTES, dealt, stored, digest: 0 }
    }

    fn wrong_length(role: Role, bytes: u64, expected: u64) -> BackendError {
        match role {
            Role::Client => BackendError::Material { what: format!("{bytes} bytes are no seed") },
            Role::Server => MpcError::Material { what: format!("{bytes} bytes, {expected} expected") }.into(),
        }
    }

    /// The client's half is its seed. The server's half is in the order of the walk.
    fn deal(role: Role, plan: &Plan, keys: &[Seed], dealing: &Seed, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let prg = Prg::from_seed(dealing.clone());
        let [client, server] = [1, 2].map(|party| prg.fork(party).seed().clone());
        if role == Role::Client {
            return sink(&client.0);
        }
        sink(&server.0)?;
        let client_prg = Prg::from_seed(client.clone());
        let phase = Dealing { plan, keys: keys.iter(), client: client_prg, server: Prg::from_seed(server), sink };
        plan.walk_client(Prg::from_seed(client), phase, &Stop::default()).map(drop)
    }
}

struct Dealing<'a> {
    plan: &'a Plan,
    keys: std::slice::Iter<'a, Seed>,
    client: Prg,
    server: Prg,
    sink: &'a mut Sink<'a>,
}

impl ClientPhase<Dealt> for Dealing<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server gets `A r - t`, except for layers that are not dealt.
    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        if self.plan.choices.lattice.place(id).is_some() {
            return Ok(vec![0; self.plan.batch * conv.out_len()]);
        }
        let width = self.plan.graph.nodes()[id].fixed.width;
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer that is dealt"))?;
        let mut known = Zeroizing::new(masked_weights::apply_random(key, conv, r, width)?);
        let masks = Zeroizing::new(linear_mask(&self.client, id, known.len(), width));
        known.iter_mut().zip(masks.iter()).for_each(|(k, t)| *k = k.wrapping_sub(*t) & ring_mask(width));
        (self.sink)(&packed_bytes(&known, width))?;
        Ok(vec![0; known.len()])
    }

    fn gate(
        &mut self,
        position: GatePosition,
        gate: &DealtGate,
        shares: &ClientShares<'_>,
    ) -> Result<(), BackendError> {
        let (client, server) = (stream(&self.client, position, GATE), stream(&self.server, position, GATE));
        deal(gate, shares.tested, shares.values, Sides { client: &client, server: &server }, self.sink)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, c: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let streams = [&self.client, &self.server].map(|seed| stream(seed, GatePosition { node: id, level: 0 }, GATE));
        (self.sink)(&deal_widen(spec, c, &streams[0], &streams[1]))
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, c: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let position = GatePosition { node: id, level: 0 };
        let (client, server) = (stream(&self.client, position, GATE), stream(&self.server, position, GATE));
        deal_look_up(table, c, Sides { client: &client, server: &server }, self.sink)
    }

    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(if self.plan.is_moved(id) { moved_share(self.plan, &self.client, id, node) } else { share })
    }
}
