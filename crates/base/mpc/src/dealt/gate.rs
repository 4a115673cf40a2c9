//! Online evaluation, by either party, of a batch of gates `z_k = base_k + [y >= 0] X_k`.
//!
//! | symbol | meaning |
//! | --- | --- |
//! | `d` | `[y >= 0]`, the sign bit of the tested value y; never opened |
//! | `xh` | the opened, masked value: `y + R`, or `X_k + R` with another R |
//! | `R` | `rho - c`, the mask of a value; only the dealer knows all of it |
//! | `T` | a term: a dealt -1, 0 or 1, by which the opened bits are unmasked (`terms`) |
//!
//! With public coefficients, `d = addend + sum of coefficient times T`. The parties hold dealt
//! shares of each T and of each `T R`, so `d X = d (xh - R)` is a linear combination of shares.

use rayon::prelude::*;
use tacit_arith::bits::{Bits, transpose};
use tacit_arith::prg::Prg;
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::block::{self, Columns, Planes, ServerDraw};
use super::lane::Lane;
use super::table::look_up;
use super::{DealtGate, Exchanges, Value};
use crate::gate::{add_differences, send_differences};
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, low_mask, planes};

const OPENED: Tag = Tag::new(0x0350, "masked values");
const BITS: Tag = Tag::new(0x0351, "masked bits of digits");
const SIGN: Tag = Tag::new(0x0352, "masked signs");
const MOVE: Tag = Tag::new(0x0353, "share difference");

/// The client's shares around a batch of gates, each `[n]`.
#[derive(Clone, Copy)]
pub struct ClientShares<'a> {
    /// Shares of the tested value.
    pub tested: &'a [u64],
    /// Shares of the values, in the gate's order; those of `Tested` and `MinusOne` are ignored.
    pub values: &'a [&'a [u64]],
    /// Shares of the addends; may be fewer than values.
    pub bases: &'a [&'a [u64]],
    /// The client's final shares, reduced into their rings.
    pub targets: &'a [&'a [u64]],
}

/// The server's shares around a batch of gates, each `[n]`.
#[derive(Clone, Copy)]
pub struct ServerShares<'a> {
    /// Shares of the tested value.
    pub tested: &'a [u64],
    /// Shares of the values, in the gate's order; those of `Tested` and `MinusOne` are ignored.
    pub values: &'a [&'a [u64]],
    /// Shares of the addends; may be fewer than values.
    pub bases: &'a [&'a [u64]],
}

/// One party's half of the material of a batch.
#[derive(Clone, Copy)]
pub struct DealtHalf<'a> {
    /// The party's stream of the dealing.
    pub prg: &'a Prg,
    /// The dealt bytes.
    pub bytes: &'a [u8],
}

fn xor(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

enum Half<'a> {
    Client { prg: &'a Prg },
    Server { prg: &'a Prg, bytes: &'a [u8] },
}

struct Evaluation<'a> {
    gate: &'a DealtGate,
    half: Half<'a>,
    /// The public values, each `[n]`.
    opened: Vec<Vec<u64>>,
    /// The party's own part of `R` for each of them: `-c`, or `rho = xh - s`; each `[n]`.
    parts: Vec<Vec<u64>>,
}

/// A block's state between two openings.
struct Opening {
    planes: Planes,
    /// The masked bits for the first opening, followed by the party's part of the sign.
    digits: Vec<u64>,
}

