//! Sign test (DReLU) of additively shared values whose client share is known offline: [CF2-20] sec. 3-4 and [Chee22] sec. 5,
//! with both phases pulled apart.
//!
//! Computes shares of `[y >= 0]` for `y = s + c mod 2^w`, `|y| < 2^(w-1)`; exact. With `lt = [!c < s]` on the low `w - 1`
//! bits, `msb(y) = msb(s) ^ msb(c) ^ lt`. The `w - 1` bits are cut into digits of up to `radix` bits; each digit is one
//! 1-of-2^m OT whose choice (the client's digit) is derandomised offline, so that online the server sends one message with
//! `2^m - 1` masked entries of `(lt, eq)`. A binary tree of AND gates joins the digits; the two gates of a node share the
//! operand `eq` of the higher digit.
//!
//! Masks of the 1-of-2^m OT: entry `j` is masked by the XOR over the digit's bit positions `p` of chunk `j without bit p` of
//! the hashed key `K[p][bit p of j]`. Chunk `(p, j)` is used by entry `j` only, and for every `j` other than the choice at least one
//! of its chunks comes from a key the receiver lacks: all other entries stay uniform and independent.
//!
//! Cost per element (m-bit digits, D of them): offline `w - 1` ROTs with the client as receiver for the leaves and
//! `D - 1` in each direction for the tree, `w - 1` bits client to server; online the leaf message of
//! `2 (2^m - 1)` bits a digit (half of that for the lowest; `1` bit for `m = 1`) and `3 (D - 1) - levels` opened bits each way
//! in `ceil(log2 D)` exchanges.

use tacit_arith::bits::{Bits, transpose};
use tacit_net::Tag;

use super::tree::{Leaf, Tree};
use crate::codec::{Reader, Writer};
use crate::planes::{self, bit_plane, conditional_swap, one_hot, select, xor_and};
use crate::{MpcError, Session};

const CORRECTIONS: Tag = Tag::new(0x0310, "comparison choices");
const LEAVES: Tag = Tag::new(0x0311, "comparison leaves");

/// Public shape of a batch of sign tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSpec {
    n: usize,
    width: u32,
    digits: Vec<u32>,
}

impl CompareSpec {
    /// `n` sign tests in a ring of `width` bits (2 to 64) with digits of up to `radix` bits (1 to 4). The lowest digit takes
    /// what is left over.
    pub fn new(n: usize, width: u32, radix: u32) -> Self {
        let (bits, radix) = (width.max(2) - 1, radix.clamp(1, 4));
        let mut digits = Vec::new();
        if bits % radix != 0 {
            digits.push(bits % radix);
        }
        digits.resize(bits.div_ceil(radix) as usize, radix);
        Self { n, width: bits + 1, digits }
    }

    /// Number of elements.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Ring width, in bits.
    pub fn width(&self) -> u32 {
        self.width
    }

    pub(super) fn digits(&self) -> impl Iterator<Item = Digit> + '_ {
        let mut from = 0;
        self.digits.iter().enumerate().map(move |(i, &bits)| {
            from += bits;
            Digit { from: from - bits, bits, with_eq: i > 0 }
        })
    }

    pub(super) fn tree(&self) -> Tree {
        Tree::new(self.n, self.digits.len())
    }

    /// Planes of the leaf message.
    fn leaf_planes(&self) -> usize {
        self.digits().map(|d| d.functions() * (d.entries() - 1)).sum()
    }

    /// Bytes of the leaf message, server to client, online.
    pub fn leaf_bytes(&self) -> usize {
        self.leaf_planes() * self.n.div_ceil(8)
    }

    /// Bytes of the choice corrections, client to server, offline.
    pub fn correction_bytes(&self) -> usize {
        (self.width as usize - 1) * self.n.div_ceil(8)
    }

    /// Bytes of the stored material: (client, server).
    pub fn material_bytes(&self) -> (usize, usize) {
        let client: usize = self.digits().map(Digit::functions).sum();
        let server: usize = self.digits().map(|d| d.entries() * d.functions()).sum();
        let (tree, plane) = (self.tree().planes(), self.n.div_ceil(8));
        ((client + tree) * plane, (server + tree) * plane)
    }

    /// Random OTs used: (client is receiver, server is receiver).
    pub fn rots(&self) -> (usize, usize) {
        let tree = self.n * self.tree().nodes();
        (self.n * (self.width as usize - 1) + tree, tree)
    }
}

/// One digit of the compared numbers: bits `from .. from + bits`.
#[derive(Clone, Copy)]
pub(super) struct Digit {
    from: u32,
    bits: u32,
    with_eq: bool,
}

