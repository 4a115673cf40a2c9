//! The phases of both parties at level `l2`, where both are checked. Both parties have the same
//! masked value `xh = x - c` of every tensor. Only the dealer has c, and the parties have shares of
//! what they need of c. So one walk serves both parties, and the server adds the linear layers.
//!
//! Offline the parties open `V = E c + tau` for each linear layer, from shares with tags. Online
//! the client sends its masked input, the server sends the masked result of each linear layer
//! ([`super::linear_check`]), and both open the words of gates. Each phase ends with a check of
//! both parties (`CheckTranscript::agree`). Only then does the server send its share of the
//! result's mask, which has a tag under a key of the client.

use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::{Reader, Writer};
use tacit_mpc::dealt::LookUp;
use tacit_mpc::fss::gate::{CheckTranscript, FssGate, FssWiden, Half, shared_look_up, shared_online, shared_widen};
use tacit_mpc::fss::mac::ring::{KeyShare, Share};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::Level;
use super::client::{INPUT, LINEAR, RESULT, transcript};
use super::dealer::{GATE, tags_and_masks};
use super::linear_check::{self, Applied, Projection};
use super::mac_matmul::{self, ring};
use super::material_format::{self, ClientHead, KEY, Reveal, ServerHead, When, client_masks};
use super::plan::{FssStepTypes, Plan, tagged};
use super::server::NO_WEIGHTS;
use crate::dealt::masked_weights::{self, MaskedWeights, Matrix};
use crate::dealt::source::{Bytes, Source};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Stop, check_made_for};
use tacit_ring::fixed::{ring_mask, to_signed};
use tacit_ring::share::{At, NodeObserver, ServerPhase, ServerShares, ServerWalk, check_input, linear_online, stream};
use tacit_ring::{Node, Weights};

/// Message: the masked result of a linear layer.
const MASKED: Tag = Tag::new(0x0433, "masked result of a linear layer");
/// Bytes of the digest of the tags of the server's share of the result, which [`TAGS`] carries.
pub(super) const TAGS_BYTES: usize = 32;
pub(super) const TAGS: Tag = Tag::new(0x0434, "tags of the share of the result");

/// Enters a party's words `E c + tau` of a layer into the transcript. Returns what the party sends
/// of them.
fn enter(
    matrix: &Matrix,
    conv: &ConvSpec,
    width: u32,
    shares: (&[Share], &[Share]),
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, BackendError> {
    let words = mac_matmul::words(matrix, conv, ring(width), shares)?;
    let own = words.iter().map(|word| word.value as u64 & ring_mask(width)).collect();
    transcript.values(width, words.iter().cloned(), std::iter::empty::<u128>());
    Ok(own)
}

/// Adds both parties' words to the opened words.
fn opened(own: &[u64], received: &[u64], width: u32, transcript: &mut CheckTranscript) -> Vec<u64> {
    let pairs = || own.iter().zip(received);
    transcript.values(width, std::iter::empty(), pairs().map(|(a, b)| u128::from(*a) + u128::from(*b)));
    pairs().map(|(a, b)| a.wrapping_add(*b) & ring_mask(width)).collect()
}

/// Runs the client's offline phase. Returns its projections, which are stored after its half.
pub(super) fn offline_client(
    plan: &Plan,
    masked_weights: &MaskedWeights,
    head: ClientHead,
    (channel, prg): (&mut Channel, &mut Prg),
    stop: &Stop,
) -> Result<Zeroizing<Vec<u8>>, BackendError> {
    let ClientHead { seed, hash, .. } = head;
    let masks = client_masks(&seed, When::Offline, &plan.widths()[When::Offline as usize]);
    let mut transcript = transcript(plan, &seed, hash, When::Offline);
    let mut pending = Vec::new();
    for (index, (id, conv, width)) in masked_weights::layers(plan).enumerate() {
        stop.begin()?;
        let [c, tau] = tags_and_masks(&seed, id, conv, (width, plan.batch));
        let own = enter(masked_weights.layer(index), conv, width, (&c, &tau), &mut transcript)?;
        channel.send_packed(LINEAR, &own, width)?;
        pending.push(own);
    }
    channel.flush()?;
    let [half, kept] = material_format::client_bytes(plan);
    let mut bytes = Zeroizing::new(Vec::with_capacity(kept - half));
    for (index, ((id, conv, width), own)) in masked_weights::layers(plan).zip(pending).enumerate() {
        let received = channel.recv_packed(LINEAR, own.len(), width)?;
        let opened = opened(&own, &received, width, &mut transcript);
        let projection = Projection::draw(&seed, id, conv, (width, plan.batch));
        let applied = projection.for_client(masked_weights.layer(index), &opened)?;
        let mut out = Writer::default();
        applied.write(width, &mut out);
        bytes.extend_from_slice(&out.finish());
    }
    transcript.agree(&KeyShare::draw(&mut seed.fork(KEY)), masks, (channel, prg))?;
    Ok(bytes)
}

/// Receives the client's words of a linear layer. Returns the server's own words, and the opened
/// ones. The server's shares are next in `from`. `masked`: the layer's `E`.
pub(super) fn receive_linear_output(
    masked: &Matrix,
    (conv, width, batch): (&ConvSpec, u32, usize),
    from: &mut Reader<'_>,
    channel: &mut Channel,
    transcript: &mut CheckTranscript,
) -> Result<(Vec<u64>, Vec<u64>), BackendError> {
    let c = mac_matmul::read_shares(from, ring(width), batch * conv.in_len())?;
    let tau = mac_matmul::read_shares(from, ring(width), batch * conv.out_len())?;
    let own = enter(masked, conv, width, (&c, &tau), transcript)?;
    let received = channel.recv_packed(LINEAR, own.len(), width)?;
    let opened = opened(&own, &received, width, transcript);
    Ok((own, opened))
}

/// A party's private data in an online phase.
enum Party<'a> {
    Client {
        seed: Box<Prg>,
        /// The stream of the input's mask.
        mask: Box<Prg>,
        input: &'a [i64],
        /// The server's results of linear layers.
        said: Vec<Said>,
    },
    Server {
        weights: &'a Weights,
    },
}

