//! The dealer runs the client's walk over masks. It knows the client's seed, and so every share
//! that the client chose. It takes the other shares (of linear outputs) as zero, because it never
//! needs them.

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::{NodeId, walk};
use tacit_mpc::codec::{Packed, Writer};
use tacit_mpc::dealt::{DealtGate, LookUp, deal, deal_look_up, deal_widen};
use tacit_mpc::gate::WrapSpec;
use zeroize::Zeroizing;

use super::masked_weights;
use super::plan::{DealtStepTypes, Plan};
use tacit_arith::ring::ConvSpec;
use tacit_backend_api::BackendError;
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{At, ClientPhase, ClientWalk, GateShares, chosen, stream};

/// Parts of the client's seed beside its chosen shares (`share::chosen`): the randomness of a batch
/// of gates, the mask `t` of a linear layer, and the new share of a moved tensor.
pub(super) const GATE: u8 = 0xf0;
pub(super) const LINEAR: u8 = 0xf1;
pub(super) const MOVED: u8 = 0xf2;

/// Length of a party's seed, in bytes.
pub(super) const SEED_BYTES: usize = 16;

/// Derives the seeds of both parties from that of a dealing.
pub(super) fn seeds(dealing: &Seed) -> [Seed; 2] {
    let prg = Prg::from_seed(dealing.clone());
    [1, 2].map(|party| prg.fork(party).seed().clone())
}

/// The client's new share of a moved tensor.
pub(super) fn moved(plan: &Plan, seed: &Prg, id: NodeId, node: &Node) -> Vec<u64> {
    chosen(seed, At { node: id, level: 0 }, MOVED, plan.elements(node), node.fixed.width)
}

/// The client's mask `t` of a linear layer's result.
pub(super) fn mask(seed: &Prg, id: NodeId, elements: usize, width: u32) -> Vec<u64> {
    chosen(seed, At { node: id, level: 0 }, LINEAR, elements, width)
}

/// A dealer's keys of the dealt linear layers, in node order.
pub(super) struct Keys(pub(super) Vec<Seed>);

/// Makes the server's half in pieces, in the order of the walk.
pub(super) fn server_half(
    plan: &Plan,
    keys: &Keys,
    dealing: &Seed,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let [client, server] = seeds(dealing);
    sink(&server.0)?;
    let [client, again] = [client.clone(), client].map(Prg::from_seed);
    let phase = Dealing { plan, keys: keys.0.iter(), client: again, server: Prg::from_seed(server), sink };
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ClientWalk { graph, steps, batch: *batch, seed: client, phase, tap: &mut |_, _| {} };
    walk(&**graph, &mut shares).map(drop)
}

struct Dealing<'a> {
    plan: &'a Plan,
    keys: std::slice::Iter<'a, Seed>,
    client: Prg,
    server: Prg,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
}

impl ClientPhase<DealtStepTypes> for Dealing<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server gets `A r - t`, except for layers that are not dealt.
    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        if self.plan.lattice.place(id).is_some() {
            return Ok(vec![0; self.plan.batch * conv.out_len()]);
        }
        let width = self.plan.graph.nodes()[id].fixed.width;
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer that is dealt"))?;
        let mut known = Zeroizing::new(masked_weights::apply_random(key, conv, r, width)?);
        let masks = Zeroizing::new(mask(&self.client, id, known.len(), width));
        known.iter_mut().zip(masks.iter()).for_each(|(k, t)| *k = k.wrapping_sub(*t) & ring_mask(width));
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        let out: Zeroizing<Vec<u8>> = out.finish();
        (self.sink)(&out)?;
        Ok(vec![0; known.len()])
    }

    fn gate(&mut self, at: At, gate: &DealtGate, shares: &GateShares<'_>) -> Result<(), BackendError> {
        let streams = [&self.client, &self.server].map(|seed| stream(seed, at, GATE));
        deal(gate, (shares.tested, shares.values), [&streams[0], &streams[1]], self.sink)
    }

    fn widen(&mut self, id: NodeId, spec: &WrapSpec, c: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let streams = [&self.client, &self.server].map(|seed| stream(seed, At { node: id, level: 0 }, GATE));
        (self.sink)(&deal_widen(spec, c, &streams[0], &streams[1]))
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, c: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let streams = [&self.client, &self.server].map(|seed| stream(seed, At { node: id, level: 0 }, GATE));
        deal_look_up(table, c, [&streams[0], &streams[1]], self.sink)
    }

    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(if self.plan.moves(id) { moved(self.plan, &self.client, id, node) } else { share })
    }
}