impl Evaluation<'_> {
    fn role(&self) -> Role {
        match self.half {
            Half::Client { .. } => Role::Client,
            Half::Server { .. } => Role::Server,
        }
    }

    /// All ones at the party that adds public terms.
    fn public_mask(&self) -> u64 {
        if self.role() == Role::Server { u64::MAX } else { 0 }
    }

    fn block_bytes<'b>(&self, bytes: &'b [u8], index: usize, len: usize) -> &'b [u8] {
        let full = block::bytes(self.gate, super::BLOCK);
        &bytes[index * full..][..block::bytes(self.gate, len)]
    }

    fn planes(&self, index: usize, len: usize) -> Planes {
        match self.half {
            Half::Client { prg } => Planes::draw(self.gate, len, &mut block::plane_stream(prg, index)),
            Half::Server { prg, bytes } => {
                let mut draw = ServerDraw::new(self.gate, len, &mut block::plane_stream(prg, index));
                let masks = std::mem::take(&mut draw.masks);
                Planes::from_dealt(self.gate, len, self.block_bytes(bytes, index, len), masks)
            }
        }
    }

    fn columns(&self, index: usize, len: usize) -> Columns<'_> {
        match self.half {
            Half::Client { prg } => Columns::Drawn(Box::new(block::column_stream(prg, index))),
            Half::Server { bytes, .. } => Columns::from_dealt(self.gate, len, self.block_bytes(bytes, index, len)),
        }
    }

    /// The party's share of the first opening: planes `eq_1 .., lt_0 .., top`, all masked except
    /// the last (with one exchange the last one too). `top` is the result bit if the lower digits
    /// do not decide.
    fn digits(&self, index: usize) -> Opening {
        let (gate, range) = (self.gate, block::range(self.gate.n, index));
        let (words, count) = (block::words(range.len()), gate.digits.len());
        let mut planes = self.planes(index, range.len());
        let bits = transpose::planes(&self.opened[0][range], gate.width as usize);
        let (mut eq, mut lt, mut top) = (Vec::new(), Vec::new(), Vec::new());
        let (mut table, mut first_bit) = (planes.table.as_slice(), gate.drop as usize);
        for (i, &m) in gate.digits.iter().enumerate() {
            let (entries, remaining) = table.split_at(((1 << m) - 1) * words);
            let digit_bits: Vec<&[u64]> = bits[first_bit..first_bit + m as usize].iter().map(Bits::words).collect();
            let [current, previous] = look_up(entries, &digit_bits, self.public_mask(), words);
            (table, first_bit) = (remaining, first_bit + m as usize);
            if i > 0 {
                eq.extend(xor(&current, &previous));
            }
            // Where bits are dropped, equality counts as less: [u <= z] = [u - 1 < z].
            let less_than = if i == 0 && gate.drop > 0 { previous } else { current };
            if i + 1 < count { lt.extend(less_than) } else { top = less_than }
        }
        // [y >= 0] = 1 ^ msb(xh) ^ msb(R) ^ lt.
        let sign = bits[gate.low_bits() as usize].words();
        for (w, top) in top.iter_mut().enumerate() {
            *top ^= planes.sign[w] ^ (!sign[w] & self.public_mask());
        }
        eq.extend(lt);
        eq.extend(top);
        let masked = gate.masked_bits() * words;
        eq[..masked].iter_mut().zip(&planes.masks).for_each(|(bit, mask)| *bit ^= mask);
        // Takes the table out, so that it is wiped only once.
        drop(Zeroizing::new(std::mem::take(&mut planes.table)));
        Opening { planes, digits: eq }
    }

    /// The masked share of the sign, from all opened bits: with two exchanges.
    fn masked_sign(&self, block: &Opening, opened: &[u64]) -> Vec<u64> {
        let words = block.planes.sign.len();
        let sign_start = self.gate.masked_bits() * words;
        let (terms, Planes { masks, products, .. }) = (&self.gate.terms, &block.planes);
        let mut sign = terms.lower_digits_share(opened, masks, products, words, self.role() == Role::Server);
        sign.iter_mut()
            .zip(&block.digits[sign_start..])
            .zip(&masks[sign_start..])
            .for_each(|((s, top), mask)| *s ^= top ^ mask);
        sign
    }

    /// The party's shares of `d X` for each value X, with `d = [y >= 0]`, from the last opening:
    /// that of all digits' bits (one exchange), or of the masked sign (two).
    fn multiply<W: Lane>(&self, index: usize, opened: &[u64]) -> Result<Vec<Vec<u64>>, MpcError> {
        let (gate, range) = (self.gate, block::range(self.gate.n, index));
        let len = range.len();
        let (addend, factors) = gate.terms.coefficients(opened, block::words(len), len);
        let mut columns = self.columns(index, len);
        let (per_term, final_widths) = gate.columns();
        // Sums over the terms T, weighted by their coefficients in d: of T, then of T R for each
        // value and, if the tested value is widened, of T times R's top bit.
        let mut sums = vec![vec![W::default(); len]; per_term.len()];
        let mut column = vec![W::default(); len];
        for factor in &factors {
            for (sum, &width) in sums.iter_mut().zip(&per_term) {
                columns.next(width, &mut column)?;
                W::accumulate(sum, factor, &column);
            }
        }
        let mut final_columns = Vec::with_capacity(final_widths.len());
        for &width in &final_widths {
            columns.next(width, &mut column)?;
            final_columns.push(column.clone());
        }
        let (mut sum_index, mut opened_index) = (1, 1);
        let results = gate.values.iter().map(|value| {
            let mut out = match value {
                Value::Tested { .. } => self.product(0, range.clone(), &addend, [&sums[0], &sums[sum_index]]),
                Value::Other { .. } => self.product(opened_index, range.clone(), &addend, [&sums[0], &sums[sum_index]]),
                Value::MinusOne { .. } => {
                    let ours = i8::from(self.role() == Role::Server);
                    let minus = addend.iter().zip(&sums[0]);
                    minus.map(|(a, t)| W::default().minus(W::small(a * ours).plus(*t))).collect()
                }
            };
            match value {
                Value::Tested { .. } if gate.extra() > 0 => {
                    self.add_wrap(
                        range.clone(),
                        &addend,
                        &mut out,
                        [&sums[sum_index + 1], &final_columns[0], &final_columns[1]],
                    );
                    sum_index += 2;
                }
                Value::Tested { .. } => sum_index += 1,
                Value::Other { .. } => (sum_index, opened_index) = (sum_index + 1, opened_index + 1),
                Value::MinusOne { .. } => {}
            }
            out.into_iter().map(|v| v.wide() & low_mask(value.width())).collect()
        });
        Ok(results.collect())
    }

    /// The party's share of `d X = d (xh - R)` for the `index`-th opened value. `addend` is the
    /// public part of d; `t` and `tr` are the weighted sums of the terms T, and of T R.
    fn product<W: Lane>(
        &self,
        index: usize,
        range: std::ops::Range<usize>,
        addend: &[i8],
        [t, tr]: [&[W]; 2],
    ) -> Vec<W> {
        let (xh, part) = (&self.opened[index][range.clone()], &self.parts[index][range]);
        let public = self.public_mask();
        let shares = (0..xh.len()).map(|i| {
            let public_part = W::of(xh[i] & public).minus(W::of(part[i])).times(W::small(addend[i]));
            public_part.plus(W::of(xh[i]).times(t[i])).minus(tr[i])
        });
        shares.collect()
    }

    /// Widening: adds `2^n d ((1 - msb xh) msb R - wrap)`.
    fn add_wrap<W: Lane>(
        &self,
        range: std::ops::Range<usize>,
        addend: &[i8],
        out: &mut [W],
        [signs, wrap, sign]: [&[W]; 3],
    ) {
        let width = self.gate.width;
        for (i, (out, x)) in out.iter_mut().zip(&self.opened[0][range]).enumerate() {
            let top_clear = W::of(1 ^ (x >> (width - 1) & 1));
            let public_part = top_clear.times(sign[i]).minus(wrap[i]).times(W::small(addend[i]));
            *out = out.plus(public_part.plus(top_clear.times(signs[i])).shl(width));
        }
    }

    /// Runs the openings; returns the party's shares of `d X`, value by value.
    fn run(&self, peer_bits: Option<Vec<Bits>>, session: &mut Session<'_>) -> Result<Vec<Vec<u64>>, MpcError> {
        let (n, count) = (self.gate.n, self.gate.masked_bits());
        let blocks: Vec<Opening> = (0..block::count(n)).into_par_iter().map(|i| self.digits(i)).collect();
        let own_bits = join_blocks(count, n, &blocks, |block| (&block.digits, block.planes.sign.len()));
        planes::send(session.channel, BITS, &own_bits)?;
        let peer_bits = match peer_bits {
            Some(peer_bits) => peer_bits,
            None => planes::recv(session.channel, BITS, count, n)?,
        };
        let mut opened: Vec<Bits> = own_bits.iter().zip(&peer_bits).map(|(a, b)| a.xor(b)).collect();
        if self.gate.exchanges == Exchanges::Two {
            let signs = blocks.par_iter().enumerate();
            let signs: Vec<Vec<u64>> =
                signs.map(|(i, block)| self.masked_sign(block, &self.block_planes(&opened, i))).collect();
            let own_bits = join_blocks(1, n, &signs, |sign| (sign, sign.len()));
            planes::send(session.channel, SIGN, &own_bits)?;
            let peer_bits = planes::recv(session.channel, SIGN, 1, n)?;
            opened = vec![own_bits[0].xor(&peer_bits[0])];
        }
        drop(blocks);
        let parts = (0..block::count(n)).into_par_iter().map(|i| match self.gate.is_narrow() {
            true => self.multiply::<u32>(i, &self.block_planes(&opened, i)),
            false => self.multiply::<u64>(i, &self.block_planes(&opened, i)),
        });
        let parts: Vec<Vec<Vec<u64>>> = parts.collect::<Result<_, _>>()?;
        let values = 0..self.gate.values.len();
        Ok(values.map(|k| parts.iter().flat_map(|part| part[k].iter().copied()).collect()).collect())
    }

    fn block_planes(&self, planes: &[Bits], index: usize) -> Vec<u64> {
        let words = block::words(block::range(self.gate.n, index).len());
        planes.iter().flat_map(|p| p.words()[index * super::BLOCK / 64..][..words].iter().copied()).collect()
    }
}

