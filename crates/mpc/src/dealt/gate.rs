//! The gate: dealt, and evaluated by either party.

use rayon::prelude::*;
use tacit_arith::bits::{Bits, transpose};
use tacit_arith::prg::Prg;
use tacit_net::Tag;

use super::block::{self, ClientDraw, ServerDraw};
use super::table::{look_up, thermometer};
use super::{DealtGate, Exchanges, Value};
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, low_mask, planes};

const OPENED: Tag = Tag::new(0x0350, "masked values");
const BITS: Tag = Tag::new(0x0351, "masked bits of digits");
const SIGN: Tag = Tag::new(0x0352, "masked signs");
const MOVE: Tag = Tag::new(0x0353, "share difference");

/// The client's shares around a batch of gates, each `[n]`.
#[derive(Clone, Copy)]
pub struct ClientShares<'a> {
    /// Of the tested value.
    pub tested: &'a [u64],
    /// Of the values, in the gate's order; those of `Tested` and `MinusOne` are not looked at.
    pub values: &'a [&'a [u64]],
    /// Of what is added; may be fewer than values.
    pub bases: &'a [&'a [u64]],
    /// That it ends with, reduced into their rings.
    pub targets: &'a [&'a [u64]],
}

/// `value`, or its negative where the mask is all ones.
fn negate_if(value: u64, mask: u64) -> u64 {
    (value ^ mask).wrapping_sub(mask)
}

/// All ones where bit `i` of a plane is set.
fn mask(plane: &[u64], i: usize) -> u64 {
    (plane[i / 64] >> (i % 64) & 1).wrapping_neg()
}

fn xor(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// The client's shares of the values other than the tested one.
fn others<'a>(gate: &'a DealtGate, values: &'a [&'a [u64]]) -> impl Iterator<Item = &'a [u64]> + 'a {
    let pairs = gate.values.iter().zip(values);
    pairs.filter(|(value, _)| matches!(value, Value::Other { .. })).map(|(_, share)| *share)
}

/// What the server gets for a batch of gates whose tested value the client shares as `tested` and whose
/// other values as `values` (see [`ClientShares`]): the difference between what the gates need and what both
/// parties draw from their streams. Deterministic.
#[must_use]
pub fn deal(gate: &DealtGate, tested: &[u64], values: &[&[u64]], client: &Prg, server: &Prg) -> Vec<u8> {
    let blocks: Vec<Vec<u8>> = (0..block::count(gate.n))
        .into_par_iter()
        .map(|index| {
            let range = block::range(gate.n, index);
            let shares: Vec<&[u64]> = std::iter::once(tested).chain(others(gate, values)).collect();
            let shares: Vec<&[u64]> = shares.iter().map(|s| &s[range.clone()]).collect();
            let ours = ClientDraw::new(gate, range.len(), &mut client.fork(index as u64));
            let theirs = ServerDraw::new(gate, range.len(), &mut server.fork(index as u64));
            deal_block(gate, &shares, &ours, &theirs)
        })
        .collect();
    blocks.concat()
}

fn deal_block(gate: &DealtGate, shares: &[&[u64]], client: &ClientDraw, server: &ServerDraw) -> Vec<u8> {
    let (len, digits) = (shares[0].len(), gate.digits.len());
    let words = block::words(len);
    let secrets: Vec<Vec<u64>> = shares
        .iter()
        .zip(&server.rho)
        .zip(gate.opened())
        .map(|((c, rho), width)| c.iter().zip(rho).map(|(c, r)| r.wrapping_sub(*c) & low_mask(width)).collect())
        .collect();
    let bits = transpose::planes(&secrets[0], gate.width as usize);
    let mut planes = Vec::with_capacity(gate.planes() * words);
    let mut from = gate.drop as usize;
    for &m in &gate.digits {
        let digit: Vec<&[u64]> = bits[from..from + m as usize].iter().map(Bits::words).collect();
        planes.extend(thermometer(&digit, words));
        from += m as usize;
    }
    let sign = bits[gate.low_bits() as usize].words();
    planes.extend_from_slice(sign);
    let masks = xor(&client.masks, &server.masks);
    for &monomial in gate.terms.planes() {
        planes.extend(gate.terms.product(monomial, &masks, words));
    }
    let drawn = client.table.iter().chain(&client.sign).chain(&client.products);
    planes.iter_mut().zip(drawn).for_each(|(plane, share)| *plane ^= share);
    let beta = &masks[(2 * digits - 2) * words..];
    let mut columns = Columns { gate, secrets: &secrets, sign, client, out: Vec::new() };
    columns.term(&vec![u64::MAX; words], None, beta);
    for &monomial in gate.terms.arithmetic() {
        columns.term(&gate.terms.product(monomial, &masks, words), Some(beta), &[]);
    }
    if gate.extra() > 0 {
        columns.own(&server.rho[0], shares[0]);
    }
    let mut out = Vec::with_capacity(block::bytes(gate, len));
    block::write(gate, &planes, &columns.out, &mut out);
    out
}

