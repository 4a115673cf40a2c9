//! The dealer makes both halves. For each half it runs the client's walk over masks, because it
//! knows the client's share of every tensor.

use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Role;
use tacit_mpc::codec::Writer;
use tacit_mpc::dealt::LookUp;
use tacit_mpc::fss::delta::Delta;
use tacit_mpc::fss::gate::{
    BatchId, BatchKeys, DealerStreams, FssGate, FssWiden, deal_client, deal_look_up_client, deal_look_up_server,
    deal_server, deal_widen,
};
use tacit_mpc::fss::mac::ring::{Key, Share, draw_shares};
use tacit_net::Sides;
use zeroize::Zeroizing;

use super::linear_check::Projection;
use super::mac_matmul::{self, LinearShares, ring};
use super::material_format::{self, CheckPhase, DELTA, KEY, Reveal, mask_stream};
use super::plan::{Plan, Step, tagged_look_up};
use super::{Fss, Level};
use crate::session::masked_weights;
use crate::session::{Correlation, HalfBytes, HalfDigest, LinearLayer, Sink, packed_bytes};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{self, Stop};
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{ClientPhase, ClientShares, GatePosition, chosen, stream};

/// Parts of the client's seed beside its chosen shares (`share::chosen`): the randomness of a batch
/// of gates, the target share of a linear layer's result, the tags of the layer's input, and its
/// mask tau with tags.
pub(super) const GATE: u8 = 0xf0;
pub(super) const TARGET: u8 = 0xf1;
pub(super) const TAGS: u8 = 0xf2;
pub(super) const TAU: u8 = 0xf3;

/// The streams of a material: the parties' seeds, the dealer's own stream, the public seed of the
/// hash keys, and at level `l2` the shares that only the dealer has.
struct Streams {
    client: Seed,
    server: Seed,
    dealer: Prg,
    hash: PublicSeed,
    masks: Prg,
}

impl Streams {
    fn new(dealing: &Seed) -> Self {
        let prg = Prg::from_seed(dealing.clone());
        // The published seed is the only output of its stream.
        let hash = PublicSeed::from_bytes(prg.fork(4).next_seed().0);
        let [client, server] = [1, 2].map(|party| prg.fork(party).seed().clone());
        Self { client, server, dealer: prg.fork(3), hash, masks: prg.fork(5) }
    }
}

pub(super) fn target(seed: &Prg, id: NodeId, elements: usize, width: u32) -> Vec<u64> {
    chosen(seed, GatePosition { node: id, level: 0 }, TARGET, elements, width)
}

/// The client's tags of its share of a layer's input, and its masks tau. At level `l2` the client
/// does not know that share, and the values drawn with the tags are the client's share of it.
pub(super) fn tags_and_masks(seed: &Prg, layer: &LinearLayer<'_>) -> LinearShares {
    let LinearLayer { id, conv, width, batch } = *layer;
    let [x, tau] = [(TAGS, conv.in_len()), (TAU, conv.out_len())]
        .map(|(part, n)| Zeroizing::new(draw_shares(ring(width), batch * n, &mut node_stream(seed, id, part))));
    LinearShares { x, tau }
}

/// The stream of a part of a node, from a party's seed.
fn node_stream(seed: &Prg, id: NodeId, part: u8) -> Prg {
    stream(seed, GatePosition { node: id, level: 0 }, part)
}

/// Number of words of a linear layer that are dealt at a time. They fill whole bytes at every
/// width.
const WORDS_AT_ONCE: usize = 1 << 16;

/// Draws `n` words with tags as in [`tags_and_masks`], [`WORDS_AT_ONCE`] at a time.
fn draw_tagged(
    seed: &Prg,
    id: NodeId,
    part: u8,
    n: usize,
    width: u32,
) -> impl Iterator<Item = Zeroizing<Vec<Share>>> + use<> {
    let mut stream = node_stream(seed, id, part);
    let starts = (0..n).step_by(WORDS_AT_ONCE);
    starts.map(move |first| Zeroizing::new(draw_shares(ring(width), WORDS_AT_ONCE.min(n - first), &mut stream)))
}

impl Correlation for Fss {
    /// Of `E`, and of the keys of A ([`dealer_keys_digest`]).
    type Stated = [[u8; 32]; 2];
    const CLIENT_SPOOLS: bool = true;

    fn stated(masked_weights: [u8; 32], dealer_part: &[u8]) -> Self::Stated {
        [masked_weights, dealer_keys_digest(&masked_weights, dealer_part)]
    }

    fn half_bytes(plan: &Plan, role: Role) -> HalfBytes {
        material_format::half_bytes(plan, role)
    }

    fn half_digest(plan: &Plan, role: Role) -> HalfDigest {
        material_format::half_digest(plan, role)
    }

