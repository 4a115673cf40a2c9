//! Evaluation of the gate by either party, if only the client is checked.

use rayon::prelude::*;
use tacit_arith::bits::Bits;
use tacit_arith::block::{self, Block};
use tacit_arith::prg::Prg;
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::super::compare::{Keys, Shape};
use super::super::mac::ring::{Ring, Share};
use super::super::tree_hash::TreeHash;
use super::check_transcript::CheckTranscript;
use super::columns::{Constants, ServerConstants, Shared};
use super::deal::{BatchId, client_streams, place, rho};
use super::spec::{range, ring};
use super::{FssGate, PIECE};
use crate::dealt::{DealtHalf, ServerShares, Value};
use crate::wire::PackedMessages;
use crate::{MpcError, Session, low_mask};

const OPENED: Tag = Tag::new(0x0360, "masked values");
pub(super) const BITS: Tag = Tag::new(0x0361, "masked signs");
pub(super) const WORDS: Tag = Tag::new(0x0362, "checked words");

/// A party's blocks of the opened bits, piece by piece.
pub(super) fn blocks(
    gate: &FssGate,
    batch: BatchId,
    points: &[u64],
    keys: impl Fn(usize, usize) -> Result<KeysAndTags, MpcError> + Sync,
) -> Result<Zeroizing<Vec<Block>>, MpcError> {
    let (bound, mut out) = (gate.comparison().1, Zeroizing::new(vec![Block::ZERO; gate.n()]));
    out.par_chunks_mut(PIECE).enumerate().try_for_each(|(index, out)| {
        let (keys, tags) = keys(index, out.len())?;
        let points = &points[range(gate.n(), index)];
        keys.eval(&mut TreeHash::new(batch.hash), place(batch.number, index), points, bound, out);
        out.iter_mut().zip(tags.iter()).for_each(|(out, tag)| *out ^= *tag);
        Ok::<_, MpcError>(())
    })?;
    Ok(out)
}

/// A party's keys of a piece, and its tags of the dealt bits.
pub(super) type KeysAndTags = (Keys, Zeroizing<Vec<Block>>);

/// The client's keys for `tags` dealt bits in a piece, from the correction words of all pieces.
pub(super) fn client_keys(
    shape: Shape,
    client: &Prg,
    corrections: &[u8],
    index: usize,
    len: usize,
    tags: usize,
) -> Result<KeysAndTags, MpcError> {
    let [mut tops, mut tag_stream, _] = client_streams(client, index);
    let corrections = &corrections[shape.corrections_bytes(PIECE) * index..][..shape.corrections_bytes(len)];
    let mut dealt = Zeroizing::new(vec![Block::ZERO; tags]);
    tag_stream.fill_blocks(&mut dealt);
    Ok((Keys::seeded(shape, len, &mut tops, block::from_bytes(corrections))?, dealt))
}

/// The server's keys for `tags` dealt bits, from its material for a piece.
pub(super) fn server_keys(shape: Shape, material: &[u8], len: usize, tags: usize) -> Result<KeysAndTags, MpcError> {
    let (corrections, unread) = material.split_at(shape.corrections_bytes(len));
    let (tops, unread) = unread.split_at(shape.tops_bytes(len));
    let tops = Zeroizing::new(block::from_bytes(tops));
    let tags = Zeroizing::new(block::from_bytes(&unread[..16 * tags]));
    Ok((Keys::new(shape, len, tops, block::from_bytes(corrections))?, tags))
}

/// A party's constants of a piece: for the bit, and for each value and branch.
pub(super) struct Columns<'a> {
    pub(super) slope: Shared<'a>,
    pub(super) constants: Vec<Vec<Shared<'a>>>,
}

impl<'a> Columns<'a> {
    /// Takes the constants of each value and branch from `next`.
    pub(super) fn new(gate: &FssGate, slope: Shared<'a>, mut next: impl FnMut(Ring) -> Shared<'a>) -> Self {
        let constants = gate.values().iter().map(|v| (0..gate.branches(*v)).map(|_| next(ring(v.width()))).collect());
        Self { slope, constants: constants.collect() }
    }
}

pub(super) fn draw_columns(gate: &FssGate, prg: &Prg, index: usize, len: usize) -> Columns<'static> {
    let [_, _, mut stream] = client_streams(prg, index);
    let slope = Shared::Drawn(Constants::draw(&mut stream, gate.slope(), len));
    Columns::new(gate, slope, |ring| Shared::Drawn(Constants::draw(&mut stream, ring, len)))
}