/// The server's arithmetic columns while they are made.
struct Columns<'a> {
    gate: &'a DealtGate,
    secrets: &'a [Vec<u64>],
    sign: &'a [u64],
    client: &'a ClientDraw,
    out: Vec<Vec<u64>>,
}

impl Columns<'_> {
    fn push(&mut self, width: u32, value: impl Fn(usize) -> u64) {
        let ring = low_mask(width);
        let drawn = self.client.columns[self.out.len()].iter().enumerate();
        self.out.push(drawn.map(|(i, share)| value(i).wrapping_sub(*share) & ring).collect());
    }

    /// The columns of `T`: `beta` itself if it is given as `only`, else `(1 - 2 beta) M`.
    fn term(&mut self, product: &[u64], beta: Option<&[u64]>, only: &[u64]) {
        let (set, negative): (&[u64], &[u64]) = match beta {
            Some(beta) => (product, beta),
            None => (only, &[]),
        };
        let times = |value: u64, i: usize| {
            let sign = if negative.is_empty() { 0 } else { mask(negative, i) };
            negate_if(value, sign) & mask(set, i)
        };
        let (secrets, sign, mut other) = (self.secrets, self.sign, 1);
        self.push(self.gate.bit_width(), |i| times(1, i));
        for value in self.gate.values.clone() {
            match value {
                Value::Tested { wide } => {
                    self.push(wide, |i| times(secrets[0][i], i));
                    if wide > self.gate.width {
                        self.push(wide - self.gate.width, |i| times(mask(sign, i) & 1, i));
                    }
                }
                Value::Other { width } => {
                    self.push(width, |i| times(secrets[other][i], i));
                    other += 1;
                }
                Value::MinusOne { .. } => {}
            }
        }
    }

    /// What a widened value needs by itself: the wrap between `R` and its shares, and the sign of `R`.
    fn own(&mut self, rho: &[u64], c: &[u64]) {
        let (width, extra, secrets, sign) = (self.gate.width, self.gate.extra(), self.secrets, self.sign);
        self.push(extra, |i| wrap(rho[i], c[i], secrets[0][i], width));
        self.push(extra, |i| mask(sign, i) & 1);
    }
}

/// `(R - rho - (-c mod 2^n)) / 2^n`: 0 or -1.
pub(super) fn wrap(rho: u64, c: u64, secret: u64, width: u32) -> u64 {
    let sum = rho + (c.wrapping_neg() & low_mask(width));
    ((sum ^ secret) >> width & 1).wrapping_neg()
}

/// One party's state in one block.
struct Evaluation<'a> {
    role: Role,
    gate: &'a DealtGate,
    /// The public values, each `[len]`.
    opened: Vec<&'a [u64]>,
    /// The party's own part of `R` for each of them: `-c`, or `rho`.
    parts: Vec<Vec<u64>>,
    table: &'a [u64],
    sign: &'a [u64],
    masks: &'a [u64],
    products: &'a [u64],
    columns: &'a [Vec<u64>],
}

