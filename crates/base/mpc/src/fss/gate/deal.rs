//! The dealer's work: masks from both parties' seeds, keys for the masks, and the differences
//! between the needs of the gates and the client's draws.

use rayon::prelude::*;
use tacit_arith::block::{self, Block};
use tacit_arith::prg::{Prg, PublicSeed};
use zeroize::Zeroizing;

use super::super::compare::{self, Shape};
use super::super::delta::Delta;
use super::super::group::GROUP;
use super::super::mac::ring::Key;
use super::super::tree_hash::{Place, TreeHash};
use super::columns::{self, Constants};
use super::spec::{Checked, range, ring};
use super::{FssGate, PIECE, PIECES_AT_ONCE};
use crate::dealt::{ClientShares, Value};
use crate::planes::bit_plane;
use crate::{draw_words, low_mask};

/// The streams of one batch.
#[derive(Clone, Copy)]
pub struct DealerStreams<'a> {
    /// From the client's seed.
    pub client: &'a Prg,
    /// From the server's seed.
    pub server: &'a Prg,
    /// From randomness of the dealer alone.
    pub dealer: &'a Prg,
}

/// The name of a batch, from which its trees have their hash keys.
#[derive(Clone, Copy)]
pub struct BatchId {
    /// Public hash keys of the trees.
    pub hash: PublicSeed,
    /// Number of the batch: no two under one `hash` share it.
    pub number: u32,
}

/// The name of a batch, and the keys common to all batches of a material.
#[derive(Clone, Copy)]
pub struct BatchKeys<'a> {
    /// Name of the batch.
    pub id: BatchId,
    /// MAC key of bits.
    pub delta: &'a Delta,
    /// MAC key of ring elements.
    pub key: &'a Key,
}

pub(super) fn place(batch: u32, index: usize) -> Place {
    let group = u32::try_from(index * (PIECE / GROUP)).expect("a batch has fewer than 2^40 gates");
    Place { batch, group }
}

/// The parts of a client's stream for a piece: tables of trees, tags of bits, constants.
pub(super) fn client_streams(client: &Prg, index: usize) -> [Prg; 3] {
    [0, 1, 2].map(|part| client.fork(4 * index as u64 + part))
}

/// The server's masks of its openings in a piece, one list for each value.
pub(super) fn rho(gate: &FssGate, server: &Prg, index: usize) -> Zeroizing<Vec<Vec<u64>>> {
    let (len, mut prg) = (range(gate.n(), index).len(), server.fork(index as u64));
    let lists = gate.opened().into_iter().map(|width| std::mem::take(&mut *draw_words(&mut prg, len, width)));
    Zeroizing::new(lists.collect())
}

/// The dealer's secrets of a piece: the masks `R` of the public values, and its keys.
struct Piece {
    secrets: Zeroizing<Vec<Vec<u64>>>,
    keys: compare::Dealt,
}

/// Draws the masks of piece `index` and deals its comparison keys.
fn piece(
    gate: &FssGate,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    shares: &ClientShares<'_>,
    index: usize,
) -> Piece {
    let inputs = gate.inputs(shares.tested, shares.values);
    let mut secrets = match gate.checked {
        Checked::Client => rho(gate, streams.server, index),
        // Public values have the dealer's masks alone.
        Checked::Both => Zeroizing::new(vec![vec![0; range(gate.n(), index).len()]; gate.opened().len()]),
    };
    for ((rho, c), width) in secrets.iter_mut().zip(inputs).zip(gate.opened()) {
        let c = &c[range(gate.n(), index)];
        rho.iter_mut().zip(c).for_each(|(r, c)| *r = r.wrapping_sub(*c) & low_mask(width));
    }
    let keys = deal_keys(gate.comparison().0, keys, streams.client, &secrets[0], index);
    Piece { secrets, keys }
}

pub(super) fn deal_keys(
    shape: Shape,
    keys: &BatchKeys<'_>,
    client: &Prg,
    secrets: &[u64],
    index: usize,
) -> compare::Dealt {
    let [mut tops, ..] = client_streams(client, index);
    let mut hash = TreeHash::new(keys.id.hash);
    compare::deal(&mut hash, place(keys.id.number, index), shape, keys.delta, secrets, &mut tops)
}

/// Writes the server's keys of a piece, and its tags of the dealt bits.
pub(super) fn write_keys(dealt: &compare::Dealt, tags: &[Block], out: &mut Vec<u8>) {
    out.extend_from_slice(&block::to_bytes(&dealt.corrections));
    for blocks in [&dealt.tops[..], tags] {
        out.extend_from_slice(&Zeroizing::new(block::to_bytes(blocks)));
    }
}