/// `(1 - 2q) a P + C` with tags, for each value: a party's shares of the words of a piece.
pub(super) fn words<'a>(
    gate: &FssGate,
    opened: &[Vec<u64>],
    bits: &Bits,
    index: usize,
    columns: impl FnOnce(usize) -> Columns<'a>,
) -> Vec<Zeroizing<Vec<Share>>> {
    let range = range(gate.n(), index);
    let Columns { slope, constants } = columns(range.len());
    let mut words = vec![Zeroizing::new(Vec::with_capacity(range.len())); gate.values().len()];
    for (position, i) in range.enumerate() {
        let slope = slope.get(position);
        for (k, p) in public_factors(gate.values(), opened, i).enumerate() {
            let value = gate.values()[k];
            let (q, branch) = branch(gate, value, bits, opened[0][i], i);
            let (p, constant, mask) =
                (sign_extend(p, value), constants[k][branch].get(position), ring(value.width()).mask());
            let word = |slope: u128, addend: u128| signed(slope.wrapping_mul(p), q).wrapping_add(addend) & mask;
            words[k].push(Share { value: word(slope.value, constant.value), tag: word(slope.tag, constant.tag) });
        }
    }
    words
}

/// q of element `i`, and its branch among a value's constants.
pub(super) fn branch(gate: &FssGate, value: Value, opened: &Bits, xh: u64, i: usize) -> (bool, usize) {
    let top = xh >> (gate.width - 1) & 1;
    let bit = opened.words()[i / 64] >> (i % 64) & 1;
    let q = 1 ^ top ^ bit;
    (q == 1, (q + if gate.branches(value) == 4 { 2 * top } else { 0 }) as usize)
}

/// The public `P` of each value, for element `i`.
pub(super) fn public_factors(values: &[Value], opened: &[Vec<u64>], i: usize) -> impl Iterator<Item = u64> {
    let mut opened_index = 0;
    values.iter().map(move |value| match value {
        Value::Tested { .. } => opened[0][i],
        Value::Other { .. } => {
            opened_index += 1;
            opened[opened_index][i]
        }
        Value::MinusOne { .. } => u64::MAX,
    })
}

/// Two's complement in more bits.
fn sign_extend(value: u64, kind: Value) -> u128 {
    if matches!(kind, Value::MinusOne { .. }) { u128::MAX } else { u128::from(value) }
}

/// `word` or, if `negative`, its negative.
fn signed(word: u128, negative: bool) -> u128 {
    if negative { word.wrapping_neg() } else { word }
}

