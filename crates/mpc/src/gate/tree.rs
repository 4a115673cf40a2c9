//! The AND tree that joins per-digit `(lt, eq)` shares into one `lt`: `lt = lt_hi ^ eq_hi lt_lo`,
//! `eq = eq_hi eq_lo`.
//!
//! Both AND gates of a node share the operand `eq_hi`. Their masks are *defined* by two random OTs with
//! strings of two bits, one in each direction (a choice bit is one party's mask of `eq_hi`, the XOR of the
//! two strings the other party's masks of `lt_lo` and `eq_lo`), so the offline phase sends nothing for them.
//! Online each party opens `eq_hi`, `lt_lo` and (but for the lowest group) `eq_lo` under these masks: 2 or 3
//! bits each way and node; one exchange a level.

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use crate::planes::{self, xor_and};
use crate::{MpcError, Ots, Role, Session};

const OPENINGS: Tag = Tag::new(0x0312, "comparison tree openings");

/// A party's shares of `lt` and `eq` of one group of digits (`eq` is absent for the lowest group).
pub(super) struct Leaf {
    lt: Bits,
    eq: Option<Bits>,
}

impl Leaf {
    /// From `[lt]` or `[lt, eq]`.
    pub(super) fn new(shares: Vec<Bits>) -> Self {
        let mut shares = shares.into_iter();
        Self { lt: shares.next().expect("a leaf has at least its `lt`"), eq: shares.next() }
    }
}

/// Public shape of the tree.
pub(super) struct Tree {
    n: usize,
    leaves: usize,
}

/// Planes stored per node: masks of `eq_hi` and `lt_lo` and their product; with `eq_lo` two more.
fn node_planes(with_eq: bool) -> usize {
    if with_eq { 5 } else { 3 }
}

impl Tree {
    pub(super) fn new(n: usize, leaves: usize) -> Self {
        Self { n, leaves }
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.leaves.saturating_sub(1)
    }

    /// For each level the number of nodes. The first node of a level is the lowest group and needs no `eq`.
    fn levels(&self) -> Vec<usize> {
        let (mut levels, mut left) = (Vec::new(), self.leaves);
        while left > 1 {
            levels.push(left / 2);
            left = left.div_ceil(2);
        }
        levels
    }

    /// Planes of a party's material.
    pub(super) fn planes(&self) -> usize {
        self.levels().iter().map(|&nodes| (0..nodes).map(|i| node_planes(i > 0)).sum::<usize>()).sum()
    }

    /// Bits that each party opens per element, and the number of exchanges.
    pub(super) fn opened(&self) -> (usize, usize) {
        let levels = self.levels();
        (levels.iter().map(|&nodes| 3 * nodes - 1).sum(), levels.len())
    }

    /// Offline: masks and products, for each node `[m_e, m_l, m_e m_l]` and, with `eq`, `[m_q, m_e m_q]`.
    pub(super) fn offline(&self, session: &mut Session<'_>, ots: &mut Ots) -> Result<Vec<Bits>, MpcError> {
        let mut out = Vec::with_capacity(self.planes());
        for nodes in self.levels() {
            for i in 0..nodes {
                out.extend(node_offline(session, ots, self.n, 1 + usize::from(i > 0))?);
            }
        }
        Ok(out)
    }

    /// Online: the party's share of `lt` over all digits. `leaves` are lowest first.
    pub(super) fn online(
        &self,
        mut leaves: Vec<Leaf>,
        material: Vec<Bits>,
        session: &mut Session<'_>,
    ) -> Result<Bits, MpcError> {
        let mut material = material.into_iter();
        for nodes in self.levels() {
            let level: Vec<Vec<Bits>> =
                (0..nodes).map(|i| material.by_ref().take(node_planes(i > 0)).collect()).collect();
            leaves = self.level(leaves, &level, session)?;
        }
        Ok(leaves.pop().expect("a comparison has at least one digit").lt)
    }

    fn level(
        &self,
        leaves: Vec<Leaf>,
        material: &[Vec<Bits>],
        session: &mut Session<'_>,
    ) -> Result<Vec<Leaf>, MpcError> {
        let mut mine = Vec::new();
        for (pair, masks) in leaves.chunks_exact(2).zip(material) {
            let (lo, hi) = (&pair[0], &pair[1]);
            let operands = [(hi.eq.as_ref(), &masks[0]), (Some(&lo.lt), &masks[1])];
            let third = masks.get(3).map(|m| (lo.eq.as_ref(), m));
            for (share, mask) in operands.into_iter().chain(third) {
                mine.push(share.expect("only the lowest group has no `eq`, and nothing is above it").xor(mask));
            }
        }
        planes::send(session.channel, OPENINGS, &mine)?;
        let theirs = planes::recv(session.channel, OPENINGS, mine.len(), self.n)?;
        for (a, b) in mine.iter_mut().zip(&theirs) {
            a.xor_assign(b);
        }
        let mut opened = mine.into_iter();
        let mut out = Vec::with_capacity(leaves.len().div_ceil(2));
        let mut leaves = leaves.into_iter();
        for masks in material {
            let (_, hi) = (leaves.next(), leaves.next());
            let hi = hi.expect("a node has two groups below it");
            let mut open = || opened.next().expect("every operand was opened above");
            let (e, l) = (open(), open());
            let mut lt = product(session.role, &e, &l, &masks[0], &masks[1], &masks[2]);
            lt.xor_assign(&hi.lt);
            let eq = match masks.get(3..5) {
                Some([mask, prod]) => Some(product(session.role, &e, &open(), &masks[0], mask, prod)),
                _ => None,
            };
            out.push(Leaf { lt, eq });
        }
        out.extend(leaves);
        Ok(out)
    }
}

/// Share of `(x ^ a)(y ^ b)` from the openings `x`, `y` and shares of `a`, `b`, `ab`. The server adds the
/// public term.
fn product(role: Role, x: &Bits, y: &Bits, a: &Bits, b: &Bits, ab: &Bits) -> Bits {
    let mut out = ab.clone();
    xor_and(&mut out, x, b);
    xor_and(&mut out, y, a);
    if role == Role::Server {
        xor_and(&mut out, x, y);
    }
    out
}

/// `[a, b_0, a b_0 (, b_1, a b_1)]` for random masks: this party's shares. `strings` is 1 or 2.
fn node_offline(session: &mut Session<'_>, ots: &mut Ots, n: usize, strings: usize) -> Result<Vec<Bits>, MpcError> {
    let (received, sent) = match session.role {
        Role::Client => {
            let received = ots.receiver.planes(session.channel, n, strings)?;
            (received, ots.sender.planes(session.channel, n, strings)?)
        }
        Role::Server => {
            let sent = ots.sender.planes(session.channel, n, strings)?;
            (ots.receiver.planes(session.channel, n, strings)?, sent)
        }
    };
    let a = received.choice;
    let mut out = vec![a.clone()];
    for i in 0..strings {
        let b = sent.m0[i].xor(&sent.m1[i]);
        let mut ab = a.and(&b);
        ab.xor_assign(&received.m[i]);
        ab.xor_assign(&sent.m0[i]);
        out.push(b);
        out.push(ab);
    }
    Ok(out)
}