impl Evaluation<'_> {
    fn words(&self) -> usize {
        block::words(self.opened[0].len())
    }

    fn public(&self) -> u64 {
        if self.role == Role::Server { u64::MAX } else { 0 }
    }

    /// The party's share of what is opened first: planes `eq_1 .., lt_0 .., top`, all but the last masked
    /// (with one exchange the last one too). `top` is the bit if the lower digits do not decide.
    fn digits(&self) -> Vec<u64> {
        let (gate, words, count) = (self.gate, self.words(), self.gate.digits.len());
        let bits = transpose::planes(self.opened[0], gate.width as usize);
        let (mut eq, mut lt, mut top) = (Vec::new(), Vec::new(), Vec::new());
        let (mut table, mut from) = (self.table, gate.drop as usize);
        for (i, &m) in gate.digits.iter().enumerate() {
            let (entries, rest) = table.split_at(((1 << m) - 1) * words);
            let index: Vec<&[u64]> = bits[from..from + m as usize].iter().map(Bits::words).collect();
            let [at, before] = look_up(entries, &index, self.public(), words);
            (table, from) = (rest, from + m as usize);
            if i > 0 {
                eq.extend(xor(&at, &before));
            }
            // Where bits are dropped, equality counts as less: [u <= z] = [u - 1 < z].
            let less = if i == 0 && gate.drop > 0 { before } else { at };
            if i + 1 < count { lt.extend(less) } else { top = less }
        }
        // [y >= 0] = 1 ^ msb(xh) ^ msb(R) ^ lt.
        let sign = bits[gate.low_bits() as usize].words();
        for (w, top) in top.iter_mut().enumerate() {
            *top ^= self.sign[w] ^ (!sign[w] & self.public());
        }
        eq.extend(lt);
        eq.extend(top);
        let masked = gate.masked_bits() * words;
        eq[..masked].iter_mut().zip(self.masks).for_each(|(bit, mask)| *bit ^= mask);
        eq
    }

    /// The share of the sign, masked, from all that was opened: with two exchanges.
    fn masked_sign(&self, digits: &[u64], opened: &[u64]) -> Vec<u64> {
        let words = self.words();
        let at = self.gate.masked_bits() * words;
        let public = self.role == Role::Server;
        let mut sign = self.gate.terms.lower(opened, self.masks, self.products, words, public);
        sign.iter_mut().zip(&digits[at..]).zip(&self.masks[at..]).for_each(|((s, top), mask)| *s ^= top ^ mask);
        sign
    }

    /// The party's shares of `d X` for each value, from what was opened last: all digits' bits (one
    /// exchange), or the sign (two).
    fn multiply(&self, opened: &[u64]) -> Vec<Vec<u64>> {
        let (len, words) = (self.opened[0].len(), self.words());
        let (addend, factors) = match self.gate.exchanges {
            Exchanges::One => self.gate.terms.coefficients(opened, words, len),
            Exchanges::Two => {
                let bits: Vec<u64> = (0..len).map(|i| mask(opened, i) & 1).collect();
                let signs = bits.iter().map(|b| 1u64.wrapping_sub(2 * b)).collect();
                (bits, vec![signs])
            }
        };
        let (per_term, extra) = (self.gate.columns().0.len(), self.gate.extra());
        let (of_terms, own) = self.columns.split_at(per_term * self.gate.terms.count());
        let terms: Vec<&[Vec<u64>]> = of_terms.chunks(per_term).collect();
        let (mut column, mut other) = (1, 1);
        let mut results = Vec::with_capacity(self.gate.values.len());
        for value in &self.gate.values {
            let mut out = match value {
                Value::Tested { .. } => {
                    let wrapped = (extra > 0).then_some(column + 1);
                    let out = self.tested(&addend, &factors, &terms, (column, wrapped), own);
                    column += 1 + usize::from(extra > 0);
                    out
                }
                Value::Other { .. } => {
                    let out = self.shared(&addend, &factors, &terms, column, other);
                    (column, other) = (column + 1, other + 1);
                    out
                }
                Value::MinusOne { .. } => {
                    let ours = if self.role == Role::Server { u64::MAX } else { 0 };
                    let mut out: Vec<u64> = addend.iter().map(|a| (a & ours).wrapping_neg()).collect();
                    for (factor, term) in factors.iter().zip(&terms) {
                        let zipped = out.iter_mut().zip(factor).zip(&term[0]);
                        zipped.for_each(|((o, f), t)| *o = o.wrapping_sub(f.wrapping_mul(*t)));
                    }
                    out
                }
            };
            out.iter_mut().for_each(|v| *v &= low_mask(value.width()));
            results.push(out);
        }
        results
    }

    /// `d (xh - R)` for the `index`-th opened value; its shares of `T R` are column `column` of each term.
    fn shared(
        &self,
        addend: &[u64],
        factors: &[Vec<u64>],
        terms: &[&[Vec<u64>]],
        column: usize,
        index: usize,
    ) -> Vec<u64> {
        let (xh, part) = (self.opened[index], &self.parts[index]);
        let public = self.public();
        let whole = xh.iter().zip(part).zip(addend);
        let mut out: Vec<u64> = whole.map(|((x, r), a)| (x & public).wrapping_sub(*r).wrapping_mul(*a)).collect();
        for (factor, term) in factors.iter().zip(terms) {
            let zipped = out.iter_mut().zip(factor).zip(term[0].iter().zip(&term[column])).zip(xh);
            for (((o, f), (t, tr)), x) in zipped {
                *o = o.wrapping_add(f.wrapping_mul(t.wrapping_mul(*x).wrapping_sub(*tr)));
            }
        }
        out
    }

    /// The tested value times the bit; widened, `2^n (1 - msb xh) msb R` is added, and what `R` wraps by.
    fn tested(
        &self,
        addend: &[u64],
        factors: &[Vec<u64>],
        terms: &[&[Vec<u64>]],
        (column, wrapped): (usize, Option<usize>),
        own: &[Vec<u64>],
    ) -> Vec<u64> {
        let mut out = self.shared(addend, factors, terms, column, 0);
        let (Some(wrapped), [wrap, sign]) = (wrapped, own) else { return out };
        let width = self.gate.width;
        for (i, out) in out.iter_mut().enumerate() {
            let below = 1 ^ (self.opened[0][i] >> (width - 1) & 1);
            let mut high = addend[i].wrapping_mul((below * sign[i]).wrapping_sub(wrap[i]));
            for (factor, term) in factors.iter().zip(terms) {
                high = high.wrapping_add(factor[i].wrapping_mul(below * term[wrapped][i]));
            }
            *out = out.wrapping_add(high << width);
        }
        out
    }
}

