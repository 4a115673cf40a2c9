//! A node of the comparison tree: the products of its operands, from products of random masks.
//!
//! With the groups below it numbered from the lowest, a node of two multiplies `eq_1` with `lt_0` (and
//! `eq_0`), a node of three `eq_2` with `lt_1`, and `eq_2 eq_1` with `lt_0` (and `eq_0`). An operand x is
//! opened as `x ^ m`, so that the product of operands is a sum of products of masks with public factors.
//!
//! The masks are *defined* by random OTs with one direction each: the choice is a party's mask of the highest
//! `eq`, the XOR of the two strings it sends is its masks of all other operands, and the products with the
//! highest mask follow from the strings. That is all for a node of two, which sends nothing offline. A node
//! of three takes a second OT each way, with the mask of `eq_1` as choice and the masks of `lt_0` and `eq_0`
//! and their products with the highest mask as strings: a choice bit and 2 or 4 string bits are corrected
//! each way.

use tacit_arith::bits::Bits;
use tacit_net::{Channel, Tag, Talk};

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
    /// From `[lt]` or `[lt, eq]`.
    pub(super) fn new(shares: Vec<Bits>) -> Self {
        let mut shares = shares.into_iter();
        Self { lt: shares.next().expect("a leaf has at least its `lt`"), eq: shares.next() }
    }
}

/// Public shape of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    /// Groups of digits that it joins: 2 or 3.
    pub(super) groups: usize,
    /// Its `eq` is needed.
    pub(super) with_eq: bool,
}

/// A party's masks and products in the order of the material, by operand. The lower operands are `lt_0` and,
/// where needed, `eq_0`.
///
/// Two groups: `a` of `eq_1`, then `m, a m` for each lower operand. Three: `a` of `eq_2`; `b, a b` of `lt_1`;
/// `c, a c` of `eq_1`; then `m, a m, c m, a c m` for each lower operand.
impl Node {
    /// Lower operands.
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

    /// Planes of a party's material.
    pub(super) fn planes(self) -> usize {
        if self.is_three() { 5 + 4 * self.lower() } else { 1 + 2 * self.lower() }
    }

    /// Bits that each party sends per element, offline.
    pub(super) fn corrections(self) -> usize {
        if self.is_three() { 1 + 2 * self.lower() } else { 0 }
    }

    /// Where the masks of the lower operands are among the planes.
    fn lower_masks(self) -> impl Iterator<Item = usize> {
        let (first, step) = if self.is_three() { (5, 4) } else { (1, 2) };
        (0..self.lower()).map(move |i| first + step * i)
    }

    /// The party's shares of the operands, masked: what it opens.
    pub(super) fn masked(self, below: &[Leaf], planes: &[Bits]) -> Vec<Bits> {
        let eq = |i: usize| below[i].eq.as_ref().expect("only the lowest group has no `eq`, and nothing multiplies it");
        let mut operands = vec![(eq(self.groups - 1), &planes[0])];
        if self.is_three() {
            operands.extend([(&below[1].lt, &planes[1]), (eq(1), &planes[3])]);
        }
        let lowest = [Some(&below[0].lt), self.with_eq.then(|| eq(0))];
        operands.extend(lowest.into_iter().flatten().zip(self.lower_masks().map(|at| &planes[at])));
        operands.into_iter().map(|(share, mask)| share.xor(mask)).collect()
    }

    /// The party's shares of the node's `lt` and `eq`, from those of the highest group and what was opened.
    pub(super) fn join(self, role: Role, highest: Leaf, opened: &[Bits], planes: &[Bits]) -> Leaf {
        let mut lt = highest.lt;
        let first = if self.is_three() { 3 } else { 1 };
        let mut products = self.lower_masks().zip(&opened[first..]).map(|(at, x)| match self.is_three() {
            true => product_of_three(role, [&opened[0], &opened[2], x], planes, at),
            false => product(role, [&opened[0], x], [&planes[0], &planes[at], &planes[at + 1]]),
        });
        lt.xor_assign(&products.next().expect("a node has an `lt`"));
        if self.is_three() {
            lt.xor_assign(&product(role, [&opened[0], &opened[1]], [&planes[0], &planes[1], &planes[2]]));
        }
        Leaf { lt, eq: products.next() }
    }
}

/// Share of `(x ^ a)(y ^ b)` from the openings `x`, `y` and shares of `a`, `b`, `ab`. The server adds the
/// public term.
fn product(role: Role, [x, y]: [&Bits; 2], [a, b, ab]: [&Bits; 3]) -> Bits {
    let mut out = ab.clone();
    xor_and(&mut out, x, b);
    xor_and(&mut out, y, a);
    if role == Role::Server {
        xor_and(&mut out, x, y);
    }
    out
}

