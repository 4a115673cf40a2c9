//! The format of the two halves of a material, and of what either party stores of its half.
//!
//! Sizes are in bytes; `l2` marks fields of level `l2`, where both parties are checked.
//!
//! **Client, as dealt**
//!
//! | bytes | level | meaning |
//! | --- | --- | --- |
//! | 16 | both | seed of the client's shares and masks |
//! | 16 | both | public seed of the hash keys |
//! | 16 | `l2` | seed of the input's mask |
//! | by plan | both | correction words of all batches |
//! | 32 | both | digest |
//!
//! **Client, as stored**: the same, and at level `l2` the projections of all linear layers
//! ([`super::linear_check`]) between correction words and digest.
//!
//! **Server, as dealt**
//!
//! | bytes | level | meaning |
//! | --- | --- | --- |
//! | 16 | both | seed of the server's randomness |
//! | 16 | both | public seed of the hash keys |
//! | 16 | both | the server's share of Delta |
//! | 8 | both | the key; at level `l2`, a share of it |
//! | by plan | both | masks of the check for each width of words, offline, then online |
//! | by plan | both | the steps in node order, as below |
//! | by plan | `l2` | the server's share of the result's mask, and its tags ([`Reveal`]) |
//! | 32 | both | digest |
//!
//! A linear layer has these fields. A batch of gates has its dealt data.
//!
//! | bytes | level | meaning |
//! | --- | --- | --- |
//! | packed | both | `A r - t` |
//! | by plan | `l1` | keys of the tags of r and tau, by which the client's words are checked |
//! | by plan | `l2` | the server's shares of r and tau, with tags |
//! | by plan | `l2` | projection, by which the client checks the result ([`super::linear_check`]) |
//!
//! **Server, as stored**: the same, but a linear layer has `A r - t + V` in place of `A r - t`, and
//! no keys or shares of r and tau.
//!
//! The digest covers all bytes before it, the plan with `E`, and the role of the half's party. It
//! detects damage and halves of the other party or of another model. The digest is no tag, and no
//! security rests on it.
//!
//! Either party stores its half as it arrives ([`crate::session::half`]), and then adds to it
//! ([`super::server`]).

use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::fss::delta::DeltaShare;
use tacit_mpc::fss::gate::CheckTranscript;
use tacit_mpc::fss::mac::ring::{KeyShare, Masks, ROWS, Share, draw_masks, draw_shares};
use tacit_mpc::{MpcError, Role};
use zeroize::Zeroizing;

use super::Level;
use super::mac_matmul::{self, ring};
use super::plan::{LinearBytes, Plan, Step, batches};
use crate::session::{HalfBytes, HalfDigest, Source};
use tacit_backend_api::{BackendError, seam};
use tacit_ring::fixed::ring_mask;

/// Bytes of a seed and of a block.
const SEED_BYTES: usize = 16;
/// Bytes of the value or the tag of a check's mask: a word of 41 bits.
const MASK_WORD_BYTES: usize = 6;

// Numbers of streams from a seed of the client or the dealer. Those of `tacit_ring::share::stream`,
// which hold the number of a node in their high bits, are all below.

/// Stream of the client's share of Delta.
pub(super) const DELTA: u64 = u64::MAX;
/// Streams of the masks of the checks that end the offline and the online phase.
const CHECKS: [u64; 2] = [u64::MAX - 1, u64::MAX - 2];
/// Stream of the client's share of the key of words, at level `l2`.
pub(super) const KEY: u64 = u64::MAX - 3;
/// Streams of the client's part of a [`Reveal`]: its share of the result's mask, and its key for that
/// of the server.
const REVEAL: [u64; 2] = [u64::MAX - 4, u64::MAX - 5];

#[derive(Clone, Copy)]
pub(super) enum CheckPhase {
    Offline = 0,
    Online = 1,
}

/// The stream of the masks of a check, from the client's seed or the dealer's.
pub(super) fn mask_stream(seed: &Prg, phase: CheckPhase, width: u32) -> Prg {
    seed.fork(CHECKS[phase as usize]).fork(u64::from(width))
}

/// The digest, used once, that names the session in which values of a material are opened.
pub(super) fn session_digest(plan: &Plan, hash: PublicSeed, phase: CheckPhase) -> [u8; 32] {
    seam::digest("tacit 2026-11 fss session", &[&plan.binding(), &hash.to_bytes(), &[phase as u8]])
}

/// Length of the head of a party's half, in bytes.
pub(super) fn head_bytes(plan: &Plan, role: Role) -> usize {
    match (role, plan.level()) {
        (Role::Client, Level::L1) => 2 * SEED_BYTES,
        (Role::Client, Level::L2) => 3 * SEED_BYTES,
        (Role::Server, _) => {
            3 * SEED_BYTES
                + 8
                + plan.widths().iter().map(|widths| widths.len() * ROWS * 2 * MASK_WORD_BYTES).sum::<usize>()
        }
    }
}

