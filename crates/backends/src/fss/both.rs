//! The phases of either party where both are checked (level `l2`). What both have of every tensor is the same
//! masked value `xh = x - c`; c is the dealer's, and the parties have shares of what they need of it. So one
//! walk serves both, and the server adds what only it can: linear layers.
//!
//! Offline they open `V = E c + tau` for each linear layer, from shares with tags. Online the client sends
//! its masked input, the server the masked result of each linear layer ([`super::project`]), and both open
//! the words of gates. Each phase ends with the check of both (`Ledger::agree`); only then does the server
//! send its share of the mask of the result, which has a tag under a key of the client's.

use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::fss::gate::{FssGate, FssWiden, Half, Ledger, shared_online, shared_widen};
use tacit_mpc::fss::mac::ring::{KeyShare, Share};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::client::{ClientMaterial, INPUT, LINEAR, RESULT, ledger};
use super::dealer::{GATE, tags_and_masks};
use super::half::{self, KEY, Reveal, SEED, ServerHead, When, client_masks, read_seed};
use super::plan::{Parts, Plan, Step};
use super::project::{self, Applied, Projection};
use super::server::{NO_WEIGHTS, ServerMaterial};
use super::wide::{self, ring};
use crate::BackendError;
use crate::dealt::statics::{self, Matrix, Statics};
use crate::ring::fixed::{ring_mask, to_signed};
use crate::ring::share::{At, ServerPhase, ServerShares, ServerWalk, Tap, check_input, linear_online, stream};
use crate::ring::{Node, Weights};
use crate::seam::{Stop, check_made_for};

/// Message: the masked result of a linear layer.
const MASKED: Tag = Tag::new(0x0433, "masked result of a linear layer");
/// Message: digest of the tags of the server's share of the result.
pub(super) const TAGS: Tag = Tag::new(0x0434, "tags of the share of the result");

/// A party's words `E c + tau` of a layer go into the ledger; gives what it sends of them.
fn enter(
    matrix: &Matrix,
    (conv, width): (&ConvSpec, u32),
    shares: (&[Share], &[Share]),
    ledger: &mut Ledger,
) -> Result<Vec<u64>, BackendError> {
    let words = wide::words(matrix, conv, ring(width), shares)?;
    let own = words.iter().map(|word| word.value as u64 & ring_mask(width)).collect();
    ledger.values(width, words.iter().cloned(), std::iter::empty::<u128>());
    Ok(own)
}

/// Both parties' words make the opened ones.
fn opened(own: &[u64], received: &[u64], width: u32, ledger: &mut Ledger) -> Vec<u64> {
    let pairs = || own.iter().zip(received);
    ledger.values(width, std::iter::empty(), pairs().map(|(a, b)| u128::from(*a) + u128::from(*b)));
    pairs().map(|(a, b)| a.wrapping_add(*b) & ring_mask(width)).collect()
}

/// The client's offline phase: its projections go behind its half.
pub(super) fn offline_client(
    plan: &Plan,
    statics: &Statics,
    half: &ClientMaterial,
    (channel, prg): (&mut Channel, &mut Prg),
    stop: &Stop,
) -> Result<ClientMaterial, BackendError> {
    let (seed, hash) = half.head()?;
    let seed = Prg::from_seed(seed);
    let masks = client_masks(&seed, When::Offline, &plan.widths()[When::Offline as usize]);
    let mut ledger = ledger(plan, &seed, hash, When::Offline);
    let mut pending = Vec::new();
    for (index, (id, conv, width)) in statics::layers(plan).enumerate() {
        stop.begin()?;
        let [c, tau] = tags_and_masks(&seed, id, conv, (width, plan.batch));
        let own = enter(statics.layer(index), (conv, width), (&c, &tau), &mut ledger)?;
        channel.send_packed(LINEAR, &own, width)?;
        pending.push(own);
    }
    channel.flush()?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(half::client_bytes(plan)[1]));
    bytes.extend_from_slice(&half.bytes);
    for (index, ((id, conv, width), own)) in statics::layers(plan).zip(pending).enumerate() {
        let received = channel.recv_packed(LINEAR, own.len(), width)?;
        let opened = opened(&own, &received, width, &mut ledger);
        let projection = Projection::draw(&seed, id, conv, (width, plan.batch));
        let applied = projection.for_client(statics.layer(index), &opened)?;
        let mut out = Writer::default();
        applied.write(width, &mut out);
        bytes.extend_from_slice(&out.finish());
    }
    ledger.agree(&KeyShare::draw(&mut seed.fork(KEY)), masks, (channel, prg))?;
    Ok(ClientMaterial { plan: plan.binding(), bytes })
}