    fn deal(role: Role, plan: &Plan, keys: &[Seed], dealing: &Seed, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let streams = Streams::new(dealing);
        let (client, dealer) = (Prg::from_seed(streams.client.clone()), &streams.dealer);
        let (delta, mut key_stream) = (Delta::draw(&mut dealer.fork(0)), dealer.fork(1));
        let (key, chooser) = match plan.level() {
            Level::L1 => (Key::one_sided(&mut key_stream), &client),
            Level::L2 => (Key::draw(&mut key_stream, &mut client.fork(KEY)), &streams.masks),
        };
        let [chooser, share_stream] = [chooser, chooser].map(|prg| Prg::from_seed(prg.seed().clone()));
        let mut digest = material_format::half_digest(plan, role);
        let mut digesting_sink = |bytes: &[u8]| {
            digest.update(bytes);
            sink(bytes)
        };
        digesting_sink(&match role {
            Role::Client => client_head(plan, &streams, &chooser),
            Role::Server => server_head(plan, &streams, &delta, &key),
        })?;
        let reveal = (role == Role::Server && plan.level() == Level::L2).then(|| Reveal::draw(&client, plan));
        let phase = Dealing {
            role,
            plan,
            keys: keys.iter(),
            client,
            server: Prg::from_seed(streams.server.clone()),
            dealer: dealer.fork(2),
            chooser,
            hash: streams.hash,
            delta,
            key,
            batch: 0,
            sink: &mut digesting_sink,
        };
        let (result, _) = plan.walk_client(share_stream, phase, &Stop::default())?;
        let result = Zeroizing::new(result);
        if let Some(reveal) = reveal {
            digesting_sink(&reveal.deal(&result))?;
        }
        sink(&digest.finish())
    }
}

/// Digest of `E` and the dealer's part, which is the keys of A. The public part states it, and a
/// dealer refuses keys with another digest. All clients of a public part thus have the same model,
/// also after a dealer restarts. Each key has 128 bits of entropy, so the digest reveals none.
fn dealer_keys_digest(masked_weights: &[u8; 32], dealer_part: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 fss keys of masks", &[masked_weights, dealer_part])
}

fn client_head(plan: &Plan, streams: &Streams, chooser: &Prg) -> Zeroizing<Vec<u8>> {
    // Allocated at once: a growing vector would leave unwiped copies in memory.
    let mut head = Zeroizing::new(Vec::with_capacity(material_format::head_bytes(plan, Role::Client)));
    head.extend_from_slice(&streams.client.0);
    head.extend_from_slice(&streams.hash.to_bytes());
    if plan.level() == Level::L2 {
        head.extend_from_slice(&input_stream(plan, chooser).seed().0);
    }
    head
}

fn input_stream(plan: &Plan, chooser: &Prg) -> Prg {
    let input = plan.steps.iter().position(|step| matches!(step, Step::Input)).expect("a graph has an input");
    stream(chooser, GatePosition { node: input, level: 0 }, 0)
}

fn server_head(plan: &Plan, streams: &Streams, delta: &Delta, key: &Key) -> Zeroizing<Vec<u8>> {
    let (client, dealer) = (&Prg::from_seed(streams.client.clone()), &streams.dealer);
    let mut head = Zeroizing::new(Vec::with_capacity(material_format::head_bytes(plan, Role::Server)));
    head.extend_from_slice(&streams.server.0);
    head.extend_from_slice(&streams.hash.to_bytes());
    head.extend_from_slice(&delta.split(&mut client.fork(DELTA)).to_block().to_bytes());
    head.extend_from_slice(&key.unseeded_share().to_u64().to_le_bytes());
    for (widths, phase) in plan.widths().iter().zip([CheckPhase::Offline, CheckPhase::Online]) {
        for &width in widths {
            let [mut dealer_stream, mut client_stream] = [dealer, client].map(|seed| mask_stream(seed, phase, width));
            material_format::write_masks(
                &key.deal_masks(ring(width), &mut dealer_stream, &mut client_stream),
                &mut head,
            );
        }
    }
    head
}

struct Dealing<'a> {
    role: Role,
    plan: &'a Plan,
    keys: std::slice::Iter<'a, Seed>,
    client: Prg,
    server: Prg,
    dealer: Prg,
    /// The stream of the walk's shares.
    chooser: Prg,
    hash: PublicSeed,
    delta: Delta,
    key: Key,
    batch: u32,
    sink: &'a mut Sink<'a>,
}

