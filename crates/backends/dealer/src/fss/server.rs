//! The server's phases at level `l1`, where only the client is checked: linear layers of the
//! offline phase ([`super::server_ingest`]), and the online phase. At its end the server checks the
//! client's messages, and only then sends its share of the result.

use tacit_arith::prg::{Prg, PublicSeed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::Reader;
use tacit_mpc::dealt::LookUp;
use tacit_mpc::fss::gate::{CheckTranscript, FssGate, FssWiden, server_look_up, server_online, server_widen};
use tacit_mpc::fss::mac::ring::Share;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::Level;
use super::client::{INPUT, LINEAR, RESULT};
use super::dealer::GATE;
use super::mac_matmul::{self, ring};
use super::material_format::{self, ServerHead, When};
use super::plan::{FssStepTypes, Plan, tagged};
use crate::dealt::masked_weights::Matrix;
use crate::dealt::source::Source;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Stop, check_made_for};
use tacit_ring::share::{At, NodeObserver, ServerPhase, ServerShares, ServerWalk, linear_online, stream};
use tacit_ring::{Node, Weights};

pub(super) const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");

/// The server's material for the inputs of a plan, made by [`super::server_ingest`].
pub(super) struct ServerMaterial {
    /// Digest of the plan that the material was read for.
    pub(super) plan: [u8; 32],
    /// The content, without its digest.
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl ServerMaterial {
    pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<Self, BackendError> {
        let content = material_format::checked(plan, Role::Server, bytes, material_format::server_bytes(plan)[1])?;
        Ok(Self { plan: plan.binding(), bytes: Zeroizing::new(content.to_vec()) })
    }
}

/// Receives the client's masked output `V = E r + tau` of a linear layer. Computes the MAC key of
/// each word from the dealt keys of the tags of r and tau, which are next in `from`. Records words
/// and keys in `transcript` for the final check. `masked`: the layer's `E`.
pub(super) fn receive_linear_output(
    masked: &Matrix,
    (conv, width, batch): (&ConvSpec, u32, usize),
    from: &mut Reader<'_>,
    channel: &mut Channel,
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, BackendError> {
    let (ring, n) = (ring(width), batch * conv.out_len());
    let (of_r, of_tau) = (mac_matmul::read(from, ring, batch * conv.in_len())?, mac_matmul::read(from, ring, n)?);
    let of_words = mac_matmul::apply(masked, conv, &of_r, ring.share_bits())?;
    let words = channel.recv_packed(LINEAR, n, width)?;
    let mask = u128::MAX >> (128 - ring.share_bits());
    let tags = of_words.iter().zip(of_tau.iter()).map(|(a, b)| a.wrapping_add(*b).wrapping_neg() & mask);
    transcript.values(width, tags.map(|tag| Share { value: 0, tag }), words.iter().copied());
    Ok(words)
}

/// Runs the online phase with material from `source`, made for the plan of digest `made_for`. `tap`
/// gets the server's shares.
pub(super) fn online(
    plan: &Plan,
    weights: &Weights,
    (made_for, mut source): ([u8; 32], Source<'_>),
    (channel, prg): (&mut Channel, &mut Prg),
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    check_made_for(&made_for, &plan.binding())?;
    let head = ServerHead::read(plan, &mut Reader::new(&source.bytes(material_format::head_bytes(plan))?))?;
    let ServerHead { seed, hash, delta, key, masks: [_, masks] } = head;
    let transcript =
        CheckTranscript::new(Role::Server, &material_format::session_digest(plan, hash, When::Online), &delta);
    let mut session = Session { role: Role::Server, channel, prg };
    let phase = Online { plan, weights, seed, hash, batch: 0, source, transcript, session: &mut session };
    let tap: &mut NodeObserver<'_> = &mut |id, share| tap(id, share);
    let mut shares = ServerWalk { graph: &plan.graph, steps: &plan.steps, batch: plan.batch, phase, tap };
    let share = stop.walk(&*plan.graph, &mut shares)?;
    let Online { transcript, .. } = shares.phase;
    transcript.verify(&key, masks, (session.channel, session.prg))?;
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
    source: Source<'a>,
    transcript: CheckTranscript,
    session: &'a mut Session<'s>,
}

impl ServerPhase<FssStepTypes> for Online<'_, '_> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        Ok(self.session.channel.recv_packed(INPUT, self.plan.elements(node), node.fixed.width)?)
    }

    fn linear(&mut self, conv: &ConvSpec, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(NO_WEIGHTS)?;
        let known = Zeroizing::new(self.source.packed(node, self.plan.elements(node))?);
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(&mut self, at: At, gate: &FssGate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>, BackendError> {
        let given = self.source.bytes(gate.cost().server_material)?;
        let (place, prg) = ((self.hash, self.batch), stream(&self.seed, at, GATE));
        self.batch += 1;
        let shares = (shares.tested, shares.values, shares.bases);
        Ok(server_online(gate, place, shares, (&prg, &given), self.session, &mut self.transcript)?)
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, _: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let given = self.source.bytes(spec.cost().server_material)?;
        let prg = stream(&self.seed, At { node: id, level: 0 }, GATE);
        Ok(server_widen(spec, x, (&prg, &given), self.session, &mut self.transcript)?)
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let spec = tagged(table, Level::L1);
        let given = self.source.bytes(spec.cost().server_material)?;
        let (place, prg) = ((self.hash, self.batch), stream(&self.seed, At { node: id, level: 0 }, GATE));
        self.batch += 1;
        Ok(server_look_up(&spec, place, x, (&prg, &given), self.session, &mut self.transcript)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
