//! What the two halves of a material begin and end with.
//!
//! ```text
//! client: seed 16 | seed of the hash keys 16 | correction words of all batches                          | digest 32
//! server: seed 16 | seed of the hash keys 16 | share of Delta 16 | key 8 | masks | pieces of all steps  | digest 32
//! ```
//! Masks: for each width of words offline, then online, those of one check. Steps in node order: of a
//! linear layer `A r - t` (packed), then what its tags are checked with; of a batch of gates what was dealt
//! for it. The digest is of all before it, of the plan with `E`, and of whose half it is. It finds damage and
//! halves of the other party or of another model; it is no tag, and nothing rests on it. Stored at the
//! server, the results of the linear layers' offline phase, packed, are between the steps and the digest.

use std::collections::BTreeSet;

use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_mpc::codec::Reader;
use tacit_mpc::fss::delta::DeltaShare;
use tacit_mpc::fss::mac::ring::{KeyShare, Masks, ROWS, Share, draw_masks};
use tacit_mpc::{MpcError, Role};
use zeroize::Zeroizing;

use super::plan::{Plan, Step, linear_bytes};
use super::wide::ring;
use crate::{BackendError, seam};

/// Bytes of a seed and of a block.
pub(super) const SEED: usize = 16;
/// Bytes of a digest.
const DIGEST: usize = 32;
/// Bytes of a word of 41 bits.
const MASK: usize = 6;

/// Streams from a party's seed, by purpose: `NODE` and what is behind it are parts of `share::stream`.
pub(super) const DELTA: u64 = u64::MAX;
const CHECKS: [u64; 2] = [u64::MAX - 1, u64::MAX - 2];

/// When a check is made.
#[derive(Clone, Copy)]
pub(super) enum When {
    Offline = 0,
    Online = 1,
}

/// The stream of the masks of a check, from the client's seed or the dealer's.
pub(super) fn mask_stream(seed: &Prg, when: When, width: u32) -> Prg {
    seed.fork(CHECKS[when as usize]).fork(u64::from(width))
}

/// The client's masks of a check.
pub(super) fn client_masks(seed: &Prg, when: When, widths: &BTreeSet<u32>) -> Vec<(u32, Masks)> {
    widths.iter().map(|&w| (w, draw_masks(ring(w), &mut mask_stream(seed, when, w)))).collect()
}

/// The name of a session that opens something with a material, which is used once.
pub(super) fn session(plan: &Plan, hash: PublicSeed, when: When) -> [u8; 32] {
    seam::digest("tacit 2026-11 fss session", &[&plan.binding(), &hash.to_bytes(), &[when as u8]])
}

fn digest(binding: &[u8; 32], role: Role, bytes: &[u8]) -> [u8; DIGEST] {
    let mut digesting = Digesting::new(binding, role);
    digesting.update(bytes);
    digesting.finish()
}

/// The digest of a half whose bytes come in pieces.
pub(super) struct Digesting(blake3::Hasher);

impl Digesting {
    pub(super) fn new(binding: &[u8; 32], role: Role) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tacit 2026-11 fss half");
        // Of fixed lengths: the rest is the content.
        hasher.update(binding).update(&[u8::from(role == Role::Server)]);
        Self(hasher)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; DIGEST] {
        *self.0.finalize().as_bytes()
    }
}

/// The content of a half of `len` bytes and its digest, if that is right.
///
/// # Errors
/// [`BackendError::Material`].
pub(super) fn checked<'a>(plan: &Plan, role: Role, bytes: &'a [u8], len: usize) -> Result<&'a [u8], BackendError> {
    if bytes.len() != len + DIGEST {
        let what = format!("{} bytes, {} expected", bytes.len(), len + DIGEST);
        return Err(BackendError::Material { what });
    }
    let (content, stated) = bytes.split_at(len);
    if digest(&plan.binding(), role, content) != *stated {
        return Err(BackendError::Material {
            what: "it is damaged, of another model, or the other party's half".into(),
        });
    }
    Ok(content)
}