/// Share of `(x ^ a)(y ^ c)(z ^ m)`, with the masks of a node of three and of the lower operand at `at`.
fn product_of_three(role: Role, [x, y, z]: [&Bits; 3], planes: &[Bits], at: usize) -> Bits {
    let [a, c, ac] = [0, 3, 4].map(|i| &planes[i]);
    let [m, am, cm, acm] = [0, 1, 2, 3].map(|i| &planes[at + i]);
    // (x ^ a)(y ^ c) m + z (x ^ a)(y ^ c)
    let mut out = acm.clone();
    xor_and(&mut out, x, cm);
    xor_and(&mut out, y, am);
    xor_and(&mut out, &x.and(y), m);
    xor_and(&mut out, &product(role, [x, y], [a, c, ac]), z);
    out
}

/// Share of `u v` for shared bits, from the party's shares, what it received as the receiver with the choice
/// `u`, and its first string as the sender of `v`.
fn cross(u: &Bits, v: &Bits, received: &Bits, m0: &Bits) -> Bits {
    let mut out = u.and(v);
    out.xor_assign(received);
    out.xor_assign(m0);
    out
}

/// OTs of the same strings in both directions.
fn both(
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

/// A node of three whose second OTs wait for the peer's corrections.
struct Waiting {
    /// Where its planes start.
    at: usize,
    node: Node,
    received: ReceiverPlanes,
    sent: SenderPlanes,
}

/// What [`offline`] says.
pub(super) fn talk_offline(nodes: &[Node], n: usize, ots: &mut PlannedOts, talk: &mut Talk) {
    let mut corrections = 0;
    for node in nodes {
        for _ in 0..1 + usize::from(node.is_three()) {
            ots.client_receives(n, talk);
            ots.server_receives(n, talk);
        }
        corrections += node.corrections();
    }
    if corrections > 0 {
        talk.down(corrections * n.div_ceil(8));
        talk.up(corrections * n.div_ceil(8));
    }
}

/// The material of nodes, one after the other; `n` elements.
pub(super) fn offline(
    nodes: &[Node],
    n: usize,
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Bits>, MpcError> {
    let (mut out, mut waiting, mut mine) = (Vec::new(), Vec::new(), Vec::new());
    for &node in nodes {
        let at = out.len();
        let others = node.opened() - 1;
        let (received, sent) = both(session, ots, n, others)?;
        let a = received.choice;
        out.push(a.clone());
        for i in 0..others {
            let mask = sent.m0[i].xor(&sent.m1[i]);
            let with_a = cross(&a, &mask, &received.m[i], &sent.m0[i]);
            out.extend([mask, with_a]);
            if node.is_three() && i >= 2 {
                // For the products with `c`, which come last.
                out.extend([Bits::zeros(n), Bits::zeros(n)]);
            }
        }
        if node.is_three() {
            let (received, sent) = both(session, ots, n, 2 * node.lower())?;
            mine.push(received.choice.xor(&out[at + 3]));
            let strings = node.lower_masks().flat_map(|m| [m, m + 1]);
            for (i, string) in strings.enumerate() {
                mine.push(sent.m0[i].xor(&sent.m1[i]).xor(&out[at + string]));
            }
            waiting.push(Waiting { at, node, received, sent });
        }
    }
    if waiting.is_empty() {
        return Ok(out);
    }
    let mut theirs = exchange(session, &mine, n)?.into_iter();
    for Waiting { at, node, received, mut sent } in waiting {
        let mut next = || theirs.next().expect("both parties send as many corrections");
        let flip = next();
        let c = out[at + 3].clone();
        let strings = node.lower_masks().flat_map(|m| [m, m + 1]);
        for (i, string) in strings.enumerate() {
            conditional_swap(&mut sent.m0[i], &mut sent.m1[i], &flip);
            let mut share = received.m[i].clone();
            xor_and(&mut share, &c, &next());
            out[at + string + 2] = cross(&c, &out[at + string], &share, &sent.m0[i]);
        }
    }
    Ok(out)
}

/// Sends planes and receives as many; the server speaks first.
fn exchange(session: &mut Session<'_>, mine: &[Bits], n: usize) -> Result<Vec<Bits>, MpcError> {
    let send = |channel: &mut Channel| planes::send(channel, CORRECTIONS, mine);
    if session.role == Role::Server {
        send(session.channel)?;
    }
    let theirs = planes::recv(session.channel, CORRECTIONS, mine.len(), n)?;
    if session.role == Role::Client {
        send(session.channel)?;
    }
    Ok(theirs)
}
