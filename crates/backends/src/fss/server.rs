//! The server's phases where the client alone is checked (level `l1`). It checks what the client sent
//! offline before it keeps the material, and what it sent online before it sends its share of the result.

use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::fss::gate::{FssGate, FssWiden, Ledger, server_online, server_widen};
use tacit_mpc::fss::mac::ring::Share;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::Level;
use super::client::{INPUT, LINEAR, RESULT};
use super::dealer::GATE;
use super::half::{self, ServerHead, When};
use super::plan::{Parts, Plan, Step, linear_bytes};
use super::wide::{self, ring};
use crate::BackendError;
use crate::dealt::statics;
use crate::ring::fixed::ring_mask;
use crate::ring::share::{At, ServerPhase, ServerShares, ServerWalk, Tap, linear_online, stream};
use crate::ring::{Node, Weights};
use crate::seam::{Stop, check_made_for};

pub(super) const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");

/// The server's material for the inputs of a plan.
pub(super) struct ServerMaterial {
    /// Digest of the plan that it was read for.
    pub(super) plan: [u8; 32],
    /// The half and the linear layers' results, without a digest.
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl ServerMaterial {
    pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<Self, BackendError> {
        let content = half::checked(plan, Role::Server, bytes, half::server_bytes(plan)[1])?;
        Ok(Self { plan: plan.binding(), bytes: Zeroizing::new(content.to_vec()) })
    }
}

/// Appends to the dealer's half `A r - t + V` of each linear layer, once the client's V are checked.
/// `keys`: of the linear layers, in node order.
pub(super) fn offline(
    plan: &Plan,
    (weights, keys): (&Weights, &[Seed]),
    half: &[u8],
    (channel, prg): (&mut Channel, &mut Prg),
    stop: &Stop,
) -> Result<ServerMaterial, BackendError> {
    let [dealt, stored] = half::server_bytes(plan);
    let content = half::checked(plan, Role::Server, half, dealt)?;
    let mut from = Reader::new(content);
    let head = ServerHead::read(plan, &mut from)?;
    let mut ledger = Ledger::new(Role::Server, &half::session(plan, head.hash, When::Offline), &head.delta);
    let mut bytes = Zeroizing::new(Vec::with_capacity(stored));
    bytes.extend_from_slice(content);
    let mut keys = keys.iter();
    for (id, (step, node)) in plan.steps.iter().zip(plan.graph.nodes()).enumerate() {
        stop.begin()?;
        let Step::Linear(conv) = step else {
            half::skip(step, &mut from)?;
            continue;
        };
        let (n, width) = (plan.elements(node), node.fixed.width);
        let (ring, layer) = (ring(width), weights.get(id).ok_or(NO_WEIGHTS)?);
        let mut known = from.packed(n, width)?.values();
        let (of_r, of_tau) =
            (wide::read(&mut from, ring, plan.batch * conv.in_len())?, wide::read(&mut from, ring, n)?);
        let key = keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let of_words = wide::apply(&statics::masked(layer, key, width), conv, &of_r, ring.share_bits())?;
        let words = channel.recv_packed(LINEAR, n, width)?;
        let mask = u128::MAX >> (128 - ring.share_bits());
        let tag = |(a, b): (&u128, &u128)| Share { value: 0, tag: a.wrapping_add(*b).wrapping_neg() & mask };
        ledger.values(width, of_words.iter().zip(of_tau.iter()).map(tag), words.iter().copied());
        known.iter_mut().zip(&words).for_each(|(k, v)| *k = k.wrapping_add(*v) & ring_mask(width));
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        bytes.extend_from_slice(&out.finish());
    }
    let [masks, _] = head.masks;
    ledger.verify(&head.key, masks, (channel, prg))?;
    Ok(ServerMaterial { plan: plan.binding(), bytes })
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
    check_made_for(&material.plan, &plan.binding())?;
    let (dealt, known) = material.bytes.split_at(half::server_bytes(plan)[0]);
    let (mut dealt, known) = (Reader::new(dealt), Reader::new(known));
    let ServerHead { seed, hash, delta, key, masks: [_, masks] } = ServerHead::read(plan, &mut dealt)?;
    let ledger = Ledger::new(Role::Server, &half::session(plan, hash, When::Online), &delta);
    let mut session = Session { role: Role::Server, channel, prg };
    let phase = Online { plan, weights, seed, hash, batch: 0, dealt, known, ledger, session: &mut session };
    let mut tap = |id: NodeId, share: &[u64]| tap(id, share);
    let mut shares = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap: &mut tap };
    let share = stop.walk(&*plan.graph, &mut shares)?;
    let Online { ledger, .. } = shares.phase;
    ledger.verify(&key, masks, (session.channel, session.prg))?;
    session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
    Ok(session.channel.flush()?)
}

struct Online<'a, 's> {
    plan: &'a Plan,
    weights: &'a Weights,
    seed: Prg,
    hash: PublicSeed,
    /// Number of the next batch.
    batch: u32,
    dealt: Reader<'a>,
    known: Reader<'a>,
    ledger: Ledger,
    session: &'a mut Session<'s>,
}

impl ServerPhase<Parts> for Online<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        Ok(self.session.channel.recv_packed(INPUT, self.plan.elements(node), node.fixed.width)?)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(NO_WEIGHTS)?;
        let (step, of) = (Step::Linear(*conv), (Level::L1, self.plan.batch));
        self.dealt.bytes(linear_bytes(&step, node, of).map_or(0, |bytes| bytes.iter().sum()))?;
        let known = self.known.packed(self.plan.elements(node), node.fixed.width)?.values();
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(&mut self, at: At, gate: &FssGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let given = self.dealt.bytes(gate.cost().server_material)?;
        let (place, prg) = ((self.hash, self.batch), stream(&self.seed, at, GATE));
        self.batch += 1;
        let shares = (shares.tested, shares.values, shares.bases);
        Ok(server_online(gate, place, shares, (&prg, given), self.session, &mut self.ledger)?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let given = self.dealt.bytes(spec.cost().server_material)?;
        let prg = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(server_widen(spec, x, (&prg, given), self.session, &mut self.ledger)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