/// Appends the digest. `binding`: of the plan that the half is of.
pub(super) fn sealed(binding: &[u8; 32], role: Role, content: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(content.len() + DIGEST));
    out.extend_from_slice(content);
    out.extend_from_slice(&digest(binding, role, content));
    out
}

/// Bytes of the client's half without its digest.
pub(super) fn client_bytes(plan: &Plan) -> usize {
    2 * SEED + plan.steps.iter().flat_map(Step::gates).map(|gate| gate.cost().client_material).sum::<usize>()
}

/// Bytes of what the server's half begins with.
pub(super) fn head_bytes(plan: &Plan) -> usize {
    3 * SEED + 8 + plan.widths().iter().map(|widths| widths.len() * ROWS * 2 * MASK).sum::<usize>()
}

/// Bytes of the server's half, and of what it stores, both without their digest.
pub(super) fn server_bytes(plan: &Plan) -> [usize; 2] {
    let (mut half, mut known) = (head_bytes(plan), 0);
    for (step, node) in plan.steps.iter().zip(plan.graph.nodes()) {
        if let Some([words, tags]) = linear_bytes(step, node) {
            half += words + tags;
            known += words;
        }
        if let Step::Widen(spec) = step {
            half += spec.cost().server_material;
        }
        half += step.gates().map(|gate| gate.cost().server_material).sum::<usize>();
    }
    [half, half + known]
}

/// Bytes with a digest.
pub(super) fn with_digest(len: usize) -> u64 {
    (len + DIGEST) as u64
}

/// Masks as bytes.
pub(super) fn write_masks(masks: &Masks, out: &mut Vec<u8>) {
    for Share { value, tag } in masks.iter().map(|m| Share { value: m.value, tag: m.tag }) {
        [value, tag].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()[..MASK]));
    }
}

fn read_masks(from: &mut Reader<'_>) -> Result<Masks, MpcError> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u128, |word, b| word << 8 | u128::from(*b));
    let words = from.bytes(ROWS * 2 * MASK)?.chunks_exact(2 * MASK);
    Ok(Zeroizing::new(words.map(|w| Share { value: word(&w[..MASK]), tag: word(&w[MASK..]) }).collect()))
}

pub(super) fn read_seed(from: &mut Reader<'_>) -> Result<[u8; SEED], MpcError> {
    Ok(*from.bytes(SEED)?.first_chunk().expect("that many bytes were read"))
}

/// What the server's half begins with.
pub(super) struct ServerHead {
    pub(super) seed: Prg,
    pub(super) hash: PublicSeed,
    pub(super) delta: DeltaShare,
    pub(super) key: KeyShare,
    /// Of both checks.
    pub(super) masks: [Vec<(u32, Masks)>; 2],
}

impl ServerHead {
    pub(super) fn read(plan: &Plan, from: &mut Reader<'_>) -> Result<Self, BackendError> {
        let (seed, hash) = (Seed(read_seed(from)?), PublicSeed::from_bytes(read_seed(from)?));
        let delta = DeltaShare::from_block(Block::from_bytes(read_seed(from)?));
        let key = u64::from_le_bytes(*from.bytes(8)?.first_chunk().expect("that many bytes were read"));
        let mut masks = [Vec::new(), Vec::new()];
        for (widths, masks) in plan.widths().iter().zip(&mut masks) {
            for &width in widths {
                masks.push((width, read_masks(from)?));
            }
        }
        Ok(Self { seed: Prg::from_seed(seed), hash, delta, key: KeyShare::new(key)?, masks })
    }
}

/// Skips what a step has in the server's half, but for a linear layer's.
pub(super) fn skip(step: &Step, from: &mut Reader<'_>) -> Result<(), MpcError> {
    let gates = step.gates().map(|gate| gate.cost().server_material).sum::<usize>();
    let widen = if let Step::Widen(spec) = step { spec.cost().server_material } else { 0 };
    from.bytes(gates + widen).map(drop)
}