/// A linear layer's masked input, and the result that the server sent. The client checks it after
/// the walk, because the projections follow its correction words.
struct Said {
    input: Vec<u64>,
    result: Vec<u64>,
}

struct Online<'a, 'b, 's> {
    plan: &'a Plan,
    party: Party<'a>,
    hash: PublicSeed,
    /// Number of the next batch.
    batch: u32,
    /// Correction words and projections at the client, pieces of all steps at the server.
    source: Source<'a>,
    transcript: CheckTranscript,
    session: &'b mut Session<'s>,
}

/// Runs the client's online phase. Returns the integers of the output node for those of the input
/// node. `tap` gets the masked values.
pub(super) fn online_client(
    plan: &Plan,
    (made_for, mut source): ([u8; 32], Source<'_>),
    input: &[i64],
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<Vec<i64>, BackendError> {
    check_input(&plan.graph, plan.batch, input)?;
    check_made_for(&made_for, &plan.binding())?;
    let head = ClientHead::read(plan, &source.bytes(material_format::client_head(plan))?)?;
    let ClientHead { seed, hash, mask: Some(mask) } = head else {
        return Err(BackendError::Misuse("the client's half has no mask of the input"));
    };
    let masks = client_masks(&seed, When::Online, &plan.widths()[When::Online as usize]);
    let (key, reveal) = (KeyShare::draw(&mut seed.fork(KEY)), Reveal::draw(&seed, plan));
    let transcript = transcript(plan, &seed, hash, When::Online);
    let mut session = Session { role: Role::Client, channel, prg };
    let party = Party::Client { seed: Box::new(seed), mask: Box::new(mask), input, said: Vec::new() };
    let phase = Online { plan, party, hash, batch: 0, source, transcript, session: &mut session };
    let tap: &mut NodeObserver<'_> = &mut |id, share| tap(id, share);
    let mut walk = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap };
    let masked = stop.walk(&*plan.graph, &mut walk)?;
    let Online { mut transcript, source, party, .. } = walk.phase;
    project(plan, &party, source, &mut transcript)?;
    transcript.agree(&key, masks, (&mut *session.channel, &mut *session.prg))?;
    let width = plan.graph.output().fixed.width;
    let shares = session.channel.recv_packed(RESULT, masked.len(), width)?;
    let digest = session.channel.recv(TAGS, TAGS_BYTES)?;
    let mask = reveal.mask(&material_format::session_digest(plan, hash, When::Online), &shares, &digest)?;
    Ok(masked.iter().zip(mask).map(|(xh, c)| to_signed(xh.wrapping_add(c), width)).collect())
}

/// Enters the expected projections of the server's results into the transcript.
fn project(
    plan: &Plan,
    party: &Party<'_>,
    mut source: Source<'_>,
    transcript: &mut CheckTranscript,
) -> Result<(), BackendError> {
    let Party::Client { seed, said, .. } = party else { return Ok(()) };
    for (Said { input, result }, (id, conv, width)) in said.iter().zip(masked_weights::layers(plan)) {
        let of = (width, plan.batch);
        let bytes = source.bytes(linear_check::bytes(conv, width, plan.batch))?;
        let own = Applied::read(conv, of, &mut Reader::new(&bytes))?;
        let projection = Projection::draw(seed, id, conv, of);
        transcript.project(&projection.expected(&own, input, result)?);
    }
    Ok(())
}

/// Runs the server's online phase.
pub(super) fn online_server(
    plan: &Plan,
    weights: &Weights,
    (made_for, mut source): ([u8; 32], Source<'_>),
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    check_made_for(&made_for, &plan.binding())?;
    let head = ServerHead::read(plan, &mut Reader::new(&source.bytes(material_format::head_bytes(plan))?))?;
    let ServerHead { seed: _, hash, delta, key, masks: [_, masks] } = head;
    let name = material_format::session_digest(plan, hash, When::Online);
    let transcript = CheckTranscript::new(Role::Server, &name, &delta);
    let mut session = Session { role: Role::Server, channel, prg };
    let phase =
        Online { plan, party: Party::Server { weights }, hash, batch: 0, source, transcript, session: &mut session };
    let tap: &mut NodeObserver<'_> = &mut |id, share| tap(id, share);
    let mut walk = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap };
    stop.walk(&*plan.graph, &mut walk)?;
    let Online { transcript, mut source, .. } = walk.phase;
    transcript.agree(&key, masks, (&mut *session.channel, &mut *session.prg))?;
    let (shares, digest) = Reveal::read(plan, &name, &mut source)?;
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

    /// Reads the next dealt bytes: `client` or `server` of them, depending on the party.
    fn dealt(&mut self, client: usize, server: usize) -> Result<Bytes<'a>, BackendError> {
        self.source.bytes(if matches!(self.party, Party::Client { .. }) { client } else { server })
    }

    /// The client's stream of a batch; unused at the server.
    fn stream(&self, at: At) -> Prg {
        match &self.party {
            Party::Client { seed, .. } => stream(seed, at, GATE),
            Party::Server { .. } => Prg::from_seed(Seed([0; 16])),
        }
    }
}