impl Digit {
    fn entries(self) -> usize {
        1 << self.bits
    }

    /// Bits transferred by OT per entry: `lt`, and `eq` where it is needed and not a local XOR.
    fn functions(self) -> usize {
        if self.with_eq && self.bits > 1 { 2 } else { 1 }
    }

    /// String length of each of the digit's OTs, in bits.
    fn string_bits(self) -> usize {
        self.functions() << (self.bits - 1)
    }

    /// Chunk of position `p` that belongs to entry `j`: `j` without its bit `p`.
    fn chunk(j: usize, p: u32) -> usize {
        (j & ((1 << p) - 1)) | ((j >> (p + 1)) << p)
    }

    /// For each entry of the client's digit the planes of `lt` (and `eq`) as functions of the server's digit.
    fn tables(self, server: &[Bits]) -> Vec<Vec<Bits>> {
        let eq = one_hot(server);
        let mut lt = vec![Bits::zeros(server[0].len()); eq.len()];
        for j in (0..eq.len() - 1).rev() {
            lt[j] = lt[j + 1].xor(&eq[j + 1]);
        }
        let pairs = lt.into_iter().zip(eq);
        pairs.map(|(l, e)| if self.functions() == 2 { vec![l, e] } else { vec![l] }).collect()
    }
}

/// The client's numbers: the complement of its share without the top bit, as planes, lowest first.
fn client_planes(spec: &CompareSpec, c: &[u64]) -> Vec<Bits> {
    let mut planes = transpose::planes(c, spec.width as usize - 1);
    for plane in &mut planes {
        *plane = plane.not();
    }
    planes
}

/// The client's material for a batch of sign tests.
pub struct ClientCompare {
    pads: Vec<Bits>,
    tree: Vec<Bits>,
}

/// The server's material for a batch of sign tests.
pub struct ServerCompare {
    /// For each digit, for each entry (first as is, others XOR first), for each function.
    pads: Vec<Bits>,
    tree: Vec<Bits>,
}

impl ClientCompare {
    /// Offline, with the client's share `c` (`[n]`, in `[0, 2^width)`).
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(spec: &CompareSpec, c: &[u64], session: &mut Session) -> Result<Self, MpcError> {
        let numbers = client_planes(spec, c);
        let (mut pads, mut corrections) = (Vec::new(), Vec::with_capacity(numbers.len()));
        for digit in spec.digits() {
            let mut ots = Vec::new();
            for _ in 0..digit.bits {
                ots.push(session.receiver.planes(&mut session.channel, spec.n, digit.string_bits())?);
            }
            for (p, ot) in ots.iter().enumerate() {
                corrections.push(ot.choice.xor(&numbers[digit.from as usize + p]));
            }
            for f in 0..digit.functions() {
                let mut pad = Bits::zeros(spec.n);
                for (p, ot) in ots.iter().enumerate() {
                    let others: Vec<&Bits> =
                        ots.iter().enumerate().filter(|(q, _)| *q != p).map(|(_, o)| &o.choice).collect();
                    let chunks = ot.m.iter().skip(f).step_by(digit.functions()).cloned().collect();
                    if let Some(chunk) = select(chunks, &others) {
                        pad.xor_assign(&chunk);
                    }
                }
                pads.push(pad);
            }
        }
        planes::send(&mut session.channel, CORRECTIONS, &corrections)?;
        Ok(Self { pads, tree: spec.tree().offline(session)? })
    }

    /// Online: the client's share of `[y >= 0]`. `c` is the share given to `offline`.
    ///
    /// # Errors
    /// Channel errors.
    pub fn online(self, spec: &CompareSpec, c: &[u64], session: &mut Session) -> Result<Bits, MpcError> {
        let numbers = client_planes(spec, c);
        let message = planes::recv(&mut session.channel, LEAVES, spec.leaf_planes(), spec.n)?;
        let (mut message, mut pads) = (message.iter(), self.pads.into_iter());
        let mut leaves = Vec::new();
        for digit in spec.digits() {
            let number = &numbers[digit.from as usize..(digit.from + digit.bits) as usize];
            let mut shares: Vec<Bits> = pads.by_ref().take(digit.functions()).collect();
            for entry in &one_hot(number)[1..] {
                for share in &mut shares {
                    if let Some(plane) = message.next() {
                        xor_and(share, entry, plane);
                    }
                }
            }
            if digit.with_eq && digit.bits == 1 {
                shares.push(number[0].clone());
            }
            leaves.push(Leaf::new(shares));
        }
        let lt = spec.tree().online(leaves, self.tree, session)?;
        Ok(lt.xor(&bit_plane(c, spec.width - 1)))
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        out.planes(&self.pads);
        out.planes(&self.tree);
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &CompareSpec, from: &mut Reader<'_>) -> Result<Self, MpcError> {
        let pads = from.planes(spec.digits().map(Digit::functions).sum(), spec.n)?;
        Ok(Self { pads, tree: from.planes(spec.tree().planes(), spec.n)? })
    }
}

