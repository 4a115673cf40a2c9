//! A node of the comparison tree: the products of its operands, from products of random masks.
//!
//! With the groups below it numbered from the lowest, a node of two multiplies `eq_1` with `lt_0`
//! (and `eq_0`), a node of three `eq_2` with `lt_1`, and `eq_2 eq_1` with `lt_0` (and `eq_0`). An
//! operand x is opened as `x ^ m`, so the product of operands is a sum of products of masks with
//! public factors.
//!
//! Random OTs, one per direction, *define* the masks. The choice is a party's mask of the highest
//! `eq`. The XOR of the two strings that a party sends holds its masks of all other operands. The
//! products with the highest mask follow from the strings. A node of two needs no more and sends
//! nothing offline. A node of three takes a second OT each way. The mask of `eq_1` is its choice; the masks
//! of `lt_0` and `eq_0` and their products with the highest mask are its strings. Each way, a
//! choice bit and 2 or 4 string bits are corrected.

use tacit_arith::bits::Bits;
use tacit_net::{Tag, TrafficModel};

use crate::ot::{PlannedOts, ReceiverPlanes, SenderPlanes};
use crate::planes::{self, conditional_swap, xor_and};
use crate::{MpcError, Ots, Role, Session};

const CORRECTIONS: Tag = Tag::new(0x0315, "comparison tree corrections");

/// A party's shares of `lt` and `eq` of one group of digits (`eq` is absent for the lowest group).
pub(super) struct Leaf {
    pub(super) lt: Bits,
    eq: Option<Bits>,
}

