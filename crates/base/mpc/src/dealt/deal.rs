//! Makes the server's material: what the gates need, minus what both parties draw from their seeds.

use tacit_arith::bits::{Bits, transpose};
use tacit_arith::pack;
use tacit_arith::prg::Prg;
use tacit_net::Sides;

use super::block::{self, Planes, ServerDraw};
use super::lane::Lane;
use super::table::thermometer;
use super::{DealtGate, Value};
use crate::low_mask;

/// Makes the server's material for a batch of gates, in pieces. The client shares the tested value as
/// `tested` and the other values as `values` (see [`ClientShares`](super::ClientShares)).
/// Deterministic.
///
/// # Errors
/// Errors of `sink`.
pub fn deal<E>(
    gate: &DealtGate,
    tested: &[u64],
    values: &[&[u64]],
    streams: Sides<&Prg>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let shares: Vec<&[u64]> = gate.inputs(tested, values).collect();
    let deal = |index| {
        let range = block::range(gate.n, index);
        let shares: Vec<&[u64]> = shares.iter().map(|s| &s[range.clone()]).collect();
        match gate.is_narrow() {
            true => deal_block::<u32>(gate, &shares, streams, index),
            false => deal_block::<u64>(gate, &shares, streams, index),
        }
    };
    block::deal_blocks(gate.n, deal, sink)
}

/// Makes the server's material for one block; `shares` are the client's, for the block.
fn deal_block<W: Lane>(gate: &DealtGate, shares: &[&[u64]], streams: Sides<&Prg>, index: usize) -> Vec<u8> {
    let Sides { client, server } = streams;
    let len = shares[0].len();
    let words = block::words(len);
    let client_draw = Planes::draw(gate, len, &mut block::plane_stream(client, index));
    let server_draw = ServerDraw::new(gate, len, &mut block::plane_stream(server, index));
    let secrets: Vec<Vec<u64>> = shares
        .iter()
        .zip(&server_draw.rho)
        .zip(gate.opened())
        .map(|((c, rho), width)| c.iter().zip(rho).map(|(c, r)| r.wrapping_sub(*c) & low_mask(width)).collect())
        .collect();
    let bits = transpose::planes(&secrets[0], gate.width as usize);
    let masks: Vec<u64> = client_draw.masks.iter().zip(&server_draw.masks).map(|(a, b)| a ^ b).collect();
    let mut out = Vec::with_capacity(block::bytes(gate, len));
    for (plane, share) in planes(gate, &bits, &masks, words).iter().zip(drawn_words(&client_draw)) {
        out.extend_from_slice(&(plane ^ share).to_le_bytes());
    }
    let sign: Vec<u64> = (0..len).map(|i| bit(bits[gate.low_bits() as usize].words(), i)).collect();
    let beta = &masks[(gate.masks() - 1) * words..];
    let stream = block::column_stream(client, index);
    let mut columns = ColumnWriter::<W> { stream, share: vec![W::default(); len], difference: Vec::new(), out };
    // Term 0 is the mask of the sign, `beta`. The term of each monomial M is `(1 - 2 beta) M`.
    columns.push_term(gate, &secrets, &sign, &(0..len).map(|i| bit(beta, i) as i8).collect::<Vec<_>>());
    for &monomial in gate.terms.arithmetic_monomials() {
        let product = gate.terms.product(monomial, &masks, words);
        let signed = (0..len).map(|i| bit(&product, i) as i8 * (1 - 2 * bit(beta, i) as i8));
        columns.push_term(gate, &secrets, &sign, &signed.collect::<Vec<_>>());
    }
    if gate.extra() > 0 {
        let (rho, c) = (&server_draw.rho[0], shares[0]);
        columns.push(gate.extra(), |i| wrap(rho[i], c[i], secrets[0][i], gate.width));
        columns.push(gate.extra(), |i| sign[i]);
    }
    std::mem::take(&mut columns.out)
}

/// The client's drawn bits, in the order of the server's differences.
fn drawn_words(planes: &Planes) -> impl Iterator<Item = &u64> {
    planes.table.iter().chain(&planes.sign).chain(&planes.products)
}

/// The bits themselves: tables of the digits of `R`, its sign, products of masks.
fn planes(gate: &DealtGate, bits: &[Bits], masks: &[u64], words: usize) -> Vec<u64> {
    let mut planes = Vec::with_capacity(gate.planes() * words);
    let mut first_bit = gate.drop as usize;
    for &m in &gate.digits {
        let digit: Vec<&[u64]> = bits[first_bit..first_bit + m as usize].iter().map(Bits::words).collect();
        planes.extend(thermometer(&digit, words));
        first_bit += m as usize;
    }
    planes.extend_from_slice(bits[gate.low_bits() as usize].words());
    for &monomial in gate.terms.xor_shared_monomials() {
        planes.extend(gate.terms.product(monomial, masks, words));
    }
    planes
}

fn bit(plane: &[u64], i: usize) -> u64 {
    plane[i / 64] >> (i % 64) & 1
}

/// Writes the server's columns, in the order in which the client draws its own.
struct ColumnWriter<W> {
    stream: Prg,
    share: Vec<W>,
    difference: Vec<u64>,
    out: Vec<u8>,
}

impl<W: Lane> ColumnWriter<W> {
    /// Appends the column with `value(i)` in row i, less the client's share.
    fn push(&mut self, width: u32, value: impl Fn(usize) -> u64) {
        W::draw(&mut self.stream, &mut self.share);
        let ring = low_mask(width);
        self.difference.clear();
        let shares = self.share.iter().enumerate();
        self.difference.extend(shares.map(|(i, share)| value(i).wrapping_sub(share.wide()) & ring));
        pack::pack_slice(&self.difference, width, &mut self.out);
    }

    /// Appends the columns of one term: each value times `factors[i]`, which is -1, 0 or 1.
    fn push_term(&mut self, gate: &DealtGate, secrets: &[Vec<u64>], sign: &[u64], factors: &[i8]) {
        let times = |i: usize, value: u64| u64::small(factors[i]).wrapping_mul(value);
        let mut opened_index = 1;
        self.push(gate.bit_width(), |i| times(i, 1));
        for value in &gate.values {
            match *value {
                Value::Tested { wide } => {
                    self.push(wide, |i| times(i, secrets[0][i]));
                    if wide > gate.width {
                        self.push(wide - gate.width, |i| times(i, sign[i]));
                    }
                }
                Value::Other { width } => {
                    self.push(width, |i| times(i, secrets[opened_index][i]));
                    opened_index += 1;
                }
                Value::MinusOne { .. } => {}
            }
        }
    }
}

impl<W> Drop for ColumnWriter<W> {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.difference);
    }
}

/// `(R - rho - (-c mod 2^n)) / 2^n`: 0 or -1.
pub(super) fn wrap(rho: u64, c: u64, secret: u64, width: u32) -> u64 {
    let sum = rho + (c.wrapping_neg() & low_mask(width));
    ((sum ^ secret) >> width & 1).wrapping_neg()
}
