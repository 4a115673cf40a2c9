//! The server's phases. Offline it turns its half and the client's words into material: it passes on
//! what the online phase reads, and uses and drops the rest, with at most one linear layer in
//! memory. Each phase ends with the check, and only after it the server sends its share of the
//! result. At level `l2` this is a share of the result's mask, with a tag under a key of the client.

use tacit_arith::prg::Seed;
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::codec::Reader;
use tacit_mpc::fss::gate::CheckTranscript;
use tacit_mpc::fss::mac::ring::Share;
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Role, Session};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::{LINEAR, RESULT, TAGS};
use super::mac_matmul::{self, LinearShares, ring};
use super::masked_walk::{MaskedWalk, Party};
use super::material_format::{self, CheckPhase, Reveal, ServerHead};
use super::plan::{LinearBytes, Plan, Step};
use super::{Fss, Level};
use crate::session::lattice::NO_WEIGHTS;
use crate::session::masked_weights::{self, Matrix};
use crate::session::{HalfDigest, LinearLayer, Run, ServerOffline, ServerPhases, StoredHalf, packed_bytes};
use tacit_backend_api::BackendError;
use tacit_ring::fixed::ring_mask;
use tacit_ring::{Node, Weights};

impl ServerPhases for Fss {
    fn offline(run: Run<'_, '_, Self>, inputs: ServerOffline<'_>) -> Result<(), BackendError> {
        let (ingest, head) = Ingest::begin(run.plan, inputs)?;
        ingest.run(head, run)
    }

    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, weights: &Weights) -> Result<(), BackendError> {
        let Run { plan, session, stop } = run;
        let mut source = half.open(&plan.binding())?;
        let head = ServerHead::read(plan, &source.bytes(material_format::head_bytes(plan, Role::Server))?)?;
        let transcript = head.transcript(plan, CheckPhase::Online);
        let ServerHead { seed, hash, key, masks: [_, masks], .. } = head;
        let party = Party::Server { weights };
        let phase = MaskedWalk { plan, party, seed, hash, batch: 0, source, transcript, session };
        let (share, MaskedWalk { transcript, mut source, session, .. }) = plan.walk_server(phase, stop)?;
        let (Session { channel, prg, .. }, width) = (session, plan.graph.output().fixed.width);
        match plan.level() {
            Level::L1 => {
                transcript.verify(&key, masks, channel, prg)?;
                channel.send_packed(RESULT, &share, width)?;
            }
            Level::L2 => {
                transcript.agree(&key, masks, channel, prg)?;
                let session_name = material_format::session_digest(plan, hash, CheckPhase::Online);
                let (shares, digest) = Reveal::read(plan, &session_name, &mut source)?;
                channel.send_packed(RESULT, &shares, width)?;
                channel.send(TAGS, &digest)?;
            }
        }
        Ok(channel.flush()?)
    }
}

struct Ingest<'a, 'p> {
    plan: &'p Plan,
    inputs: ServerOffline<'a>,
    /// Keys of the linear layers, in node order.
    keys: std::slice::Iter<'a, Seed>,
    /// Digest of the material so far.
    stored_digest: HalfDigest,
    transcript: CheckTranscript,
    /// At level `l2`: the server's words, which are sent after all words of the client have
    /// arrived.
    pending: Vec<OwnWords>,
}

/// The server's words of a linear layer.
struct OwnWords {
    words: Vec<u64>,
    width: u32,
}

impl<'a, 'p> Ingest<'a, 'p> {
    /// Starts with a checked half.
    fn begin(plan: &'p Plan, mut inputs: ServerOffline<'a>) -> Result<(Self, ServerHead), BackendError> {
        let bytes = inputs.half.bytes(material_format::head_bytes(plan, Role::Server))?;
        let head = ServerHead::read(plan, &bytes)?;
        let (keys, stored_digest) = (inputs.keys.iter(), material_format::half_digest(plan, Role::Server));
        let transcript = head.transcript(plan, CheckPhase::Offline);
        let mut ingest = Self { plan, inputs, keys, stored_digest, transcript, pending: Vec::new() };
        ingest.keep(&bytes)?;
        Ok((ingest, head))
    }

