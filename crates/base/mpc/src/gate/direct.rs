//! Comparison leaves by 1-of-2^m OT: the client's digit is the choice, derandomised offline; online the
//! server sends `2^m - 1` masked entries of `(lt, eq)` per digit.
//!
//! Masks: entry `j` is masked by the XOR over the digit's bit positions `p` of chunk `j without bit p` of the
//! hashed key `K[p][bit p of j]`. Only entry `j` uses chunk `(p, j)`. Every entry other than the choice has a
//! chunk from a key that the receiver lacks, so all other entries stay uniform and independent.
//!
//! Cost per digit of m bits: m ROTs (client receives), m bits client to server offline, and `2 (2^m - 1)`
//! bits server to client online. The lowest digit takes half of these bits. A digit with `m = 1` takes 1
//! bit, since its `eq` is a local XOR.

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use super::node::Leaf;
use super::spec::{CompareSpec, Digit};
use crate::ot::SenderPlanes;
use crate::planes::{self, conditional_swap, mux, one_hot, xor_and};
use crate::{MpcError, Ots, Session};

const CHOICES: Tag = Tag::new(0x0310, "comparison choices");

/// Entries of a digit's table: one for each value of the digit.
fn entries(digit: Digit) -> usize {
    1 << digit.bits
}

/// Bits transferred by OT per entry: `lt`, and `eq` where needed and not a local XOR.
fn functions(digit: Digit) -> usize {
    if digit.with_eq && digit.bits > 1 { 2 } else { 1 }
}

pub(super) fn client_planes(digit: Digit) -> usize {
    functions(digit)
}

/// Planes of the server's material: for each entry, for each function. The first entry is stored
/// plain, the others as XOR with the first.
pub(super) fn server_planes(digit: Digit) -> usize {
    entries(digit) * functions(digit)
}

pub(super) fn message_planes(digit: Digit) -> usize {
    (entries(digit) - 1) * functions(digit)
}

/// Chunk of position `p` that belongs to entry `j`: `j` without its bit `p`.
fn chunk(j: usize, p: usize) -> usize {
    (j & ((1 << p) - 1)) | ((j >> (p + 1)) << p)
}

