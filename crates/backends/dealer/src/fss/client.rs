//! The client's phases. Offline it sends its part of the linear layers, online a masked input and
//! the words of gates. Everything has tags, except the input at level `l1`. Each phase ends with
//! the check.

use tacit_arith::prg::{Prg, PublicSeed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::{DealtHalf, LookUp};
use tacit_mpc::fss::gate::{BatchId, CheckTranscript, FssGate, FssWiden, client_look_up, client_online, client_widen};
use tacit_mpc::fss::mac::ring::{KeyShare, Masks};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::dealer::{GATE, tags_and_masks, target};
use super::linear_check::{AffineMap, Projection};
use super::mac_matmul;
use super::masked_walk::{INPUT, LayerResult, MaskedWalk, Party};
use super::material_format::{self, CheckPhase, ClientHead, KEY, Reveal};
use super::plan::{Plan, tagged_look_up};
use super::{Fss, Level};
use crate::session::masked_weights::MaskedWeights;
use crate::session::{ClientOffline, ClientPhases, Run, Source, StoredHalf};
use tacit_backend_api::BackendError;
use tacit_ring::Node;
use tacit_ring::fixed::to_signed;
use tacit_ring::share::{ClientPhase, ClientShares, GatePosition, check_input, receive_result, stream};

/// Message: the server's share of the result, or of the result's mask.
pub(super) const RESULT: Tag = Tag::new(0x0431, "share of the result");
/// Message, offline: a party's part of a linear layer.
pub(super) const LINEAR: Tag = Tag::new(0x0432, "checked words of a linear layer");
/// Message, at level `l2`: the digest of the tags of the server's share.
pub(super) const TAGS: Tag = Tag::new(0x0434, "tags of the share of the result");
/// Bytes of the digest in a [`TAGS`] message.
pub(super) const TAGS_BYTES: usize = 32;

impl ClientPhases for Fss {
    fn offline(run: Run<'_, '_, Self>, inputs: ClientOffline<'_>) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let head = ClientHead::read(run.plan, inputs.head)?;
        match run.plan.level() {
            Level::L1 => offline_l1(run, inputs.masked_weights, head),
            Level::L2 => offline_l2(run, inputs.masked_weights, &head),
        }
    }

    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, input: &[i64]) -> Result<Vec<i64>, BackendError> {
        let plan = run.plan;
        check_input(&plan.graph, plan.batch, input)?;
        let mut source = half.open(&plan.binding())?;
        let head = ClientHead::read(plan, &source.bytes(material_format::head_bytes(plan, Role::Client))?)?;
        let (masks, transcript) = (head.masks(plan, CheckPhase::Online), head.transcript(plan, CheckPhase::Online));
        let ready = Ready { input, head, source, transcript, masks };
        match plan.level() {
            Level::L1 => ready.run_l1(run),
            Level::L2 => ready.run_l2(run),
        }
    }
}

/// The offline phase at level `l1`. Nothing is stored after the half.
fn offline_l1(
    run: Run<'_, '_, Fss>,
    masked_weights: &MaskedWeights,
    head: ClientHead,
) -> Result<Zeroizing<Vec<u8>>, BackendError> {
    let Run { plan, session: Session { channel, .. }, stop } = run;
    let (masks, transcript) = (head.masks(plan, CheckPhase::Offline), head.transcript(plan, CheckPhase::Offline));
    let share_stream = Prg::from_seed(head.seed.seed().clone());
    let phase = Offline { plan, masked_weights, next: 0, transcript, seed: head.seed, channel };
    let (_, Offline { channel, transcript, .. }) = plan.walk_client(share_stream, phase, stop)?;
    transcript.answer(masks, channel)?;
    Ok(Zeroizing::default())
}

/// The offline phase at level `l2`. Returns the client's projections.
fn offline_l2(
    run: Run<'_, '_, Fss>,
    masked_weights: &MaskedWeights,
    head: &ClientHead,
) -> Result<Zeroizing<Vec<u8>>, BackendError> {
    let Run { plan, session: Session { channel, prg, .. }, stop } = run;
    let (masks, mut transcript) = (head.masks(plan, CheckPhase::Offline), head.transcript(plan, CheckPhase::Offline));
    let mut pending = Vec::new();
    for (index, layer) in plan.masked_layers().enumerate() {
        stop.begin()?;
        let shares = tags_and_masks(&head.seed, &layer);
        let words = shares.enter(masked_weights.layer(index), &layer, &mut transcript)?;
        channel.send_packed(LINEAR, &words, layer.width)?;
        pending.push(words);
    }
    channel.flush()?;
    let bytes = material_format::half_bytes(plan, Role::Client);
    let mut projections = Zeroizing::new(Vec::with_capacity(bytes.stored - bytes.dealt));
    for (index, (layer, words)) in plan.masked_layers().zip(pending).enumerate() {
        let received = channel.recv_packed(LINEAR, words.len(), layer.width)?;
        let opened = mac_matmul::open_words(&words, &received, layer.width, &mut transcript);
        let map = Projection::draw(&head.seed, layer).for_client(masked_weights.layer(index), &opened)?;
        projections.extend_from_slice(&map.write(layer.width));
    }
    transcript.agree(&KeyShare::draw(&mut head.seed.fork(KEY)), masks, channel, prg)?;
    Ok(projections)
}

struct Ready<'a> {
    input: &'a [i64],
    head: ClientHead,
    source: Source<'a>,
    transcript: CheckTranscript,
    masks: Vec<(u32, Masks)>,
}