    /// Runs the whole phase: the walk, and the check of the client's messages.
    fn run(mut self, head: ServerHead, run: Run<'_, '_, Fss>) -> Result<(), BackendError> {
        let Run { plan, session: Session { channel, prg, .. }, stop } = run;
        for (id, (step, node)) in plan.steps.iter().zip(plan.graph.nodes()).enumerate() {
            stop.begin()?;
            match step {
                Step::Linear(conv) => self.linear(id, conv, node, channel)?,
                _ => self.pass(material_format::batch_bytes(step, plan.level(), Role::Server))?,
            }
        }
        self.pass(material_format::reveal_bytes(plan))?;
        for OwnWords { words, width } in std::mem::take(&mut self.pending) {
            channel.send_packed(LINEAR, &words, width)?;
        }
        let [masks, _] = head.masks;
        match plan.level() {
            Level::L1 => self.transcript.verify(&head.key, masks, channel, prg)?,
            Level::L2 => self.transcript.agree(&head.key, masks, channel, prg)?,
        }
        (self.inputs.sink)(&self.stored_digest.finish())
    }

    /// Adds bytes to the material and to its digest.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.stored_digest.update(bytes);
        (self.inputs.sink)(bytes)
    }

    /// Copies the next `bytes` bytes of the half to the material.
    fn pass(&mut self, bytes: usize) -> Result<(), BackendError> {
        let Self { inputs: ServerOffline { half, sink, .. }, stored_digest, .. } = self;
        half.pass(bytes, &mut |piece| {
            stored_digest.update(piece);
            sink(piece)
        })
    }

    /// Stores the sum of `A r - t` and the opened V.
    fn linear(&mut self, id: NodeId, conv: &ConvSpec, node: &Node, channel: &mut Channel) -> Result<(), BackendError> {
        let (layer, level) = (self.plan.layer(id, conv), self.plan.level());
        let lengths = LinearBytes::for_step(&self.plan.steps[id], node, level, layer.batch);
        let bytes = self.inputs.half.bytes(lengths.dealt_bytes())?;
        let mut reader = Reader::new(&bytes);
        let mut known = Zeroizing::new(reader.packed(self.plan.elements(node), layer.width)?.values());
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let weights = self.inputs.weights.get(id).ok_or(NO_WEIGHTS)?;
        let masked = masked_weights::mask_weights(weights, key, layer.width);
        let words = match level {
            Level::L1 => self.receive_checked(&masked, &layer, &mut reader, channel)?,
            Level::L2 => self.open(&masked, &layer, &mut reader, channel)?,
        };
        known.iter_mut().zip(&words).for_each(|(k, v)| *k = k.wrapping_add(*v) & ring_mask(layer.width));
        self.keep(&packed_bytes(&known, layer.width))?;
        self.keep(reader.bytes(lengths.projected)?)
    }

    /// At level `l1`: receives the client's `V = E r + tau` of a layer. Computes the MAC key of each
    /// word from the dealt keys of the tags of r and tau, which are next in `reader`. Records words
    /// and keys for the check. `masked`: the layer's `E`.
    fn receive_checked(
        &mut self,
        masked: &Matrix,
        layer: &LinearLayer<'_>,
        reader: &mut Reader<'_>,
        channel: &mut Channel,
    ) -> Result<Vec<u64>, BackendError> {
        let LinearLayer { conv, width, batch, .. } = *layer;
        let (ring, n) = (ring(width), batch * conv.out_len());
        let (r_keys, tau_keys) =
            (mac_matmul::read(reader, ring, batch * conv.in_len())?, mac_matmul::read(reader, ring, n)?);
        let word_keys = mac_matmul::apply(masked, conv, &r_keys, ring.share_bits())?;
        let words = channel.recv_packed(LINEAR, n, width)?;
        let mask = u128::MAX >> (128 - ring.share_bits());
        let tags = word_keys.iter().zip(tau_keys.iter()).map(|(a, b)| a.wrapping_add(*b).wrapping_neg() & mask);
        self.transcript.values(width, tags.map(|tag| Share { value: 0, tag }), words.iter().copied());
        Ok(words)
    }

    /// At level `l2`: opens V of a layer. The server's shares are next in `reader`.
    fn open(
        &mut self,
        masked: &Matrix,
        layer: &LinearLayer<'_>,
        reader: &mut Reader<'_>,
        channel: &mut Channel,
    ) -> Result<Vec<u64>, BackendError> {
        let (width, transcript) = (layer.width, &mut self.transcript);
        let words = LinearShares::read(layer, reader)?.enter(masked, layer, transcript)?;
        let received = channel.recv_packed(LINEAR, words.len(), width)?;
        let opened = mac_matmul::open_words(&words, &received, width, transcript);
        self.pending.push(OwnWords { words, width });
        Ok(opened)
    }
}