/// The server's: `A c - t + V` of each linear layer goes behind its half. `keys`: of the linear layers, in
/// node order.
pub(super) fn offline_server(
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
    let (mut keys, mut pending) = (keys.iter(), Vec::new());
    for (id, (step, node)) in plan.steps.iter().zip(plan.graph.nodes()).enumerate() {
        stop.begin()?;
        let Step::Linear(conv) = step else {
            half::skip(step, &mut from)?;
            continue;
        };
        let (n, width) = (plan.elements(node), node.fixed.width);
        let mut known = from.packed(n, width)?.values();
        let c = wide::read_shares(&mut from, ring(width), plan.batch * conv.in_len())?;
        let tau = wide::read_shares(&mut from, ring(width), n)?;
        from.bytes(project::bytes(conv, width, plan.batch))?;
        let key = keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let masked = statics::masked(weights.get(id).ok_or(NO_WEIGHTS)?, key, width);
        let own = enter(&masked, (conv, width), (&c, &tau), &mut ledger)?;
        let received = channel.recv_packed(LINEAR, n, width)?;
        let opened = opened(&own, &received, width, &mut ledger);
        known.iter_mut().zip(&opened).for_each(|(k, v)| *k = k.wrapping_add(*v) & ring_mask(width));
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        bytes.extend_from_slice(&out.finish());
        pending.push((own, width));
    }
    // The client sends all before it reads.
    for (own, width) in pending {
        channel.send_packed(LINEAR, &own, width)?;
    }
    let [masks, _] = head.masks;
    ledger.agree(&head.key, masks, (channel, prg))?;
    Ok(ServerMaterial { plan: plan.binding(), bytes })
}

/// What a party has of one material and brings to it.
enum Party<'a> {
    Client {
        seed: Box<Prg>,
        /// Of the mask of the input.
        mask: Box<Prg>,
        input: &'a [i64],
    },
    Server {
        weights: &'a Weights,
        /// What the offline phase left.
        known: Reader<'a>,
    },
}

struct Online<'a, 'b, 's> {
    plan: &'a Plan,
    party: Party<'a>,
    hash: PublicSeed,
    /// Number of the next batch.
    batch: u32,
    /// What was dealt: correction words at the client, pieces of all steps at the server.
    dealt: Reader<'a>,
    /// The client's projections.
    projections: Reader<'a>,
    ledger: Ledger,
    session: &'b mut Session<'s>,
}

/// The client's online phase: the integers of the output node for those of the input node; `tap` is shown
/// the masked values.
pub(super) fn online_client(
    plan: &Plan,
    material: &ClientMaterial,
    input: &[i64],
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut Tap<'_>,
    stop: &Stop,
) -> Result<Vec<i64>, BackendError> {
    check_input(&plan.graph, plan.batch, input)?;
    check_made_for(&material.plan, &plan.binding())?;
    let (seed, hash) = material.head()?;
    let seed = Prg::from_seed(seed);
    let (dealt, projections) = material.bytes.split_at(half::client_bytes(plan)[0]);
    let mut dealt = Reader::new(dealt);
    dealt.bytes(2 * SEED)?;
    let mask = Prg::from_seed(Seed(read_seed(&mut dealt)?));
    let masks = client_masks(&seed, When::Online, &plan.widths()[When::Online as usize]);
    let (key, reveal) = (KeyShare::draw(&mut seed.fork(KEY)), Reveal::draw(&seed, plan));
    let ledger = ledger(plan, &seed, hash, When::Online);
    let mut session = Session { role: Role::Client, channel, prg };
    let party = Party::Client { seed: Box::new(seed), mask: Box::new(mask), input };
    let projections = Reader::new(projections);
    let phase = Online { plan, party, hash, batch: 0, dealt, projections, ledger, session: &mut session };
    let mut tap = |id: NodeId, share: &[u64]| tap(id, share);
    let mut walk = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap: &mut tap };
    let masked = stop.walk(&*plan.graph, &mut walk)?;
    let Online { ledger, .. } = walk.phase;
    ledger.agree(&key, masks, (&mut *session.channel, &mut *session.prg))?;
    let width = plan.graph.output().fixed.width;
    let shares = session.channel.recv_packed(RESULT, masked.len(), width)?;
    let digest = session.channel.recv(TAGS, 32)?;
    let mask = reveal.mask(&half::session(plan, hash, When::Online), &shares, &digest)?;
    Ok(masked.iter().zip(mask).map(|(xh, c)| to_signed(xh.wrapping_add(c), width)).collect())
}