impl Leaf {
    /// Builds a leaf from `[lt]` or `[lt, eq]`.
    pub(super) fn new(shares: Vec<Bits>) -> Self {
        let mut shares = shares.into_iter();
        Self { lt: shares.next().expect("a leaf has at least its `lt`"), eq: shares.next() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    /// Groups of digits that it joins: 2 or 3.
    pub(super) groups: usize,
    pub(super) with_eq: bool,
    /// Whether it is the highest group of a node above. That node only adds its `lt`, and holds the
    /// constant of this `lt` with its own constant.
    pub(super) folded: bool,
}

/// A party's masks and products in the order of the material, by operand. The lower operands are
/// `lt_0` and, where needed, `eq_0`.
///
/// Two groups: `a` of `eq_1`, `m` of `lt_0`, and `m, a m` of `eq_0`. Three: `a` of `eq_2`, `b` of
/// `lt_1`, `c, a c` of `eq_1`, `m, a m, c m` of `lt_0`, and `m, a m, c m, a c m` of `eq_0`. Last,
/// unless folded, the constant of `lt`: the addend that does not depend on the opened bits, here
/// and in the highest groups below.
impl Node {
    fn lower(self) -> usize {
        1 + usize::from(self.with_eq)
    }

    fn is_three(self) -> bool {
        self.groups == 3
    }

    /// OTs in each direction and element.
    pub(super) fn ots(self) -> usize {
        self.groups - 1
    }

    /// Bits that each party opens per element.
    pub(super) fn opened(self) -> usize {
        2 * (self.groups - 1) - 1 + self.lower()
    }

    pub(super) fn planes(self) -> usize {
        let (fixed, per_eq) = if self.is_three() { (7, 4) } else { (2, 2) };
        fixed + per_eq * usize::from(self.with_eq) + usize::from(!self.folded)
    }

    /// Bits that each party sends per element, offline.
    pub(super) fn corrections(self) -> usize {
        if self.is_three() { 1 + 2 * self.lower() } else { 0 }
    }

    /// Indices of the lower operands' masks among the planes.
    fn lower_masks(self) -> impl Iterator<Item = usize> {
        let (first, step) = if self.is_three() { (4, 3) } else { (1, 1) };
        (0..self.lower()).map(move |i| first + step * i)
    }

    /// The party's masked shares of the operands, for opening.
    pub(super) fn mask_operands(self, leaves: &[Leaf], planes: &[Bits]) -> Vec<Bits> {
        let mut operands = vec![(eq_of(leaves, self.groups - 1), &planes[0])];
        if self.is_three() {
            operands.extend([(&leaves[1].lt, &planes[1]), (eq_of(leaves, 1), &planes[2])]);
        }
        let lowest = [Some(&leaves[0].lt), self.with_eq.then(|| eq_of(leaves, 0))];
        operands.extend(lowest.into_iter().flatten().zip(self.lower_masks().map(|index| &planes[index])));
        operands.into_iter().map(|(share, mask)| share.xor(mask)).collect()
    }

    /// The party's shares of the node's `lt` and `eq`, from those of the highest group and the
    /// opened bits.
    pub(super) fn join(self, role: Role, highest: Leaf, opened: &[Bits], planes: &[Bits]) -> Leaf {
        let mut lt = highest.lt;
        if !self.folded {
            lt.xor_assign(planes.last().expect("a node has planes"));
        }
        let first = if self.is_three() { 3 } else { 1 };
        if self.is_three() {
            lt.xor_assign(&product(role, [&opened[0], &opened[1]], [&planes[0], &planes[1]]));
        }
        let mut products = self.lower_masks().zip(&opened[first..]).map(|(index, x)| match self.is_three() {
            true => product_of_three(role, [&opened[0], &opened[2], x], planes, index),
            false => product(role, [&opened[0], x], [&planes[0], &planes[index]]),
        });
        lt.xor_assign(&products.next().expect("a node has an `lt`"));
        let mut eq = products.next();
        if let Some(eq) = &mut eq {
            // The constant follows the mask of `eq_0` and its products with one mask.
            let constant = self.lower_masks().last().expect("`eq_0` has a mask") + if self.is_three() { 3 } else { 1 };
            eq.xor_assign(&planes[constant]);
        }
        Leaf { lt, eq }
    }
}

/// Share of `(x ^ a)(y ^ b) ^ a b` from the openings `x`, `y` and shares of `a`, `b`. The server adds the
/// public term.
fn product(role: Role, [x, y]: [&Bits; 2], [a, b]: [&Bits; 2]) -> Bits {
    let mut out = x.and(b);
    xor_and(&mut out, y, a);
    if role == Role::Server {
        xor_and(&mut out, x, y);
    }
    out
}

/// Share of `(x ^ a)(y ^ c)(z ^ m) ^ a c m`, with the masks of a node of three and of the lower operand at
/// `offset`.
fn product_of_three(role: Role, [x, y, z]: [&Bits; 3], planes: &[Bits], offset: usize) -> Bits {
    let [a, c, ac] = [0, 2, 3].map(|i| &planes[i]);
    let [m, am, cm] = [0, 1, 2].map(|i| &planes[offset + i]);
    // (x ^ a)(y ^ c) m + z (x ^ a)(y ^ c), without the constant.
    let mut out = x.and(cm);
    xor_and(&mut out, y, am);
    xor_and(&mut out, &x.and(y), m);
    let mut highest = product(role, [x, y], [a, c]);
    highest.xor_assign(ac);
    xor_and(&mut out, &highest, z);
    out
}

/// Share of `u v` for shared bits: from the party's shares, its received string as the receiver
/// with the choice `u`, and its first string as the sender of `v`.
fn cross(u: &Bits, v: &Bits, received: &Bits, m0: &Bits) -> Bits {
    let mut out = u.and(v);
    out.xor_assign(received);
    out.xor_assign(m0);
    out
}

/// Runs OTs of the same strings in both directions.
fn run_both_ways(
    session: &mut Session<'_>,
    ots: &mut Ots,
    n: usize,
    strings: usize,
) -> Result<(ReceiverPlanes, SenderPlanes), MpcError> {
    Ok(match session.role {
        Role::Client => {
            let received = ots.receiver.planes(session.channel, n, strings)?;
            (received, ots.sender.planes(session.channel, n, strings)?)
        }
        Role::Server => {
            let sent = ots.sender.planes(session.channel, n, strings)?;
            (ots.receiver.planes(session.channel, n, strings)?, sent)
        }
    })
}

struct Products {
    node: Node,
    /// Mask of the highest `eq`.
    a: Bits,
    /// Masks of all other operands, each with its product with `a`, in the order of opening.
    others: Vec<[Bits; 2]>,
    /// For a node of three: `c m, a c m` for each lower operand.
    with_c: Vec<[Bits; 2]>,
}

impl Products {
    /// The material, the constant last, as if no constant was folded.
    fn planes(self) -> Vec<Bits> {
        let Self { node, a, others, with_c } = self;
        let mut others = others.into_iter();
        let mut next = || others.next().expect("as many operands as the node has");
        let mut out = vec![a];
        let mut constant: Option<Bits> = None;
        if node.is_three() {
            let ([b, ab], [c, ac]) = (next(), next());
            out.extend([b, c, ac]);
            constant = Some(ab);
        }
        let mut with_c = with_c.into_iter();
        for lower in 0..node.lower() {
            let [m, am] = next();
            let mut planes = vec![m, am];
            planes.extend(with_c.next().into_iter().flatten());
            let last_product = planes.pop().expect("there are two and more");
            out.append(&mut planes);
            match (lower, &mut constant) {
                (0, Some(sum)) => sum.xor_assign(&last_product),
                (0, none) => *none = Some(last_product),
                _ => out.push(last_product),
            }
        }
        out.extend(constant);
        out
    }
}

/// A node of three whose second OTs wait for the peer's corrections.
struct Waiting {
    index: usize,
    received: ReceiverPlanes,
    sent: SenderPlanes,
}

pub(super) fn add_offline_traffic(nodes: &[Node], n: usize, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
    let mut corrections = 0;
    for node in nodes {
        for _ in 0..1 + usize::from(node.is_three()) {
            ots.client_receives(n, traffic);
            ots.server_receives(n, traffic);
        }
        corrections += node.corrections();
    }
    if corrections > 0 {
        traffic.down(corrections * n.div_ceil(8));
        traffic.up(corrections * n.div_ceil(8));
    }
}

/// The material of each node, the constant last, as if no constant was folded; `n` elements.
pub(super) fn offline(
    nodes: &[Node],
    n: usize,
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Vec<Bits>>, MpcError> {
    let (mut all_products, mut waiting, mut corrections) = (Vec::new(), Vec::new(), Vec::new());
    for (index, &node) in nodes.iter().enumerate() {
        let (received, sent) = run_both_ways(session, ots, n, node.opened() - 1)?;
        let a = received.choice;
        let mut others = Vec::new();
        for (received, (m0, m1)) in received.m.iter().zip(sent.m0.iter().zip(&sent.m1)) {
            let mask = m0.xor(m1);
            let with_a = cross(&a, &mask, received, m0);
            others.push([mask, with_a]);
        }
        if node.is_three() {
            let (received, sent) = run_both_ways(session, ots, n, 2 * node.lower())?;
            corrections.push(received.choice.xor(&others[1][0]));
            for (i, string) in others[2..].iter().flatten().enumerate() {
                corrections.push(sent.m0[i].xor(&sent.m1[i]).xor(string));
            }
            waiting.push(Waiting { index, received, sent });
        }
        all_products.push(Products { node, a, others, with_c: Vec::new() });
    }
    if !waiting.is_empty() {
        let sends_first = session.role == Role::Server;
        let peer_corrections = planes::exchange(session.channel, CORRECTIONS, &corrections, n, sends_first)?;
        let mut peer_corrections = peer_corrections.into_iter();
        for Waiting { index, received, mut sent } in waiting {
            let mut next = || peer_corrections.next().expect("both parties send as many corrections");
            let flip = next();
            let entry = &mut all_products[index];
            let c = &entry.others[1][0];
            let products = entry.others[2..].iter().flatten().enumerate().map(|(i, string)| {
                conditional_swap(&mut sent.m0[i], &mut sent.m1[i], &flip);
                let mut share = received.m[i].clone();
                xor_and(&mut share, c, &next());
                cross(c, string, &share, &sent.m0[i])
            });
            let products: Vec<Bits> = products.collect();
            entry.with_c = products.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
        }
    }
    Ok(all_products.into_iter().map(Products::planes).collect())
}

fn eq_of(leaves: &[Leaf], i: usize) -> &Bits {
    leaves[i].eq.as_ref().expect("only the lowest group has no `eq`, and nothing multiplies it")
}