pub(super) fn half_bytes(plan: &Plan, role: Role) -> HalfBytes {
    let (head, level) = (head_bytes(plan, role), plan.level());
    let (mut dealt, mut stored) = (head, head);
    for (step, node) in plan.steps.iter().zip(plan.graph.nodes()) {
        let (linear, gates) = (LinearBytes::for_step(step, node, level, plan.batch), batch_bytes(step, level, role));
        dealt += gates;
        // Both parties store as much for the check of a layer's result.
        stored += gates + linear.projected;
        if role == Role::Server {
            dealt += linear.dealt_bytes();
            stored += linear.words;
        }
    }
    let reveal = if role == Role::Server { reveal_bytes(plan) } else { 0 };
    HalfBytes { head, dealt: dealt + reveal, stored: stored + reveal, digest: HalfDigest::BYTES }
}

pub(super) fn half_digest(plan: &Plan, role: Role) -> HalfDigest {
    HalfDigest::new("tacit 2026-11 fss half", &[&plan.binding(), &[u8::from(role == Role::Server)]])
}

/// Bytes of a party's dealt data for a step's batches.
pub(super) fn batch_bytes(step: &Step, level: Level, role: Role) -> usize {
    let costs = batches(step, level);
    costs.map(|cost| if role == Role::Client { cost.client_material } else { cost.server_material }).sum()
}

/// Length of the end of the server's half ([`Reveal`]), in bytes.
pub(super) fn reveal_bytes(plan: &Plan) -> usize {
    if plan.level() == Level::L2 { Reveal::bytes(plan) } else { 0 }
}

/// Encodes masks, each as a value and a tag of [`MASK_WORD_BYTES`] bytes.
pub(super) fn write_masks(masks: &Masks, out: &mut Vec<u8>) {
    for Share { value, tag } in masks.iter().map(|m| Share { value: m.value, tag: m.tag }) {
        [value, tag].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()[..MASK_WORD_BYTES]));
    }
}

/// Reads masks as [`write_masks`] encodes them.
fn read_masks(reader: &mut Reader<'_>) -> Result<Masks, MpcError> {
    let words = reader.bytes(ROWS * 2 * MASK_WORD_BYTES)?.chunks_exact(2 * MASK_WORD_BYTES);
    Ok(Zeroizing::new(
        words.map(|w| Share { value: word(&w[..MASK_WORD_BYTES]), tag: word(&w[MASK_WORD_BYTES..]) }).collect(),
    ))
}

fn word(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0u128, |word, b| word << 8 | u128::from(*b))
}

fn read_seed(reader: &mut Reader<'_>) -> Result<[u8; SEED_BYTES], MpcError> {
    Ok(*reader.bytes(SEED_BYTES)?.first_chunk().expect("that many bytes were read"))
}

/// The head of the client's half.
pub(super) struct ClientHead {
    pub(super) seed: Prg,
    pub(super) hash: PublicSeed,
    /// The stream of the input's mask, at level `l2`.
    pub(super) mask: Option<Prg>,
}

impl ClientHead {
    /// Reads the head of the client's half, of [`head_bytes`] bytes.
    pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<Self, BackendError> {
        let mut reader = Reader::new(bytes);
        let (seed, hash) = (Seed(read_seed(&mut reader)?), PublicSeed::from_bytes(read_seed(&mut reader)?));
        let mask = match plan.level() {
            Level::L1 => None,
            Level::L2 => Some(Prg::from_seed(Seed(read_seed(&mut reader)?))),
        };
        Ok(Self { seed: Prg::from_seed(seed), hash, mask })
    }

    pub(super) fn transcript(&self, plan: &Plan, phase: CheckPhase) -> CheckTranscript {
        let delta = DeltaShare::draw(&mut self.seed.fork(DELTA));
        CheckTranscript::new(Role::Client, &session_digest(plan, self.hash, phase), &delta)
    }

    pub(super) fn masks(&self, plan: &Plan, phase: CheckPhase) -> Vec<(u32, Masks)> {
        let widths = &plan.widths()[phase as usize];
        widths.iter().map(|&w| (w, draw_masks(ring(w), &mut mask_stream(&self.seed, phase, w)))).collect()
    }
}

/// The head of the server's half.
pub(super) struct ServerHead {
    pub(super) seed: Prg,
    pub(super) hash: PublicSeed,
    pub(super) delta: DeltaShare,
    pub(super) key: KeyShare,
    /// The masks of the offline and the online check.
    pub(super) masks: [Vec<(u32, Masks)>; 2],
}