/// The first `count` planes of a batch in the form of the messages, from its blocks' planes.
/// `planes` returns a block's planes with their number of words each.
fn join_blocks<B>(count: usize, n: usize, blocks: &[B], planes: impl Fn(&B) -> (&Vec<u64>, usize)) -> Vec<Bits> {
    let joined = (0..count).map(|p| {
        let words = blocks.iter().map(&planes).flat_map(|(all, words)| all[p * words..][..words].iter().copied());
        let bits = Bits::from_words(n, words.collect());
        let mut bits = bits.expect("blocks have whole words, the last one ends the batch");
        bits.clear_tail();
        bits
    });
    joined.collect()
}

/// The client's online part. `prg` is the stream that `deal` used for the client.
///
/// # Errors
/// Channel errors.
pub fn client_online(
    gate: &DealtGate,
    shares: ClientShares<'_>,
    prg: &Prg,
    session: &mut Session<'_>,
) -> Result<(), MpcError> {
    let (mut opened, mut parts) = (Vec::new(), Vec::new());
    for (share, width) in gate.inputs(shares.tested, shares.values).zip(gate.opened()) {
        opened.push(session.channel.recv_packed(OPENED, gate.n, width)?);
        parts.push(share.iter().map(|c| c.wrapping_neg() & low_mask(width)).collect());
    }
    let peer_bits = planes::recv(session.channel, BITS, gate.masked_bits(), gate.n)?;
    let results = Evaluation { gate, half: Half::Client { prg }, opened, parts }.run(Some(peer_bits), session)?;
    send_differences(MOVE, results, &gate.widths(), shares.bases, shares.targets, session)
}

