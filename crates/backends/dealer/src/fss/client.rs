//! The client's phases at level `l1`, where only the client is checked. Offline it sends its part
//! of the linear layers, online a masked input and the words of gates. Everything except the input
//! has tags. Each phase ends with the answer to the server's check.

use tacit_arith::prg::{Prg, PublicSeed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::LookUp;
use tacit_mpc::fss::delta::DeltaShare;
use tacit_mpc::fss::gate::{CheckTranscript, FssGate, FssWiden, client_look_up, client_online, client_widen};
use tacit_mpc::fss::mac::ring::Share;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::Level;
use super::dealer::{GATE, tags_and_masks, target};
use super::mac_matmul::{self, ring};
use super::material_format::{self, ClientHead, DELTA, When, client_masks};
use super::plan::{FssStepTypes, Plan, tagged};
use crate::dealt::masked_weights::MaskedWeights;
use crate::dealt::source::Source;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Stop, check_made_for};
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{At, ClientPhase, ClientWalk, GateShares, NodeObserver, check_input, revealed, stream};

/// Message: the client's masked input.
pub(super) const INPUT: Tag = Tag::new(0x0430, "masked input");
/// Message: the server's share of the result.
pub(super) const RESULT: Tag = Tag::new(0x0431, "share of the result");
/// Message, offline: the client's part of a linear layer.
pub(super) const LINEAR: Tag = Tag::new(0x0432, "checked words of a linear layer");

/// The client's half, with the additions of its offline phase.
pub(super) struct ClientMaterial {
    /// Digest of the plan that the half was read for.
    pub(super) plan: [u8; 32],
    /// The content, without its digest.
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl ClientMaterial {
    pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<Self, BackendError> {
        let content = material_format::checked(plan, Role::Client, bytes, material_format::client_bytes(plan)[1])?;
        Ok(Self { plan: plan.binding(), bytes: Zeroizing::new(content.to_vec()) })
    }
}

pub(super) fn transcript(plan: &Plan, seed: &Prg, hash: PublicSeed, when: When) -> CheckTranscript {
    let delta = DeltaShare::draw(&mut seed.fork(DELTA));
    CheckTranscript::new(Role::Client, &material_format::session_digest(plan, hash, when), &delta)
}

/// Runs the offline phase.
pub(super) fn offline(
    plan: &Plan,
    masked_weights: &MaskedWeights,
    head: ClientHead,
    channel: &mut Channel,
    stop: &Stop,
) -> Result<(), BackendError> {
    let ClientHead { seed: own, hash, .. } = head;
    let walked = Prg::from_seed(own.seed().clone());
    let masks = client_masks(&own, When::Offline, &plan.widths()[When::Offline as usize]);
    let phase = Offline {
        plan,
        masked_weights,
        next: 0,
        transcript: transcript(plan, &own, hash, When::Offline),
        seed: own,
        channel,
    };
    let tap: &mut NodeObserver<'_> = &mut |_, _| {};
    let mut shares = ClientWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, seed: walked, phase, tap };
    stop.walk(&*plan.graph, &mut shares)?;
    let Offline { channel, transcript, .. } = shares.phase;
    Ok(transcript.answer(masks, channel)?)
}

/// Runs the online phase with material from `source`, made for the plan of digest `made_for`.
/// Returns the integers of the output node for those of the input node. `tap` gets the client's
/// shares.
pub(super) fn online(
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
    let ClientHead { seed: own, hash, .. } = head;
    let walked = Prg::from_seed(own.seed().clone());
    let masks = client_masks(&own, When::Online, &plan.widths()[When::Online as usize]);
    let mut session = Session { role: Role::Client, channel, prg };
    let transcript = transcript(plan, &own, hash, When::Online);
    let phase = Online { plan, input, seed: own, hash, batch: 0, source, transcript, session: &mut session };
    let tap: &mut NodeObserver<'_> = &mut |id, share| tap(id, share);
    let mut shares = ClientWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, seed: walked, phase, tap };
    let mine = stop.walk(&*plan.graph, &mut shares)?;
    let Online { transcript, .. } = shares.phase;
    transcript.answer(masks, session.channel)?;
    revealed(&plan.graph, &mine, RESULT, session.channel)
}

struct Offline<'a> {
    plan: &'a Plan,
    masked_weights: &'a MaskedWeights,
    /// The next linear layer.
    next: usize,
    transcript: CheckTranscript,
    seed: Prg,
    channel: &'a mut Channel,
}

impl ClientPhase<FssStepTypes> for Offline<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        let (width, matrix) = (self.plan.graph.nodes()[id].fixed.width, self.masked_weights.layer(self.next));
        self.next += 1;
        let (ring, [tags, tau]) = (ring(width), tags_and_masks(&self.seed, id, conv, (width, self.plan.batch)));
        let x = r.iter().zip(tags.iter()).map(|(r, tag)| Share { value: u128::from(*r), tag: tag.tag });
        let words = mac_matmul::words(matrix, conv, ring, (&Zeroizing::new(x.collect::<Vec<_>>()), &tau))?;
        let low: Vec<u64> = words.iter().map(|word| word.value as u64 & ring_mask(width)).collect();
        self.channel.send_packed(LINEAR, &low, width)?;
        self.transcript.values(width, words.iter().cloned(), low.iter().copied());
        Ok(target(&self.seed, id, low.len(), width))
    }

    fn gate(&mut self, _: At, _: &FssGate, _: &GateShares<'_>) -> Result<(), BackendError> {
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
    /// Number of the next batch.
    batch: u32,
    /// Correction words.
    source: Source<'a>,
    transcript: CheckTranscript,
    session: &'a mut Session<'s>,
}

impl ClientPhase<FssStepTypes> for Online<'_, '_> {
    fn input(&mut self, share: &[u64], width: u32) -> Result<(), BackendError> {
        let masked: Vec<u64> = self.input.iter().zip(share).map(|(&x, r)| (x as u64).wrapping_sub(*r)).collect();
        Ok(self.session.channel.send_packed(INPUT, &masked, width)?)
    }

    fn linear(&mut self, _: &ConvSpec, id: NodeId, _: &[u64]) -> Result<Vec<u64>, BackendError> {
        let node = &self.plan.graph.nodes()[id];
        Ok(target(&self.seed, id, self.plan.elements(node), node.fixed.width))
    }

    /// The client's shares are in the dealt data.
    fn gate(&mut self, at: At, gate: &FssGate, _: &GateShares<'_>) -> Result<(), BackendError> {
        let corrections = self.source.bytes(gate.cost().client_material)?;
        let (place, prg) = ((self.hash, self.batch), stream(&self.seed, at, GATE));
        self.batch += 1;
        Ok(client_online(gate, place, (&prg, &corrections), self.session, &mut self.transcript)?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let prg = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(client_widen(spec, &prg, self.session, &mut self.transcript)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, _: &[u64], _: &[u64]) -> Result<(), BackendError> {
        let spec = tagged(table, Level::L1);
        let corrections = self.source.bytes(spec.cost().client_material)?;
        let (place, prg) = ((self.hash, self.batch), stream(&self.seed, At { node: id, level: 0 }, GATE));
        self.batch += 1;
        Ok(client_look_up(&spec, place, (&prg, &corrections), self.session, &mut self.transcript)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