impl ServerHead {
    /// Reads the head of the server's half, of [`head_bytes`] bytes.
    pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Result<Self, BackendError> {
        let reader = &mut Reader::new(bytes);
        let (seed, hash) = (Seed(read_seed(reader)?), PublicSeed::from_bytes(read_seed(reader)?));
        let delta = DeltaShare::from_block(Block::from_bytes(read_seed(reader)?));
        let key = u64::from_le_bytes(*reader.bytes(8)?.first_chunk().expect("that many bytes were read"));
        let mut masks = [Vec::new(), Vec::new()];
        for (widths, masks) in plan.widths().iter().zip(&mut masks) {
            for &width in widths {
                masks.push((width, read_masks(reader)?));
            }
        }
        Ok(Self { seed: Prg::from_seed(seed), hash, delta, key: KeyShare::new(key)?, masks })
    }

    pub(super) fn transcript(&self, plan: &Plan, phase: CheckPhase) -> CheckTranscript {
        CheckTranscript::new(Role::Server, &session_digest(plan, self.hash, phase), &self.delta)
    }
}

/// Reveals the result where both parties are checked. The client derives a share of the result's
/// mask and a key from its seed. The server has the other share and, for each word, the tag
/// `key * share + b` with a b of the client. The server sends its shares and a digest of their
/// tags.
pub(super) struct Reveal {
    /// The client's shares of the mask as values, and its b as tags.
    client_shares: Zeroizing<Vec<Share>>,
    key: u64,
    width: u32,
}

impl Reveal {
    pub(super) fn draw(seed: &Prg, plan: &Plan) -> Self {
        let (output, [shares, key]) = (plan.graph.output(), REVEAL.map(|part| seed.fork(part)));
        let (width, mut shares, mut key) = (output.fixed.width, shares, key);
        let client_shares = Zeroizing::new(draw_shares(ring(width), plan.elements(output), &mut shares));
        Self { client_shares, key: KeyShare::draw(&mut key).to_u64(), width }
    }

    fn bytes(plan: &Plan) -> usize {
        let (n, width) = (plan.elements(plan.graph.output()), plan.graph.output().fixed.width);
        Packed::len_bytes(n, width) + n * mac_matmul::word_bytes(ring(width))
    }

    /// The tags of the server's shares.
    fn tags(&self, shares: &[u64]) -> impl Iterator<Item = u128> {
        let mask = u128::MAX >> (128 - ring(self.width).share_bits());
        let (words, key) = (self.client_shares.iter().zip(shares), u128::from(self.key));
        words.map(move |(client, share)| key.wrapping_mul(u128::from(*share)).wrapping_add(client.tag) & mask)
    }

    /// Makes the server's part for the mask `c` of the result.
    pub(super) fn deal(&self, c: &[u64]) -> Zeroizing<Vec<u8>> {
        let shares = c.iter().zip(self.client_shares.iter()).map(|(c, client)| c.wrapping_sub(client.value as u64));
        let shares: Zeroizing<Vec<u64>> = Zeroizing::new(shares.map(|s| s & ring_mask(self.width)).collect());
        let mut out = Writer::default();
        out.packed(&Packed::new(&shares, self.width));
        mac_matmul::write(self.tags(&shares), ring(self.width), &mut out);
        out.finish()
    }

    /// Reads the server's shares, and computes the digest of their tags for a session
    /// ([`session_digest`]).
    pub(super) fn read(
        plan: &Plan,
        session: &[u8; 32],
        source: &mut Source<'_>,
    ) -> Result<(Vec<u64>, [u8; 32]), BackendError> {
        let bytes = source.bytes(Self::bytes(plan))?;
        let reader = &mut Reader::new(&bytes);
        let (n, width) = (plan.elements(plan.graph.output()), plan.graph.output().fixed.width);
        let shares = reader.packed(n, width)?.values();
        let tags = mac_matmul::read(reader, ring(width), n)?;
        Ok((shares, tags_digest(session, tags.iter().copied())))
    }

    /// Returns the mask, after checking that the server's shares are as dealt.
    ///
    /// # Errors
    /// `Misbehaviour` if they are not as dealt.
    pub(super) fn mask(&self, session: &[u8; 32], shares: &[u64], digest: &[u8]) -> Result<Vec<u64>, MpcError> {
        // The digest is public once it is sent, so the time of this comparison reveals nothing.
        if tags_digest(session, self.tags(shares)) != *digest {
            let what = "the share of the result is not as dealt";
            return Err(MpcError::Misbehaviour { step: "the end of the inference", what });
        }
        let mask = self.client_shares.iter().zip(shares);
        Ok(mask.map(|(client, share)| share.wrapping_add(client.value as u64) & ring_mask(self.width)).collect())
    }
}

/// The digest of the tags of the server's shares, for a session.
fn tags_digest(session: &[u8; 32], tags: impl Iterator<Item = u128>) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_derive_key("tacit 2026-11 fss share of the result");
    hash.update(session);
    for tag in tags {
        hash.update(&tag.to_le_bytes());
    }
    *hash.finalize().as_bytes()
}