/// A batch's planes as the messages have them, from those of its blocks.
fn joined(count: usize, n: usize, blocks: &[Vec<u64>]) -> Vec<Bits> {
    let plane = |p: usize| {
        let words = blocks.iter().flat_map(|b| b[p * (b.len() / count)..][..b.len() / count].iter().copied());
        let mut bits =
            Bits::from_words(n, words.collect()).expect("blocks have whole words, the last one ends the batch");
        bits.clear_tail();
        bits
    };
    (0..count).map(plane).collect()
}

/// A block's part of a batch's planes.
fn cut(planes: &[Bits], index: usize, len: usize) -> Vec<u64> {
    let (first, words) = (index * super::BLOCK / 64, block::words(len));
    planes.iter().flat_map(|p| p.words()[first..first + words].iter().copied()).collect()
}

/// The party's end of the openings; gives its shares of `d X`, value by value.
fn evaluate(
    gate: &DealtGate,
    blocks: &[Evaluation<'_>],
    theirs: Option<Vec<Bits>>,
    session: &mut Session<'_>,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let (n, count) = (gate.n, gate.masked_bits());
    let digits: Vec<Vec<u64>> = blocks.par_iter().map(Evaluation::digits).collect();
    let kept: Vec<Vec<u64>> = digits.iter().zip(blocks).map(|(d, block)| d[..count * block.words()].to_vec()).collect();
    let mine = joined(count, n, &kept);
    planes::send(session.channel, BITS, &mine)?;
    let theirs = match theirs {
        Some(theirs) => theirs,
        None => planes::recv(session.channel, BITS, count, n)?,
    };
    let mut opened: Vec<Bits> = mine.iter().zip(&theirs).map(|(a, b)| a.xor(b)).collect();
    if gate.exchanges == Exchanges::Two {
        let signs: Vec<Vec<u64>> = blocks
            .par_iter()
            .zip(&digits)
            .enumerate()
            .map(|(i, (block, digits))| block.masked_sign(digits, &cut(&opened, i, block.opened[0].len())))
            .collect();
        let mine = joined(1, n, &signs);
        planes::send(session.channel, SIGN, &mine)?;
        let theirs = planes::recv(session.channel, SIGN, 1, n)?;
        opened = vec![mine[0].xor(&theirs[0])];
    }
    let parts: Vec<Vec<Vec<u64>>> = blocks
        .par_iter()
        .enumerate()
        .map(|(i, block)| block.multiply(&cut(&opened, i, block.opened[0].len())))
        .collect();
    let value = |k: usize| parts.iter().flat_map(|part| part[k].iter().copied()).collect();
    Ok((0..gate.values.len()).map(value).collect())
}

/// The client's online part. `prg` is the stream that `deal` was given for it.
///
/// # Errors
/// Channel errors.
pub fn client_online(
    gate: &DealtGate,
    shares: ClientShares<'_>,
    prg: &Prg,
    session: &mut Session<'_>,
) -> Result<(), MpcError> {
    let own: Vec<&[u64]> = std::iter::once(shares.tested).chain(others(gate, shares.values)).collect();
    let mut opened = Vec::with_capacity(own.len());
    for width in gate.opened() {
        opened.push(session.channel.recv_packed(OPENED, gate.n, width)?);
    }
    let theirs = planes::recv(session.channel, BITS, gate.masked_bits(), gate.n)?;
    let drawn: Vec<ClientDraw> = (0..block::count(gate.n))
        .into_par_iter()
        .map(|i| ClientDraw::new(gate, block::range(gate.n, i).len(), &mut prg.fork(i as u64)))
        .collect();
    let widths = gate.opened();
    let blocks = drawn.iter().enumerate().map(|(i, drawn)| {
        let range = block::range(gate.n, i);
        let parts = own.iter().zip(&widths);
        let parts = parts.map(|(c, &w)| c[range.clone()].iter().map(|c| c.wrapping_neg() & low_mask(w)).collect());
        Evaluation {
            role: Role::Client,
            gate,
            opened: opened.iter().map(|x| &x[range.clone()]).collect(),
            parts: parts.collect(),
            table: &drawn.table,
            sign: &drawn.sign,
            masks: &drawn.masks,
            products: &drawn.products,
            columns: &drawn.columns,
        }
    });
    let blocks: Vec<Evaluation<'_>> = blocks.collect();
    let results = evaluate(gate, &blocks, Some(theirs), session)?;
    for (index, (mut share, target)) in results.into_iter().zip(shares.targets).enumerate() {
        share.iter_mut().zip(*target).for_each(|(z, r)| *z = z.wrapping_sub(*r));
        if let Some(base) = shares.bases.get(index) {
            share.iter_mut().zip(*base).for_each(|(z, b)| *z = z.wrapping_add(*b));
        }
        session.channel.send_packed(MOVE, &share, gate.values[index].width())?;
    }
    Ok(())
}

/// The server's online part: its shares of the results, one `[n]` for each value. `tested`, `values` and
/// `bases` are its shares as in [`ClientShares`]; `prg` is its stream and `given` what `deal` made.
///
/// # Errors
/// Channel errors; `Material` if `given` is not of this gate.
pub fn server_online(
    gate: &DealtGate,
    (tested, values, bases): (&[u64], &[&[u64]], &[&[u64]]),
    (prg, given): (&Prg, &[u8]),
    session: &mut Session<'_>,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let full = block::bytes(gate, super::BLOCK.min(gate.n));
    let halves: Vec<(ServerDraw, block::Given)> = (0..block::count(gate.n))
        .into_par_iter()
        .map(|i| {
            let len = block::range(gate.n, i).len();
            let bytes = given.get(i * full..i * full + block::bytes(gate, len));
            let bytes = bytes.ok_or_else(|| MpcError::Material { what: "a gate's part is cut off".into() })?;
            Ok((ServerDraw::new(gate, len, &mut prg.fork(i as u64)), block::read(gate, len, bytes)?))
        })
        .collect::<Result<_, MpcError>>()?;
    let own: Vec<&[u64]> = std::iter::once(tested).chain(others(gate, values)).collect();
    let mut opened = Vec::with_capacity(own.len());
    for (index, (share, width)) in own.iter().zip(gate.opened()).enumerate() {
        let rho = halves.iter().flat_map(|(drawn, _)| &drawn.rho[index]);
        let masked: Vec<u64> = share.iter().zip(rho).map(|(s, r)| s.wrapping_add(*r) & low_mask(width)).collect();
        session.channel.send_packed(OPENED, &masked, width)?;
        opened.push(masked);
    }
    let blocks = halves.iter().enumerate().map(|(i, (drawn, given))| Evaluation {
        role: Role::Server,
        gate,
        opened: opened.iter().map(|x| &x[block::range(gate.n, i)]).collect(),
        parts: drawn.rho.clone(),
        table: &given.table,
        sign: &given.sign,
        masks: &drawn.masks,
        products: &given.products,
        columns: &given.columns,
    });
    let blocks: Vec<Evaluation<'_>> = blocks.collect();
    let mut shares = evaluate(gate, &blocks, None, session)?;
    for (index, share) in shares.iter_mut().enumerate() {
        let width = gate.values[index].width();
        let moved = session.channel.recv_packed(MOVE, gate.n, width)?;
        if let Some(base) = bases.get(index) {
            share.iter_mut().zip(*base).for_each(|(z, b)| *z = z.wrapping_add(*b));
        }
        share.iter_mut().zip(moved).for_each(|(z, d)| *z = z.wrapping_add(d) & low_mask(width));
    }
    Ok(shares)
}
