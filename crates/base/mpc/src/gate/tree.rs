//! The tree that joins per-digit `(lt, eq)` shares into one `lt`. A node joins two or three groups of digits.
//! Two: `lt = lt_1 ^ eq_1 lt_0` and `eq = eq_1 eq_0`. Three: `lt = lt_2 ^ eq_2 lt_1 ^ eq_2 eq_1 lt_0` and
//! `eq = eq_2 eq_1 eq_0`.
//!
//! Every operand of a product is opened under a random mask that neither party knows. A node of two
//! groups opens 3 bits each way, a node of three 5. The lowest node of a level needs no `eq` and opens
//! one bit less. The products of masks come from random OTs in both directions (`node`).
//!
//! On a slow link a level must not wait for a whole round trip. A party that has received a message
//! sends its openings of that level and of the next in one message. The server, which has sent its
//! leaves before, sends first on the first level, the client on the second, and so on: two levels
//! take one round trip. Nodes of three groups cost some more bits offline, and are used where they
//! save a round trip: for 5 to 9 digits.

use tacit_arith::bits::Bits;
use tacit_net::{Tag, TrafficModel};

use super::node::{self, Leaf, Node};
use crate::ot::PlannedOts;
use crate::planes;
use crate::{MpcError, Ots, Role, Session};

const OPENINGS: Tag = Tag::new(0x0312, "comparison tree openings");

pub(super) struct Tree<'a> {
    n: usize,
    /// The nodes of each level, lowest first; groups above them pass to the next level unchanged.
    levels: &'a [Vec<Node>],
}

impl<'a> Tree<'a> {
    /// A tree for `n` elements, of a shape that [`Joins`] found.
    pub(super) fn new(n: usize, levels: &'a [Vec<Node>]) -> Self {
        Self { n, levels }
    }

    fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.levels.iter().flatten().copied()
    }

    /// OTs in each direction and element.
    pub(super) fn ots(&self) -> usize {
        self.nodes().map(Node::ots).sum()
    }

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

    pub(super) fn add_offline_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        node::add_offline_traffic(&self.nodes().collect::<Vec<_>>(), self.n, ots, traffic);
    }

    pub(super) fn add_online_traffic(&self, traffic: &mut TrafficModel) {
        for (index, nodes) in self.levels.iter().enumerate() {
            let bytes = nodes.iter().map(|node| node.opened()).sum::<usize>() * self.n.div_ceil(8);
            let says: [fn(&mut TrafficModel, usize); 2] = [TrafficModel::down, TrafficModel::up];
            says[index % 2](traffic, bytes);
            says[1 - index % 2](traffic, bytes);
        }
    }

    /// Offline: the masks and products of all nodes. `constants` are those of the leaves' `lt` that
    /// nodes may fold in; the constants folded into a node are taken.
    pub(super) fn offline(
        &self,
        constants: &mut [Option<Bits>],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Bits>, MpcError> {
        let mut node_planes = node::offline(&self.nodes().collect::<Vec<_>>(), self.n, session, ots)?;
        for (index, highest) in highest_groups(self.levels, constants.len()).into_iter().enumerate() {
            let constant = match highest {
                Group::Digit(digit) => constants[digit].take(),
                Group::Node(node) => node_planes[node].pop(),
            };
            if let Some(constant) = constant {
                node_planes[index].last_mut().expect("a node has a constant").xor_assign(&constant);
            }
        }
        Ok(node_planes.into_iter().flatten().collect())
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
            leaves = self.run_level(leaves, &level, sends_first, session)?;
        }
        Ok(leaves.pop().expect("a comparison has at least one digit").lt)
    }

    /// Opens the operands of a level and joins its groups; returns the groups of the next level.
    fn run_level(
        &self,
        leaves: Vec<Leaf>,
        nodes: &[(Node, Vec<Bits>)],
        sends_first: bool,
        session: &mut Session<'_>,
    ) -> Result<Vec<Leaf>, MpcError> {
        let (mut openings, mut unjoined) = (Vec::new(), &leaves[..]);
        for (node, masks) in nodes {
            let (groups, following) = unjoined.split_at(node.groups);
            openings.extend(node.mask_operands(groups, masks));
            unjoined = following;
        }
        let peer_openings = planes::exchange(session.channel, OPENINGS, &openings, self.n, sends_first)?;
        for (a, b) in openings.iter_mut().zip(&peer_openings) {
            a.xor_assign(b);
        }
        let (mut opened, mut leaves) = (&openings[..], leaves.into_iter());
        let mut out = Vec::new();
        for (node, masks) in nodes {
            let (node_openings, others) = opened.split_at(node.opened());
            opened = others;
            let highest = leaves.by_ref().take(node.groups).last().expect("a node has groups below it");
            out.push(node.join(session.role, highest, node_openings, masks));
        }
        out.extend(leaves);
        Ok(out)
    }
}

/// A group of digits: one digit, or the result of a node. Nodes are numbered over all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Digit(usize),
    Node(usize),
}

/// For each node, in order, its highest group, whose `lt` the node only adds.
pub(super) fn highest_groups(levels: &[Vec<Node>], digits: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = (0..digits).map(Group::Digit).collect();
    let mut out = Vec::new();
    for level in levels {
        let mut lower_groups = groups.into_iter();
        let mut joined = Vec::new();
        for node in level {
            let highest = lower_groups.by_ref().take(node.groups).last().expect("a node has groups below it");
            joined.push(Group::Node(out.len()));
            out.push(highest);
        }
        groups = joined;
        groups.extend(lower_groups);
    }
    out
}

