//! The tree that joins per-digit `(lt, eq)` shares into one `lt`. A node joins two groups of digits,
//! `lt = lt_1 ^ eq_1 lt_0` and `eq = eq_1 eq_0`, or three: `lt = lt_2 ^ eq_2 lt_1 ^ eq_2 eq_1 lt_0` and
//! `eq = eq_2 eq_1 eq_0`.
//!
//! Every operand of a product is opened under a random mask that nobody knows: 3 bits each way and node of
//! two groups, 5 of three, and one less for the lowest group of a level, which needs no `eq`. The products of
//! masks come from random OTs in both directions (`node`).
//!
//! On a slow link a level must not wait for a whole round trip: whoever has just heard from the peer sends
//! its openings of that level and of the next in one message. The server, whose leaves go out before, sends
//! first on the first level, the client on the second, and so on: two levels take one round trip. Nodes of
//! three groups cost some bits more offline, and are used where they save a round trip: for 5 to 9 digits.

use tacit_arith::bits::Bits;
use tacit_net::{Tag, Talk};

use super::node::{self, Leaf, Node};
use crate::ot::PlannedOts;
use crate::planes;
use crate::{MpcError, Ots, Role, Session};

const OPENINGS: Tag = Tag::new(0x0312, "comparison tree openings");

/// Public shape of the tree.
pub(super) struct Tree {
    n: usize,
    /// For each level the nodes, lowest first; what is above them on a level is passed on.
    levels: Vec<Vec<Node>>,
}

impl Tree {
    pub(super) fn new(n: usize, leaves: usize) -> Self {
        let sizes = match leaves {
            5..=9 => vec![thirds(leaves), vec![3]],
            _ => halves(leaves),
        };
        let node = |(i, groups): (usize, usize)| Node { groups, with_eq: i > 0 };
        Self { n, levels: sizes.into_iter().map(|level| level.into_iter().enumerate().map(node).collect()).collect() }
    }

    fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.levels.iter().flatten().copied()
    }

    /// OTs in each direction and element.
    pub(super) fn ots(&self) -> usize {
        self.nodes().map(Node::ots).sum()
    }

    /// Planes of a party's material.
    pub(super) fn planes(&self) -> usize {
        self.nodes().map(Node::planes).sum()
    }

    /// Bits that each party sends per element, offline.
    pub(super) fn corrections(&self) -> usize {
        self.nodes().map(Node::corrections).sum()
    }

    /// Bits that each party opens per element, and the number of levels.
    pub(super) fn opened(&self) -> (usize, usize) {
        (self.nodes().map(Node::opened).sum(), self.levels.len())
    }

    /// What the offline phase says.
    pub(super) fn talk_offline(&self, ots: &mut PlannedOts, talk: &mut Talk) {
        node::talk_offline(&self.nodes().collect::<Vec<_>>(), self.n, ots, talk);
    }

    /// What the online phase says.
    pub(super) fn talk_online(&self, talk: &mut Talk) {
        for (index, nodes) in self.levels.iter().enumerate() {
            let bytes = nodes.iter().map(|node| node.opened()).sum::<usize>() * self.n.div_ceil(8);
            let says: [fn(&mut Talk, usize); 2] = [Talk::down, Talk::up];
            says[index % 2](talk, bytes);
            says[1 - index % 2](talk, bytes);
        }
    }

    /// Offline: the masks and products of all nodes.
    pub(super) fn offline(&self, session: &mut Session<'_>, ots: &mut Ots) -> Result<Vec<Bits>, MpcError> {
        node::offline(&self.nodes().collect::<Vec<_>>(), self.n, session, ots)
    }

    /// Online: the party's share of `lt` over all digits. `leaves` are lowest first.
    pub(super) fn online(
        &self,
        mut leaves: Vec<Leaf>,
        material: Vec<Bits>,
        session: &mut Session<'_>,
    ) -> Result<Bits, MpcError> {
        let mut material = material.into_iter();
        for (index, nodes) in self.levels.iter().enumerate() {
            let level: Vec<(Node, Vec<Bits>)> =
                nodes.iter().map(|node| (*node, material.by_ref().take(node.planes()).collect())).collect();
            let sends_first = (session.role == Role::Server) == index.is_multiple_of(2);
            leaves = self.level(leaves, &level, sends_first, session)?;
        }
        Ok(leaves.pop().expect("a comparison has at least one digit").lt)
    }

    fn level(
        &self,
        leaves: Vec<Leaf>,
        nodes: &[(Node, Vec<Bits>)],
        sends_first: bool,
        session: &mut Session<'_>,
    ) -> Result<Vec<Leaf>, MpcError> {
        let (mut mine, mut rest) = (Vec::new(), &leaves[..]);
        for (node, masks) in nodes {
            let (below, above) = rest.split_at(node.groups);
            mine.extend(node.masked(below, masks));
            rest = above;
        }
        if sends_first {
            planes::send(session.channel, OPENINGS, &mine)?;
        }
        let theirs = planes::recv(session.channel, OPENINGS, mine.len(), self.n)?;
        if !sends_first {
            planes::send(session.channel, OPENINGS, &mine)?;
        }
        for (a, b) in mine.iter_mut().zip(&theirs) {
            a.xor_assign(b);
        }
        let (mut opened, mut leaves) = (&mine[..], leaves.into_iter());
        let mut out = Vec::new();
        for (node, masks) in nodes {
            let (own, others) = opened.split_at(node.opened());
            opened = others;
            let highest = leaves.by_ref().take(node.groups).last().expect("a node has groups below it");
            out.push(node.join(session.role, highest, own, masks));
        }
        out.extend(leaves);
        Ok(out)
    }
}

/// Pairs, level by level.
fn halves(leaves: usize) -> Vec<Vec<usize>> {
    let (mut levels, mut left) = (Vec::new(), leaves);
    while left > 1 {
        levels.push(vec![2; left / 2]);
        left = left.div_ceil(2);
    }
    levels
}

/// Three groups as equal as can be, the largest lowest; groups of one digit, the highest, are passed on.
fn thirds(leaves: usize) -> Vec<usize> {
    (0..3).map(|i| (leaves + 2 - i) / 3).filter(|&size| size > 1).collect()
}