/// The client's online part. `batch` must be that of the dealing; the bytes of `half` are the
/// correction words. Its shares of the results are the dealt targets.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to this gate.
pub fn client_online(
    gate: &FssGate,
    batch: BatchId,
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<(), MpcError> {
    let DealtHalf { prg, bytes: corrections } = half;
    let n = gate.n();
    check_len(corrections, gate.cost().client_material)?;
    let mut opened = Vec::new();
    for width in gate.opened() {
        opened.push(session.channel.recv_packed(OPENED, n, width)?);
    }
    let shape = gate.comparison().0;
    let keys = |index, len| client_keys(shape, prg, corrections, index, len, len);
    let tags = blocks(gate, batch, &opened[0], keys)?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let pieces = (0..n.div_ceil(PIECE)).into_par_iter();
    let pieces: Vec<Vec<Zeroizing<Vec<Share>>>> =
        pieces.map(|index| words(gate, &opened, &bits, index, |len| draw_columns(gate, prg, index, len))).collect();
    for (k, value) in gate.values().iter().enumerate() {
        let shares = || pieces.iter().flat_map(|piece| piece[k].iter());
        let low: Vec<u64> = shares().map(|share| share.value as u64 & low_mask(value.width())).collect();
        session.channel.send_packed(WORDS, &low, value.width())?;
        transcript.values(value.width(), shares().cloned(), low.iter().copied());
    }
    Ok(())
}

/// The server's online part: its shares of the results, one `[n]` for each value. `batch` must be that
/// of the dealing.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to this gate.
pub fn server_online(
    gate: &FssGate,
    batch: BatchId,
    shares: ServerShares<'_>,
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let (DealtHalf { prg, bytes: material }, n) = (half, gate.n());
    check_len(material, gate.cost().server_material)?;
    let opened = open(gate, shares.tested, shares.values, prg, session)?;
    let shape = gate.comparison().0;
    let keys = |index, len| server_keys(shape, gate.piece(material, index), len, len);
    let tags = blocks(gate, batch, &opened[0], keys)?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let mut received = Vec::new();
    for value in gate.values() {
        received.push(session.channel.recv_packed(WORDS, n, value.width())?);
    }
    let public = Public { gate, opened, bits };
    let pieces = (0..n.div_ceil(PIECE))
        .into_par_iter()
        .map(|index| public.server_words(index, gate.piece_words(material, index), &received, shares.bases));
    let pieces: Vec<Vec<ServerResults>> = pieces.collect();
    for (k, value) in gate.values().iter().enumerate() {
        let shares = pieces.iter().flat_map(|piece| piece[k].1.iter().cloned());
        transcript.values(value.width(), shares, received[k].iter().copied());
    }
    let values = 0..gate.values().len();
    Ok(values.map(|k| pieces.iter().flat_map(|piece| piece[k].0.iter().copied()).collect()).collect())
}

/// Masks and sends the server's openings; returns the public values.
fn open(
    gate: &FssGate,
    tested: &[u64],
    values: &[&[u64]],
    prg: &Prg,
    session: &mut Session<'_>,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let count = gate.n().div_ceil(PIECE);
    let draws: Vec<Zeroizing<Vec<Vec<u64>>>> = (0..count).into_par_iter().map(|i| rho(gate, prg, i)).collect();
    let mut opened = Vec::new();
    for (index, (share, width)) in gate.inputs(tested, values).zip(gate.opened()).enumerate() {
        let rho = draws.iter().flat_map(|rho| rho[index].iter());
        let masked: Vec<u64> = share.iter().zip(rho).map(|(s, r)| s.wrapping_add(*r) & low_mask(width)).collect();
        session.channel.send_packed(OPENED, &masked, width)?;
        opened.push(masked);
    }
    // The client begins while this party evaluates.
    session.channel.flush()?;
    Ok(opened)
}

/// The server's shares of a value's results in a piece, and its values for the check of the
/// client's words.
type ServerResults = (Vec<u64>, Zeroizing<Vec<Share>>);

struct Public<'a> {
    gate: &'a FssGate,
    opened: Vec<Vec<u64>>,
    bits: Bits,
}

impl Public<'_> {
    /// The server's part of a piece, value by value: `material` are its words, `received` the client's.
    fn server_words(
        &self,
        index: usize,
        material: &[u8],
        received: &[Vec<u64>],
        bases: &[&[u64]],
    ) -> Vec<ServerResults> {
        let Self { gate, opened, bits } = self;
        let (range, mut unread) = (range(gate.n(), index), material);
        let len = range.len();
        let slope = ServerConstants::take(&mut unread, gate.slope(), len);
        let constants = gate.values().iter().map(|v| {
            (0..gate.branches(*v)).map(|_| ServerConstants::take(&mut unread, ring(v.width()), len)).collect()
        });
        let constants: Vec<Vec<ServerConstants<'_>>> = constants.collect();
        let mut results = vec![(Vec::with_capacity(len), Zeroizing::new(Vec::with_capacity(len))); gate.values().len()];
        for (position, i) in range.enumerate() {
            let (share, key) = slope.get(position);
            for (k, p) in public_factors(gate.values(), opened, i).enumerate() {
                let value = gate.values()[k];
                let (q, branch) = branch(gate, value, bits, opened[0][i], i);
                let ((known, of_known), wide) = (constants[k][branch].get(position), sign_extend(p, value));
                let result = signed(u128::from(share).wrapping_mul(wide), q) as u64;
                let result =
                    result.wrapping_add(if q { p } else { 0 }).wrapping_add(known).wrapping_add(received[k][i]);
                let result = result.wrapping_add(bases.get(k).map_or(0, |base| base[i]));
                results[k].0.push(result & low_mask(value.width()));
                let of_word = signed(key.wrapping_mul(wide), q).wrapping_add(of_known);
                results[k].1.push(Share { value: 0, tag: of_word.wrapping_neg() & ring(value.width()).mask() });
            }
        }
        results
    }
}

pub(super) fn check_len(bytes: &[u8], expected: usize) -> Result<(), MpcError> {
    if bytes.len() == expected {
        return Ok(());
    }
    Err(MpcError::Material { what: format!("{} bytes for a batch of gates, {expected} expected", bytes.len()) })
}