/// The server's online phase.
pub(super) fn online_server(
    plan: &Plan,
    weights: &Weights,
    material: &ServerMaterial,
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut Tap<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    check_made_for(&material.plan, &plan.binding())?;
    let (dealt, known) = material.bytes.split_at(half::server_bytes(plan)[0]);
    let mut dealt = Reader::new(dealt);
    let ServerHead { seed: _, hash, delta, key, masks: [_, masks] } = ServerHead::read(plan, &mut dealt)?;
    let name = half::session(plan, hash, When::Online);
    let ledger = Ledger::new(Role::Server, &name, &delta);
    let mut session = Session { role: Role::Server, channel, prg };
    let party = Party::Server { weights, known: Reader::new(known) };
    let projections = Reader::new(&[]);
    let phase = Online { plan, party, hash, batch: 0, dealt, projections, ledger, session: &mut session };
    let mut tap = |id: NodeId, share: &[u64]| tap(id, share);
    let mut walk = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap: &mut tap };
    stop.walk(&*plan.graph, &mut walk)?;
    let Online { ledger, mut dealt, .. } = walk.phase;
    ledger.agree(&key, masks, (&mut *session.channel, &mut *session.prg))?;
    let (shares, digest) = Reveal::read(plan, &name, &mut dealt)?;
    session.channel.send_packed(RESULT, &shares, plan.graph.output().fixed.width)?;
    session.channel.send(TAGS, &digest)?;
    Ok(session.channel.flush()?)
}

impl<'a> Online<'a, '_, '_> {
    /// A party's half of the next batch.
    fn half<'b>(party: &Party<'_>, prg: &'b Prg, dealt: &'b [u8]) -> Half<'b> {
        match party {
            Party::Client { .. } => Half::Client(prg, dealt),
            Party::Server { .. } => Half::Server(dealt),
        }
    }

    /// The next bytes of what was dealt, of the client's or of the server's number.
    fn dealt(&mut self, client: usize, server: usize) -> Result<&'a [u8], BackendError> {
        Ok(self.dealt.bytes(if matches!(self.party, Party::Client { .. }) { client } else { server })?)
    }

    /// The client's stream of a batch; the server needs none.
    fn stream(&self, at: At) -> Prg {
        match &self.party {
            Party::Client { seed, .. } => stream(seed, at, GATE),
            Party::Server { .. } => Prg::from_seed(Seed([0; 16])),
        }
    }
}

impl ServerPhase<Parts> for Online<'_, '_, '_> {
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
        let (n, width, batch) = (self.plan.elements(node), node.fixed.width, self.plan.batch);
        let channel = &mut *self.session.channel;
        match &mut self.party {
            Party::Client { seed, .. } => {
                let own = Applied::read(conv, (width, batch), &mut self.projections)?;
                let result = channel.recv_packed(MASKED, n, width)?;
                let projection = Projection::draw(seed, id, conv, (width, batch));
                self.ledger.project(&projection.expected(&own, x, &result)?);
                Ok(result)
            }
            Party::Server { weights, known } => {
                let layer = weights.get(id).ok_or(NO_WEIGHTS)?;
                let known = known.packed(n, width)?.values();
                let result = linear_online(conv, layer, x, &known, width)?;
                channel.send_packed(MASKED, &result, width)?;
                channel.flush()?;
                let shares = 2 * (batch * conv.in_len() + n) * wide::word_bytes(ring(width));
                self.dealt.bytes(Packed::len_bytes(n, width) + shares)?;
                let own = Applied::read(conv, (width, batch), &mut self.dealt)?;
                self.ledger.project(&own.of(conv, x, width)?);
                Ok(result)
            }
        }
    }

    fn gate(&mut self, at: At, gate: &FssGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let cost = gate.cost();
        let (dealt, prg) = (self.dealt(cost.client_material, cost.server_material)?, self.stream(at));
        let (place, shares) = ((self.hash, self.batch), (shares.tested, shares.values, shares.bases));
        self.batch += 1;
        let half = Self::half(&self.party, &prg, dealt);
        Ok(shared_online(gate, place, shares, half, self.session, &mut self.ledger)?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let cost = spec.cost();
        let (dealt, prg) =
            (self.dealt(cost.client_material, cost.server_material)?, self.stream(At { node: id, level: 0 }));
        let half = Self::half(&self.party, &prg, dealt);
        Ok(shared_widen(spec, x, half, self.session, &mut self.ledger)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