/// Bits of OT extension per OT, in eighths: the traffic of the largest set of `ot::params`.
const OT_EIGHTHS: usize = 5;
/// Most digits that two levels of nodes of three can join, and so most digits for one round trip.
const ONE_ROUND_TRIP: usize = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LevelNodes {
    threes: usize,
    twos: usize,
}

/// A way to join digits. The cheaper one is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Join {
    /// Cost in eighths of an offline bit.
    cost: usize,
    first: LevelNodes,
}

/// The cheapest ways to join digits, for all numbers of digits up to a limit.
pub(super) struct Joins {
    /// By number of levels and number of digits; `None` where these levels cannot join the digits.
    best: Vec<Vec<Option<Join>>>,
}

impl Joins {
    /// Plans for up to `max_digits` digits, where an opened bit is worth `weight` offline bits.
    pub(super) fn new(max_digits: usize, weight: usize) -> Self {
        let mut best = vec![vec![None; max_digits + 1]];
        best[0][1] = Some(Join { cost: 0, first: LevelNodes { threes: 0, twos: 0 } });
        for level in 0..Self::levels(max_digits) {
            let row = (0..=max_digits).map(|digits| Self::first_level(digits, &best[level], weight)).collect();
            best.push(row);
        }
        Self { best }
    }

    /// An even number, since two levels take one round trip.
    fn levels(digits: usize) -> usize {
        match digits {
            0..=1 => 0,
            2..=ONE_ROUND_TRIP => 2,
            _ => 4,
        }
    }

    /// The cheapest way to join `digits` digits whose first level is followed by one of `upper_joins`.
    fn first_level(digits: usize, upper_joins: &[Option<Join>], weight: usize) -> Option<Join> {
        let choices = (0..=digits / 3)
            .flat_map(|threes| (0..=(digits - 3 * threes) / 2).map(move |twos| LevelNodes { threes, twos }));
        let joins = choices.filter_map(|first| {
            let upper_cost = upper_joins[digits - 2 * first.threes - first.twos]?.cost;
            let level_cost: usize = nodes(first).map(|node| node_cost(node, weight)).sum();
            Some(Join { cost: upper_cost + level_cost, first })
        });
        joins.min()
    }

    /// Cost of joining `digits` digits, in eighths of an offline bit.
    pub(super) fn cost(&self, digits: usize) -> usize {
        self.best_join(Self::levels(digits), digits).cost
    }

    /// The cheapest way to join `digits` digits in exactly `levels` levels.
    fn best_join(&self, levels: usize, digits: usize) -> Join {
        self.best[levels][digits].expect("four levels join 81 digits, and no ring has as many bits")
    }

    pub(super) fn round_trips(digits: usize) -> usize {
        Self::levels(digits) / 2
    }

    /// The nodes of each level, lowest first.
    pub(super) fn shape(&self, total: usize) -> Vec<Vec<Node>> {
        let (mut shape, mut digits) = (Vec::new(), total);
        for levels in (1..=Self::levels(digits)).rev() {
            let first = self.best_join(levels, digits).first;
            digits -= 2 * first.threes + first.twos;
            shape.push(nodes(first).collect::<Vec<_>>());
        }
        // A level without joins sends nothing.
        shape.retain(|level| !level.is_empty());
        let folded = highest_groups(&shape, total);
        for (index, node) in shape.iter_mut().flatten().enumerate() {
            node.folded = folded.contains(&Group::Node(index));
        }
        shape
    }
}

/// The nodes of a level, the larger ones lowest; groups above them pass unchanged. Does not set
/// `folded`.
fn nodes(LevelNodes { threes, twos }: LevelNodes) -> impl Iterator<Item = Node> {
    (0..threes + twos).map(move |i| Node { groups: if i < threes { 3 } else { 2 }, with_eq: i > 0, folded: false })
}

/// In eighths of an offline bit.
fn node_cost(node: Node, weight: usize) -> usize {
    2 * (8 * (weight * node.opened() + node.corrections()) + OT_EIGHTHS * node.ots())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_joined_in_the_fewest_round_trips() {
        for weight in [0, 1, 3, 6, 50] {
            let joins = Joins::new(64, weight);
            for digits in 1..=64 {
                let shape = joins.shape(digits);
                let left = shape.iter().fold(digits, |left, level| {
                    assert!(level.iter().map(|node| node.groups).sum::<usize>() <= left);
                    left - level.iter().map(|node| node.groups - 1).sum::<usize>()
                });
                assert_eq!(left, 1, "{digits} digits, weight {weight}");
                assert!(shape.len().div_ceil(2) <= Joins::round_trips(digits));
                assert_eq!(Joins::round_trips(digits), [usize::from(digits > 1), 2][usize::from(digits > 9)]);
            }
        }
        let groups = |weight, digits| -> Vec<Vec<usize>> {
            let shape = Joins::new(digits, weight).shape(digits);
            shape.into_iter().map(|level| level.into_iter().map(|node| node.groups).collect()).collect()
        };
        assert_eq!(groups(2, 4), [vec![2, 2], vec![2]]);
        assert_eq!(groups(6, 4), [vec![2], vec![3]]);
        assert_eq!(groups(6, 8), [vec![3, 3, 2], vec![3]]);
        // Of eight digits the third, the sixth and the last are highest in their nodes, and the
        // third node is highest in the next.
        let shape = Joins::new(8, 6).shape(8);
        let expected = [Group::Digit(2), Group::Digit(5), Group::Digit(7), Group::Node(2)];
        assert_eq!(highest_groups(&shape, 8), expected);
        assert_eq!(shape.concat().iter().map(|node| node.folded).collect::<Vec<_>>(), [false, false, true, false]);
    }
}