impl Dealing<'_> {
    /// Deals the role's half of the next batch of gates.
    fn deal_batch(
        &mut self,
        position: GatePosition,
        deal: impl FnOnce(&BatchKeys<'_>, &DealerStreams<'_>, &mut Sink<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let [client, server, dealer] =
            [&self.client, &self.server, &self.dealer].map(|seed| stream(seed, position, GATE));
        let streams = DealerStreams { client: &client, server: &server, dealer: &dealer };
        let id = BatchId { hash: self.hash, number: self.batch };
        let keys = BatchKeys { id, delta: &self.delta, key: &self.key };
        self.batch += 1;
        deal(&keys, &streams, self.sink)
    }

    /// A layer's masks tau if they belong to the dealer; at level `l1` the client has drawn them
    /// with their tags.
    fn masks(&self, id: NodeId, n: usize, width: u32) -> Zeroizing<Vec<u64>> {
        Zeroizing::new(match self.plan.level() {
            Level::L1 => Vec::new(),
            Level::L2 => chosen(&self.dealer, GatePosition { node: id, level: 0 }, TAU, n, width),
        })
    }

    /// Subtracts tau and the target from `A r`.
    fn hide(&self, id: NodeId, known: &mut [u64], masks: &[u64], target: &[u64], width: u32) {
        subtract(known, target.iter().copied(), width);
        subtract(known, masks.iter().copied(), width);
        if self.plan.level() == Level::L1 {
            let taus = draw_tagged(&self.client, id, TAU, known.len(), width);
            let parts = known.chunks_mut(WORDS_AT_ONCE).zip(taus);
            parts.for_each(|(known, taus)| subtract(known, taus.iter().map(|tau| tau.value as u64), width));
        }
    }

    /// Gives the server its values for n words whose tags come from the client's stream. At level
    /// `l1` these are the keys of the tags, otherwise its shares of `values` with tags. Without
    /// `values`, the words are those drawn with the tags.
    fn deal_words(&mut self, id: NodeId, part: u8, values: &[u64], n: usize, width: u32) -> Result<(), BackendError> {
        let (ring, key, level) = (ring(width), &self.key, self.plan.level());
        for (chunk, client_words) in draw_tagged(&self.client, id, part, n, width).enumerate() {
            let mut out = Writer::default();
            let values = values.get(chunk * WORDS_AT_ONCE..).unwrap_or_default();
            let words = client_words.iter().enumerate().map(|(i, client_word)| {
                let value = values.get(i).map_or(client_word.value, |value| u128::from(*value));
                (value, client_word)
            });
            match level {
                Level::L1 => {
                    let keys = words.map(|(value, client)| key.key_of(ring, &Share { value, tag: client.tag }));
                    mac_matmul::write(keys, ring, &mut out);
                }
                Level::L2 => {
                    let shared = words.map(|(value, client)| key.other_share(ring, value, client));
                    mac_matmul::write(shared.flat_map(|s| [s.value, s.tag]), ring, &mut out);
                }
            }
            (self.sink)(&out.finish())?;
        }
        Ok(())
    }
}

fn subtract(known: &mut [u64], words: impl Iterator<Item = u64>, width: u32) {
    known.iter_mut().zip(words).for_each(|(k, word)| *k = k.wrapping_sub(word) & ring_mask(width));
}

impl ClientPhase<Fss> for Dealing<'_> {
    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server gets `A r - t` and the keys of the tags of r and tau.
    fn linear(&mut self, conv: &ConvSpec, id: NodeId, r: &[u64]) -> Result<Vec<u64>, BackendError> {
        let layer = self.plan.layer(id, conv);
        let (width, n) = (layer.width, layer.batch * conv.out_len());
        if self.role == Role::Client {
            return Ok(target(&self.chooser, id, n, width));
        }
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let mut known = Zeroizing::new(masked_weights::apply_random(key, conv, r, width)?);
        // Drawn only now: a large layer takes much memory.
        let (target, masks) = (target(&self.chooser, id, n, width), self.masks(id, n, width));
        self.hide(id, &mut known, &masks, &target, width);
        for known in known.chunks(WORDS_AT_ONCE) {
            (self.sink)(&packed_bytes(known, width))?;
        }
        self.deal_words(id, TAGS, r, r.len(), width)?;
        self.deal_words(id, TAU, &masks, known.len(), width)?;
        if self.plan.level() == Level::L2 {
            let count = masked_weights::entry_count(self.plan, conv);
            let projection = Projection::draw(&self.client, layer).for_server(key, count, &known)?;
            (self.sink)(&projection.write(width))?;
        }
        Ok(target)
    }

    fn gate(&mut self, position: GatePosition, gate: &FssGate, shares: &ClientShares<'_>) -> Result<(), BackendError> {
        let role = self.role;
        self.deal_batch(position, |keys, streams, sink| match role {
            Role::Client => deal_client(gate, keys, streams, shares, sink),
            Role::Server => deal_server(gate, keys, streams, shares, sink),
        })
    }

    fn widen(&mut self, id: NodeId, spec: &FssWiden, c: &[u64], target: &[u64]) -> Result<(), BackendError> {
        if self.role == Role::Client {
            return Ok(());
        }
        let position = GatePosition { node: id, level: 0 };
        let (client, server) = (stream(&self.client, position, GATE), stream(&self.server, position, GATE));
        (self.sink)(&deal_widen(spec, &self.key, Sides { client: &client, server: &server }, c, target))
    }

    fn look_up(&mut self, id: NodeId, table: &LookUp, c: &[u64], target: &[u64]) -> Result<(), BackendError> {
        let (role, spec) = (self.role, tagged_look_up(table, self.plan.level()));
        self.deal_batch(GatePosition { node: id, level: 0 }, |keys, streams, sink| match role {
            Role::Client => deal_look_up_client(&spec, keys, streams, c, sink),
            Role::Server => deal_look_up_server(&spec, keys, streams, c, target, sink),
        })
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