impl ServerCompare {
    /// Offline; independent of the server's values.
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(spec: &CompareSpec, session: &mut Session) -> Result<Self, MpcError> {
        let mut pads: Vec<Vec<Vec<Bits>>> = Vec::new();
        for digit in spec.digits() {
            let mut ots = Vec::new();
            for _ in 0..digit.bits {
                ots.push(session.sender.planes(&mut session.channel, spec.n, digit.string_bits())?);
            }
            pads.push((0..digit.entries()).map(|j| entry_pads(digit, spec.n, j, &ots)).collect());
        }
        let mut corrections =
            planes::recv(&mut session.channel, CORRECTIONS, spec.width as usize - 1, spec.n)?.into_iter();
        for (digit, entries) in spec.digits().zip(&mut pads) {
            for (p, swap) in corrections.by_ref().take(digit.bits as usize).enumerate() {
                swap_entries(entries, 1 << p, &swap);
            }
            if let Some((first, others)) = entries.split_first_mut() {
                for (entry, base) in others.iter_mut().flat_map(|e| e.iter_mut().zip(first.iter())) {
                    entry.xor_assign(base);
                }
            }
        }
        let pads = pads.into_iter().flatten().flatten().collect();
        Ok(Self { pads, tree: spec.tree().offline(session)? })
    }

    /// Online, first message: leaves for the server's share `s` (`[n]`, in `[0, 2^width)`). Follow with `finish`.
    ///
    /// # Errors
    /// Channel errors.
    pub fn start(self, spec: &CompareSpec, s: &[u64], session: &mut Session) -> Result<StartedCompare, MpcError> {
        let numbers = transpose::planes(s, spec.width as usize - 1);
        let mut pads = self.pads.into_iter();
        let (mut message, mut leaves) = (Vec::with_capacity(spec.leaf_planes()), Vec::new());
        for digit in spec.digits() {
            let number = &numbers[digit.from as usize..(digit.from + digit.bits) as usize];
            let tables = digit.tables(number);
            let mut shares: Vec<Bits> = pads.by_ref().take(digit.functions()).collect();
            for entry in &tables[1..] {
                for (value, base) in entry.iter().zip(&tables[0]) {
                    let mut plane = value.xor(base);
                    if let Some(pad) = pads.next() {
                        plane.xor_assign(&pad);
                    }
                    message.push(plane);
                }
            }
            for (share, base) in shares.iter_mut().zip(&tables[0]) {
                share.xor_assign(base);
            }
            if digit.with_eq && digit.bits == 1 {
                shares.push(number[0].not());
            }
            leaves.push(Leaf::new(shares));
        }
        planes::send(&mut session.channel, LEAVES, &message)?;
        Ok(StartedCompare { leaves, tree: self.tree, top: bit_plane(s, spec.width - 1).not() })
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        out.planes(&self.pads);
        out.planes(&self.tree);
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &CompareSpec, from: &mut Reader<'_>) -> Result<Self, MpcError> {
        let pads = from.planes(spec.digits().map(|d| d.entries() * d.functions()).sum(), spec.n)?;
        Ok(Self { pads, tree: from.planes(spec.tree().planes(), spec.n)? })
    }
}

/// A server's sign test whose leaf message has been sent.
pub struct StartedCompare {
    leaves: Vec<Leaf>,
    tree: Vec<Bits>,
    top: Bits,
}

impl StartedCompare {
    /// Online, the rest: the server's share of `[y >= 0]`.
    ///
    /// # Errors
    /// Channel errors.
    pub fn finish(self, spec: &CompareSpec, session: &mut Session) -> Result<Bits, MpcError> {
        let lt = spec.tree().online(self.leaves, self.tree, session)?;
        Ok(lt.xor(&self.top))
    }
}

fn entry_pads(digit: Digit, n: usize, j: usize, ots: &[crate::ot::SenderPlanes]) -> Vec<Bits> {
    let functions = digit.functions();
    let mut pads = vec![Bits::zeros(n); functions];
    for (p, ot) in ots.iter().enumerate() {
        let key = if j >> p & 1 == 1 { &ot.m1 } else { &ot.m0 };
        let first = Digit::chunk(j, p as u32) * functions;
        for (pad, chunk) in pads.iter_mut().zip(&key[first..]) {
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