/// The client's offline part: chooses its entries by OT. Returns the planes of its material.
pub(super) fn client_offline(
    spec: &CompareSpec,
    numbers: &[Bits],
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Bits>, MpcError> {
    let (mut pads, mut choices) = (Vec::new(), Vec::with_capacity(numbers.len()));
    for digit in spec.digits() {
        let mut keys = Vec::new();
        for _ in 0..digit.bits {
            let bits = functions(digit) << (digit.bits - 1);
            keys.push(ots.receiver.planes(session.channel, spec.n, bits)?);
        }
        choices.extend(keys.iter().zip(digit.select(numbers)).map(|(ot, number)| ot.choice.xor(number)));
        for f in 0..functions(digit) {
            let mut pad = Bits::zeros(spec.n);
            for (p, ot) in keys.iter().enumerate() {
                let others = keys.iter().enumerate().filter(|(q, _)| *q != p);
                let others: Vec<&Bits> = others.map(|(_, o)| &o.choice).collect();
                let chunks = ot.m.iter().skip(f).step_by(functions(digit)).cloned().collect();
                pad.xor_assign(&mux(chunks, &others));
            }
            pads.push(pad);
        }
    }
    planes::send(session.channel, CHOICES, &choices)?;
    Ok(pads)
}

pub(super) fn server_offline(
    spec: &CompareSpec,
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Bits>, MpcError> {
    let mut pads: Vec<Vec<Vec<Bits>>> = Vec::new();
    for digit in spec.digits() {
        let mut keys = Vec::new();
        for _ in 0..digit.bits {
            let bits = functions(digit) << (digit.bits - 1);
            keys.push(ots.sender.planes(session.channel, spec.n, bits)?);
        }
        pads.push((0..entries(digit)).map(|j| entry_pads(digit, spec.n, j, &keys)).collect());
    }
    let choices = planes::recv(session.channel, CHOICES, spec.width as usize - 1, spec.n)?;
    let mut choices = choices.into_iter();
    for (digit, entries) in spec.digits().zip(&mut pads) {
        for (p, swap) in choices.by_ref().take(digit.bits as usize).enumerate() {
            swap_entries(entries, 1 << p, &swap);
        }
        let (first, others) = entries.split_first_mut().expect("a digit has at least two entries");
        for (entry, base) in others.iter_mut().flat_map(|e| e.iter_mut().zip(first.iter())) {
            entry.xor_assign(base);
        }
    }
    Ok(pads.into_iter().flatten().flatten().collect())
}

/// The client's shares of a digit's functions, from its pads and the digit's part of the message.
pub(super) fn client_leaf(digit: Digit, numbers: &[Bits], pads: Vec<Bits>, message: &[Bits]) -> Leaf {
    let (number, mut shares) = (digit.select(numbers), pads);
    let mut message = message.iter();
    for entry in &one_hot(number)[1..] {
        for (share, plane) in shares.iter_mut().zip(message.by_ref()) {
            xor_and(share, entry, plane);
        }
    }
    if digit.with_eq && digit.bits == 1 {
        shares.push(number[0].clone());
    }
    Leaf::new(shares)
}

/// The server's shares of a digit's functions, and the digit's part of the message.
pub(super) fn server_leaf(digit: Digit, numbers: &[Bits], pads: &[Bits]) -> (Leaf, Vec<Bits>) {
    let (number, functions) = (digit.select(numbers), functions(digit));
    let tables = tables(digit, number);
    let (first, others) = pads.split_at(functions);
    let mut message = Vec::with_capacity(others.len());
    for (entry, pads) in tables[1..].iter().zip(others.chunks(functions)) {
        for ((value, base), pad) in entry.iter().zip(&tables[0]).zip(pads) {
            let mut plane = value.xor(base);
            plane.xor_assign(pad);
            message.push(plane);
        }
    }
    let mut shares: Vec<Bits> = first.iter().zip(&tables[0]).map(|(pad, base)| pad.xor(base)).collect();
    if digit.with_eq && digit.bits == 1 {
        shares.push(number[0].not());
    }
    (Leaf::new(shares), message)
}

/// For each value of the client's digit the planes of `lt` (and `eq`) as functions of the server's digit.
fn tables(digit: Digit, server: &[Bits]) -> Vec<Vec<Bits>> {
    let eq = one_hot(server);
    let mut lt = vec![Bits::zeros(server[0].len()); eq.len()];
    for j in (0..eq.len() - 1).rev() {
        lt[j] = lt[j + 1].xor(&eq[j + 1]);
    }
    let pairs = lt.into_iter().zip(eq);
    pairs.map(|(l, e)| if functions(digit) == 2 { vec![l, e] } else { vec![l] }).collect()
}

/// The pads of entry `j`: the XOR of its chunks of the keys that its bits choose.
fn entry_pads(digit: Digit, n: usize, j: usize, ots: &[SenderPlanes]) -> Vec<Bits> {
    let mut pads = vec![Bits::zeros(n); functions(digit)];
    for (p, ot) in ots.iter().enumerate() {
        let key = if j >> p & 1 == 1 { &ot.m1 } else { &ot.m0 };
        for (pad, chunk) in pads.iter_mut().zip(&key[chunk(j, p) * functions(digit)..]) {
            pad.xor_assign(chunk);
        }
    }
    pads
}

/// Swaps entries that differ in the index bit `stride`, element by element where `swap` is set.
fn swap_entries(entries: &mut [Vec<Bits>], stride: usize, swap: &Bits) {
    for block in entries.chunks_mut(2 * stride) {
        let (low, high) = block.split_at_mut(stride);
        for (a, b) in low.iter_mut().zip(high).flat_map(|(a, b)| a.iter_mut().zip(b)) {
            conditional_swap(a, b, swap);
        }
    }
}
