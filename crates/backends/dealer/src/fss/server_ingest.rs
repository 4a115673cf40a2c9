//! Turns the server's half and the client's words into material, once the half is complete. Passes
//! on what the online phase reads, and uses and drops the rest. Holds at most one linear layer in
//! memory.

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Role;
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::fss::gate::CheckTranscript;
use tacit_mpc::wire::PackedMessages;
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::LINEAR;
use super::material_format::{self, Digesting, ServerHead, When};
use super::plan::{LinearBytes, Plan, Step};
use super::server::{self, NO_WEIGHTS};
use super::{Level, l2_phases};
use crate::dealt::audit::Sink;
use crate::dealt::masked_weights;
use crate::dealt::source::Source;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::Stop;
use tacit_ring::fixed::ring_mask;
use tacit_ring::{Node, Weights};

/// The server's offline phase.
pub(super) struct Intake<'a> {
    plan: &'a Plan,
    weights: &'a Weights,
    /// Keys of the linear layers, in node order.
    keys: std::slice::Iter<'a, Seed>,
    /// The half.
    source: Source<'a>,
    kept: Digesting,
    transcript: CheckTranscript,
    /// At level `l2`: the server's words, which are sent after all words of the client have
    /// arrived.
    pending: Vec<(Vec<u64>, u32)>,
    sink: &'a mut Sink<'a>,
}

impl<'a> Intake<'a> {
    /// Starts with a checked half. The material goes to `sink`.
    pub(super) fn begin(
        plan: &'a Plan,
        (weights, keys): (&'a Weights, &'a [Seed]),
        mut source: Source<'a>,
        sink: &'a mut Sink<'a>,
    ) -> Result<(Self, ServerHead), BackendError> {
        let bytes = source.bytes(material_format::head_bytes(plan))?;
        let head = ServerHead::read(plan, &mut Reader::new(&bytes))?;
        let session = material_format::session_digest(plan, head.hash, When::Offline);
        let transcript = CheckTranscript::new(Role::Server, &session, &head.delta);
        let (keys, kept, pending) = (keys.iter(), Digesting::new(&plan.binding(), Role::Server), Vec::new());
        let mut intake = Self { plan, weights, keys, source, kept, transcript, pending, sink };
        intake.keep(&bytes)?;
        Ok((intake, head))
    }

    /// Runs the whole phase: the walk, and the check of the client's messages.
    pub(super) fn run(
        mut self,
        head: ServerHead,
        (channel, prg): (&mut Channel, &mut Prg),
        stop: &Stop,
    ) -> Result<(), BackendError> {
        let plan = self.plan;
        for (id, (step, node)) in plan.steps.iter().zip(plan.graph.nodes()).enumerate() {
            stop.begin()?;
            match step {
                Step::Linear(conv) => self.linear(id, conv, node, channel)?,
                other => self.pass(material_format::batch_bytes(other, plan.level()))?,
            }
        }
        self.pass(material_format::reveal_bytes(plan))?;
        for (own, width) in std::mem::take(&mut self.pending) {
            channel.send_packed(LINEAR, &own, width)?;
        }
        let [masks, _] = head.masks;
        match plan.level() {
            Level::L1 => self.transcript.verify(&head.key, masks, (channel, prg))?,
            Level::L2 => self.transcript.agree(&head.key, masks, (channel, prg))?,
        }
        (self.sink)(&self.kept.finish())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.kept.update(bytes);
        (self.sink)(bytes)
    }

    /// Copies the next bytes of the half to the material.
    fn pass(&mut self, bytes: usize) -> Result<(), BackendError> {
        let Self { source, kept, sink, .. } = self;
        source.pass(bytes, &mut |piece| {
            kept.update(piece);
            sink(piece)
        })
    }

    /// Stores the sum of `A r - t` and the client's V.
    fn linear(&mut self, id: NodeId, conv: &ConvSpec, node: &Node, channel: &mut Channel) -> Result<(), BackendError> {
        let (width, batch, level) = (node.fixed.width, self.plan.batch, self.plan.level());
        let of_layer = LinearBytes::of(&Step::Linear(*conv), node, (level, batch));
        let bytes = self.source.bytes(of_layer.dealt())?;
        let mut from = Reader::new(&bytes);
        let mut known = Zeroizing::new(from.packed(self.plan.elements(node), width)?.values());
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let masked = masked_weights::mask_weights(self.weights.get(id).ok_or(NO_WEIGHTS)?, key, width);
        let words = match level {
            Level::L1 => {
                server::receive_linear_output(&masked, (conv, width, batch), &mut from, channel, &mut self.transcript)?
            }
            Level::L2 => {
                let (own, opened) = l2_phases::receive_linear_output(
                    &masked,
                    (conv, width, batch),
                    &mut from,
                    channel,
                    &mut self.transcript,
                )?;
                self.pending.push((own, width));
                opened
            }
        };
        known.iter_mut().zip(&words).for_each(|(k, v)| *k = k.wrapping_add(*v) & ring_mask(width));
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        self.keep(&out.finish())?;
        self.keep(from.bytes(of_layer.projected)?)
    }
}