impl Ready<'_> {
    /// Runs the phase at level `l1`, and returns the answer.
    fn run_l1(self, run: Run<'_, '_, Fss>) -> Result<Vec<i64>, BackendError> {
        let Run { plan, session, stop } = run;
        let Self { input, head: ClientHead { seed, hash, .. }, source, transcript, masks } = self;
        let share_stream = Prg::from_seed(seed.seed().clone());
        let phase = Online { plan, input, seed, hash, batch: 0, source, transcript, session };
        let (share, Online { transcript, session, .. }) = plan.walk_client(share_stream, phase, stop)?;
        transcript.answer(masks, session.channel)?;
        receive_result(&plan.graph, &share, RESULT, session.channel)
    }

    /// Runs the phase at level `l2`, and returns the answer.
    fn run_l2(self, run: Run<'_, '_, Fss>) -> Result<Vec<i64>, BackendError> {
        let Run { plan, session, stop } = run;
        let Self { input, head, source, transcript, masks } = self;
        let ClientHead { seed, hash, mask: Some(mask) } = head else {
            return Err(BackendError::Misuse("the client's half has no mask of the input"));
        };
        let (key, reveal) = (KeyShare::draw(&mut seed.fork(KEY)), Reveal::draw(&seed, plan));
        let party = Party::Client { mask: Box::new(mask), input, results: Vec::new() };
        let phase = MaskedWalk { plan, party, seed, hash, batch: 0, source, transcript, session };
        let (masked, MaskedWalk { mut transcript, mut source, party, seed, session, .. }) =
            plan.walk_server(phase, stop)?;
        // The projections of all layers follow the correction words.
        if let Party::Client { results, .. } = party {
            for (LayerResult { input, result }, layer) in results.iter().zip(plan.masked_layers()) {
                let map = AffineMap::read(&layer, &mut source)?;
                transcript.project(&Projection::draw(&seed, layer).expected_words(&map, input, result)?);
            }
        }
        let Session { channel, prg, .. } = session;
        transcript.agree(&key, masks, channel, prg)?;
        let width = plan.graph.output().fixed.width;
        let shares = channel.recv_packed(RESULT, masked.len(), width)?;
        let digest = channel.recv(TAGS, TAGS_BYTES)?;
        let mask = reveal.mask(&material_format::session_digest(plan, hash, CheckPhase::Online), &shares, &digest)?;
        Ok(masked.iter().zip(mask).map(|(xh, c)| to_signed(xh.wrapping_add(c), width)).collect())
    }
}

struct Offline<'a> {
    plan: &'a Plan,
    masked_weights: &'a MaskedWeights,
    next: usize,
    transcript: CheckTranscript,
    seed: Prg,
    channel: &'a mut Channel,
}

impl ClientPhase<Fss> for Offline<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        let (layer, matrix) = (self.plan.layer(id, conv), self.masked_weights.layer(self.next));
        self.next += 1;
        let mut shares = tags_and_masks(&self.seed, &layer);
        shares.x.iter_mut().zip(r).for_each(|(share, r)| share.value = u128::from(*r));
        let words = shares.enter(matrix, &layer, &mut self.transcript)?;
        self.channel.send_packed(LINEAR, &words, layer.width)?;
        self.transcript.values(layer.width, std::iter::empty(), words.iter().copied());
        Ok(target(&self.seed, id, words.len(), layer.width))
    }

    fn gate(&mut self, _: GatePosition, _: &FssGate, _: &ClientShares<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn widen(&mut self, _: NodeId, _: &FssWiden, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        Ok(())
    }

    fn look_up(&mut self, _: NodeId, _: &LookUp, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        Ok(())
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}

struct Online<'a, 's> {
    plan: &'a Plan,
    input: &'a [i64],
    seed: Prg,
    hash: PublicSeed,
    batch: u32,
    source: Source<'a>,
    transcript: CheckTranscript,
    session: &'a mut Session<'s>,
}

impl ClientPhase<Fss> for Online<'_, '_> {
    fn input(&mut self, share: &[u64], width: u32) -> Result<(), BackendError> {
        let masked: Vec<u64> = self.input.iter().zip(share).map(|(&x, r)| (x as u64).wrapping_sub(*r)).collect();
        Ok(self.session.channel.send_packed(INPUT, &masked, width)?)
    }

    fn linear(&mut self, _: &ConvSpec, id: NodeId, _: &[u64]) -> Result<Vec<u64>, BackendError> {
        let node = &self.plan.graph.nodes()[id];
        Ok(target(&self.seed, id, self.plan.elements(node), node.fixed.width))
    }

    /// The client's shares are in the dealt data.
    fn gate(&mut self, position: GatePosition, gate: &FssGate, _: &ClientShares<'_>) -> Result<(), BackendError> {
        let corrections = self.source.bytes(gate.cost().client_material)?;
        let (batch, prg) = (BatchId { hash: self.hash, number: self.batch }, stream(&self.seed, position, GATE));
        self.batch += 1;
        Ok(client_online(
            gate,
            batch,
            DealtHalf { prg: &prg, bytes: &corrections },
            self.session,
            &mut self.transcript,
        )?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let prg = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        Ok(client_widen(spec, &prg, self.session, &mut self.transcript)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let spec = tagged_look_up(table, Level::L1);
        let corrections = self.source.bytes(spec.cost().client_material)?;
        let batch = BatchId { hash: self.hash, number: self.batch };
        let prg = stream(&self.seed, GatePosition { node: id, level: 0 }, GATE);
        self.batch += 1;
        Ok(client_look_up(
            &spec,
            batch,
            DealtHalf { prg: &prg, bytes: &corrections },
            self.session,
            &mut self.transcript,
        )?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