impl ServerPhase<FssStepTypes> for Online<'_, '_, '_> {
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
            Party::Client { said, .. } => {
                let result = channel.recv_packed(MASKED, n, width)?;
                said.push(Said { input: x.to_vec(), result: result.clone() });
                Ok(result)
            }
            Party::Server { weights } => {
                let layer = weights.get(id).ok_or(NO_WEIGHTS)?;
                let known = Zeroizing::new(self.source.packed(node, n)?);
                let result = linear_online(conv, layer, x, &known, width)?;
                channel.send_packed(MASKED, &result, width)?;
                channel.flush()?;
                let bytes = self.source.bytes(linear_check::bytes(conv, width, batch))?;
                let own = Applied::read(conv, (width, batch), &mut Reader::new(&bytes))?;
                self.transcript.project(&own.of(conv, x, width)?);
                Ok(result)
            }
        }
    }

    fn gate(&mut self, at: At, gate: &FssGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let cost = gate.cost();
        let (dealt, prg) = (self.dealt(cost.client_material, cost.server_material)?, self.stream(at));
        let (place, shares) = ((self.hash, self.batch), (shares.tested, shares.values, shares.bases));
        self.batch += 1;
        let half = Self::half(&self.party, &prg, &dealt);
        Ok(shared_online(gate, place, shares, half, self.session, &mut self.transcript)?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let cost = spec.cost();
        let (dealt, prg) =
            (self.dealt(cost.client_material, cost.server_material)?, self.stream(At { node: id, level: 0 }));
        let half = Self::half(&self.party, &prg, &dealt);
        Ok(shared_widen(spec, x, half, self.session, &mut self.transcript)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let (spec, at) = (tagged(table, Level::L2), At { node: id, level: 0 });
        let cost = spec.cost();
        let (dealt, prg) = (self.dealt(cost.client_material, cost.server_material)?, self.stream(at));
        let place = (self.hash, self.batch);
        self.batch += 1;
        let half = Self::half(&self.party, &prg, &dealt);
        Ok(shared_look_up(&spec, place, x, half, self.session, &mut self.transcript)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
