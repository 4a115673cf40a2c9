//! What the dealer does: the client's walk over masks, once for each half. It knows the client's share of
//! every tensor.

use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::{NodeId, walk};
use tacit_mpc::Role;
use tacit_mpc::codec::{Packed, Writer};
use tacit_mpc::dealt::ClientShares;
use tacit_mpc::fss::delta::Delta;
use tacit_mpc::fss::gate::{DealerStreams, FssGate, FssWiden, Sides, deal_client, deal_server, deal_widen};
use tacit_mpc::fss::mac::ring::{Key, Share, draw_shares};
use zeroize::Zeroizing;

use super::half::{self, DELTA, Digesting, SEED, When, mask_stream};
use super::plan::{Parts, Plan};
use super::wide::{self, ring};
use crate::BackendError;
use crate::dealt::statics;
use crate::ring::Node;
use crate::ring::fixed::ring_mask;
use crate::ring::share::{At, ClientPhase, ClientWalk, GateShares, chosen, stream};

/// Parts of the client's seed beside the shares that it chooses (`share::chosen`): what a batch of gates
/// draws, the share that a linear layer's result ends on, tags of the layer's input, its mask tau with
/// tags.
pub(super) const GATE: u8 = 0xf0;
pub(super) const TARGET: u8 = 0xf1;
pub(super) const TAGS: u8 = 0xf2;
pub(super) const TAU: u8 = 0xf3;

/// The streams of a material: the parties' seeds, the dealer's own, and the public seed of the hash keys.
struct Streams {
    seeds: [Seed; 2],
    dealer: Prg,
    hash: PublicSeed,
}

impl Streams {
    fn new(dealing: &Seed) -> Self {
        let prg = Prg::from_seed(dealing.clone());
        // The published one is all that its stream ever gives.
        let hash = PublicSeed::from_bytes(prg.fork(4).next_seed().0);
        Self { seeds: [1, 2].map(|party| prg.fork(party).seed().clone()), dealer: prg.fork(3), hash }
    }
}

/// The share that the client ends on behind a linear layer.
pub(super) fn target(seed: &Prg, id: NodeId, elements: usize, width: u32) -> Vec<u64> {
    chosen(seed, At { node: id, level: 0 }, TARGET, elements, width)
}

/// The client's tags of its share of a layer's input (the values drawn with them are not used), and its
/// masks.
pub(super) fn tags_and_masks(seed: &Prg, id: NodeId, conv: &ConvSpec, width: u32) -> [Zeroizing<Vec<Share>>; 2] {
    let draw = |part, n| draw_shares(ring(width), n, &mut stream(seed, At { node: id, level: 0 }, part));
    [Zeroizing::new(draw(TAGS, conv.in_len())), Zeroizing::new(draw(TAU, conv.out_len()))]
}

/// Gives a party's half in pieces. `keys`: of the linear layers, in node order.
pub(super) fn deal(
    role: Role,
    plan: &Plan,
    keys: &[Seed],
    dealing: &Seed,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let Streams { seeds: [client, server], dealer, hash } = Streams::new(dealing);
    let (delta, key) = (Delta::draw(&mut dealer.fork(0)), Key::held(&mut dealer.fork(1)));
    let mut digesting = Digesting::new(&plan.binding(), role);
    let mut counted = |bytes: &[u8]| {
        digesting.update(bytes);
        sink(bytes)
    };
    let [own, walked] = [client.clone(), client.clone()].map(Prg::from_seed);
    // All of it at once: what grows leaves its beginning behind in memory.
    let head_bytes = if role == Role::Client { 2 * SEED } else { half::head_bytes(plan) };
    let mut head = Zeroizing::new(Vec::with_capacity(head_bytes));
    head.extend_from_slice(if role == Role::Client { &client.0 } else { &server.0 });
    head.extend_from_slice(&hash.to_bytes());
    if role == Role::Server {
        head.extend_from_slice(&delta.split(&mut own.fork(DELTA)).to_block().to_bytes());
        head.extend_from_slice(&key.other().to_u64().to_le_bytes());
        for (widths, when) in plan.widths().iter().zip([When::Offline, When::Online]) {
            for &width in widths {
                let [mut theirs, mut ours] = [&dealer, &own].map(|seed| mask_stream(seed, when, width));
                half::write_masks(&key.deal_masks(ring(width), &mut theirs, &mut ours), &mut head);
            }
        }
    }
    counted(&head)?;
    let phase = Dealing {
        role,
        plan,
        keys: keys.iter(),
        client: own,
        server: Prg::from_seed(server),
        dealer: dealer.fork(2),
        sides: (hash, delta, key),
        batch: 0,
        sink: &mut counted,
    };
    let mut tap = |_: NodeId, _: &[u64]| {};
    let mut shares = ClientWalk { graph: &plan.graph, steps: &plan.steps, seed: walked, phase, tap: &mut tap };
    walk(&plan.graph, &mut shares)?;
    sink(&digesting.finish())
}

struct Dealing<'a> {
    role: Role,
    plan: &'a Plan,
    keys: std::slice::Iter<'a, Seed>,
    client: Prg,
    server: Prg,
    dealer: Prg,
    sides: (PublicSeed, Delta, Key),
    /// Number of the next batch.
    batch: u32,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
}

impl ClientPhase<Parts> for Dealing<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server gets `A r - t` and the keys of the tags of r and tau.
    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        let width = self.plan.graph.nodes()[id].fixed.width;
        let target = target(&self.client, id, conv.out_len(), width);
        if self.role == Role::Client {
            return Ok(target);
        }
        let (ring, macs) = (ring(width), &self.sides.2);
        let [tags, tau] = tags_and_masks(&self.client, id, conv, width);
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let mut known = Zeroizing::new(statics::apply_random(key, conv, r, width)?);
        for ((known, tau), target) in known.iter_mut().zip(tau.iter()).zip(&target) {
            *known = known.wrapping_sub(tau.value as u64).wrapping_sub(*target) & ring_mask(width);
        }
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        let held = r.iter().zip(tags.iter()).map(|(r, tag)| Share { value: u128::from(*r), tag: tag.tag });
        wide::write(held.map(|share| macs.key_of(ring, &share)), ring, &mut out);
        wide::write(tau.iter().map(|share| macs.key_of(ring, share)), ring, &mut out);
        (self.sink)(&out.finish())?;
        Ok(target)
    }

    fn gate(&mut self, at: At, gate: &FssGate, shares: &GateShares<'_>) -> Result<(), BackendError> {
        let [client, server, dealer] = [&self.client, &self.server, &self.dealer].map(|seed| stream(seed, at, GATE));
        let streams = DealerStreams { client: &client, server: &server, dealer: &dealer };
        let (hash, delta, key) = &self.sides;
        let sides = Sides { hash: *hash, batch: self.batch, delta, key };
        self.batch += 1;
        let GateShares { tested, values, bases, targets } = *shares;
        let shares = ClientShares { tested, values, bases, targets };
        match self.role {
            Role::Client => deal_client(gate, &sides, &streams, &shares, self.sink),
            Role::Server => deal_server(gate, &sides, &streams, &shares, self.sink),
        }
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, c: &[u64], to: &[u64]) -> Result<(), BackendError> {
        if self.role == Role::Client {
            return Ok(());
        }
        let streams = [&self.client, &self.server].map(|seed| stream(seed, At { node: id, level: 0 }, GATE));
        (self.sink)(&deal_widen(spec, &self.sides.2, streams.each_ref(), (c, to)))
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