/// Makes each piece of n elements with `make_piece` and passes the pieces to `sink`, in order.
pub(super) fn pieces<E>(
    n: usize,
    make_piece: impl Fn(usize) -> Zeroizing<Vec<u8>> + Sync,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let count = n.div_ceil(PIECE);
    // Limits the pieces in memory to the number that the threads can make at once.
    let at_once = PIECES_AT_ONCE.min(2 * rayon::current_num_threads());
    for first in (0..count).step_by(at_once) {
        let last = (first + at_once).min(count);
        let blocks: Vec<Zeroizing<Vec<u8>>> = (first..last).into_par_iter().map(&make_piece).collect();
        blocks.iter().try_for_each(|bytes| sink(bytes))?;
    }
    Ok(())
}

/// Makes the client's correction words for a batch. `shares` are the client's shares, present or
/// future.
///
/// # Errors
/// Errors of `sink`.
pub fn deal_client<E>(
    gate: &FssGate,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    shares: &ClientShares<'_>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    pieces(gate.n(), |i| Zeroizing::new(block::to_bytes(&piece(gate, keys, streams, shares, i).keys.corrections)), sink)
}

/// Makes the server's material for a batch, in pieces: correction words, tables, tags of the dealt
/// bits, words.
///
/// # Errors
/// Errors of `sink`.
pub fn deal_server<E>(
    gate: &FssGate,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    shares: &ClientShares<'_>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    pieces(gate.n(), |index| server_piece(gate, keys, streams, shares, index), sink)
}

fn server_piece(
    gate: &FssGate,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    shares: &ClientShares<'_>,
    index: usize,
) -> Zeroizing<Vec<u8>> {
    let piece = piece(gate, keys, streams, shares, index);
    let len = piece.secrets[0].len();
    let lambda = draw_words(&mut streams.dealer.fork(index as u64), len, 1);
    let [_, mut tags, constants] = client_streams(streams.client, index);
    let signs = piece.secrets[0].iter().zip(lambda.iter()).map(|(r, l)| r >> (gate.width - 1) ^ l);
    let signs: Zeroizing<Vec<u64>> = Zeroizing::new(signs.collect());
    let tags = Zeroizing::new(keys.delta.deal_bits(&bit_plane(&signs, 0), &mut tags));
    let mut out = Zeroizing::new(Vec::with_capacity(gate.server_bytes(len)));
    write_keys(&piece.keys, &tags, &mut out);
    let words = Words { gate, keys, shares, index, piece: &piece, lambda: &lambda };
    words.write(constants, &mut out);
    out
}

/// The server's words of a piece.
struct Words<'a> {
    gate: &'a FssGate,
    keys: &'a BatchKeys<'a>,
    shares: &'a ClientShares<'a>,
    index: usize,
    piece: &'a Piece,
    lambda: &'a [u64],
}

impl Words<'_> {
    fn write(&self, mut stream: Prg, out: &mut Vec<u8>) {
        let (gate, key, len) = (self.gate, self.keys.key, self.lambda.len());
        let slope = Constants::draw(&mut stream, gate.slope(), len);
        columns::write(&slope, key, gate.checked, |i| self.lambda[i], out);
        let (mut opened_index, none) = (0, vec![0; len]);
        for (k, &value) in gate.values().iter().enumerate() {
            let secrets: &[u64] = match value {
                Value::Tested { .. } => &self.piece.secrets[0],
                Value::Other { .. } => {
                    opened_index += 1;
                    &self.piece.secrets[opened_index]
                }
                Value::MinusOne { .. } => &none,
            };
            let range = range(gate.n(), self.index);
            let (base, target) = (self.shares.bases.get(k).map(|b| &b[range.clone()]), &self.shares.targets[k][range]);
            for branch in 0..gate.branches(value) {
                let constants = Constants::draw(&mut stream, ring(value.width()), len);
                let needed = |i: usize| {
                    let wrapped = wrapped(secrets[i], gate.width, gate.branches(value) == 4 && branch < 2);
                    let bit = branch as u64 & 1 ^ self.lambda[i];
                    let base = base.map_or(0, |base| base[i]);
                    base.wrapping_sub(target[i]).wrapping_sub(bit.wrapping_neg() & wrapped)
                };
                columns::write(&constants, key, gate.checked, needed, out);
            }
        }
    }
}

/// `R`, minus `2^width` if its top bit is set and `below` holds (the top bit of xh is not set).
/// Then `xh - R` is the value as a signed number.
pub(super) fn wrapped(secret: u64, width: u32, below: bool) -> u64 {
    secret.wrapping_sub((u64::from(below) & secret >> (width - 1)) << width)
}