/// The server's online part: its shares of the results, one `[n]` for each value. The bytes of
/// `half` are the output of `deal`.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to this gate.
pub fn server_online(
    gate: &DealtGate,
    shares: ServerShares<'_>,
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let DealtHalf { prg, bytes } = half;
    if bytes.len() != gate.cost().material {
        let what = format!("{} bytes for a batch of gates, {} expected", bytes.len(), gate.cost().material);
        return Err(MpcError::Material { what });
    }
    let draws = (0..block::count(gate.n)).into_par_iter().map(|i| {
        let len = block::range(gate.n, i).len();
        std::mem::take(&mut ServerDraw::new(gate, len, &mut block::plane_stream(prg, i)).rho)
    });
    let draws: Vec<Vec<Vec<u64>>> = draws.collect();
    let (mut opened, mut parts) = (Vec::new(), Vec::new());
    let inputs = gate.inputs(shares.tested, shares.values);
    for (index, (share, width)) in inputs.zip(gate.opened()).enumerate() {
        let rho: Vec<u64> = draws.iter().flat_map(|rho| rho[index].iter().copied()).collect();
        let masked: Vec<u64> = share.iter().zip(&rho).map(|(s, r)| s.wrapping_add(*r) & low_mask(width)).collect();
        session.channel.send_packed(OPENED, &masked, width)?;
        opened.push(masked);
        parts.push(rho);
    }
    let mut results = Evaluation { gate, half: Half::Server { prg, bytes }, opened, parts }.run(None, session)?;
    add_differences(MOVE, &mut results, &gate.widths(), shares.bases, session)?;
    Ok(results)
}
