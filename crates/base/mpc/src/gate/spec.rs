//! The shape of a batch of sign tests: its digits, and how their leaves are evaluated.

use tacit_arith::bits::Bits;

use super::node::Node;
use super::program::Program;
use super::tree::{Group, Joins, Tree, highest_groups};

/// How the digits of a comparison are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Leaves {
    /// Digits of the given number of bits (1 to 4) by 1-of-2^m OT: fewer OTs and offline bits, more
    /// online bits.
    Direct(u32),
    /// Digits of the given number of bits (1 to 4) by masked evaluation: fewest online bits.
    Masked(u32),
    /// Masked evaluation with the cheapest digits and joins if one online bit costs as much as this
    /// many offline bits (1 to 16).
    Weighed(u32),
}

/// Offline bits that an online bit is worth where the size of digits is given.
const WEIGHT: usize = 3;
const MAX_BITS: u32 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompareSpec {
    pub(super) n: usize,
    pub(super) width: u32,
    pub(super) leaves: Leaves,
    /// Bits of each digit, and whether it is the highest of a node. The constant of such a digit's
    /// `lt` is part of that node's constant, where leaves have one.
    digits: Vec<(u32, bool)>,
    /// The nodes of the tree that joins the digits, by level.
    joins: Vec<Vec<Node>>,
}

/// One digit of the compared numbers: bits `first_bit .. first_bit + bits`.
#[derive(Clone, Copy)]
pub(super) struct Digit {
    first_bit: u32,
    pub(super) bits: u32,
    pub(super) with_eq: bool,
    pub(super) folded: bool,
}

impl Digit {
    pub(super) fn select(self, numbers: &[Bits]) -> &[Bits] {
        &numbers[self.first_bit as usize..(self.first_bit + self.bits) as usize]
    }
}

impl CompareSpec {
    /// `n` sign tests in a ring of `width` bits (2 to 64). A given number of digits is cut as
    /// equally as possible, since large digits cost most; the largest digits are lowest, where they
    /// need no `eq`. With a given digit size there are as few digits as possible; otherwise the
    /// cheapest number of digits that needs no more round trips than digits of three bits.
    pub fn new(n: usize, width: u32, leaves: Leaves) -> Self {
        let bits = width.max(2) - 1;
        let weight = if let Leaves::Weighed(weight) = leaves { weight as usize } else { WEIGHT };
        let joins = Joins::new(bits as usize, weight);
        let count = match leaves {
            Leaves::Direct(max_bits) | Leaves::Masked(max_bits) => min_digits(bits, max_bits),
            Leaves::Weighed(_) => {
                let trips = Joins::round_trips(min_digits(bits, 3));
                let counts =
                    (min_digits(bits, MAX_BITS)..=bits as usize).filter(|&count| Joins::round_trips(count) <= trips);
                let cheapest = counts.min_by_key(|&count| 8 * corrections(bits, count) + joins.cost(count));
                cheapest.expect("digits of three bits are quick enough")
            }
        };
        let joins = joins.shape(count);
        let folded = highest_groups(&joins, count);
        let digits = digit_sizes(bits, count).into_iter().enumerate();
        let digits = digits.map(|(i, bits)| (bits, folded.contains(&Group::Digit(i)))).collect();
        Self { n, width: bits + 1, leaves, digits, joins }
    }

    pub(super) fn is_direct(&self) -> bool {
        matches!(self.leaves, Leaves::Direct(_))
    }

    pub(super) fn digits(&self) -> impl Iterator<Item = Digit> + '_ {
        let mut first_bit = 0;
        self.digits.iter().enumerate().map(move |(i, &(bits, folded))| {
            first_bit += bits;
            Digit { first_bit: first_bit - bits, bits, with_eq: i > 0, folded }
        })
    }

    pub(super) fn tree(&self) -> Tree<'_> {
        Tree::new(self.n, &self.joins)
    }

    /// Sums a figure over all digits; the kind of leaves selects the figure.
    pub(super) fn per_digit(&self, direct: fn(Digit) -> usize, masked: fn(Digit) -> usize) -> usize {
        self.digits().map(if self.is_direct() { direct } else { masked }).sum()
    }
}

/// The smallest number of digits of at most `max_bits` bits each.
fn min_digits(bits: u32, max_bits: u32) -> usize {
    bits.div_ceil(max_bits.clamp(1, MAX_BITS)) as usize
}

/// `count` digits of `bits` bits in all, as equal as possible, the largest first.
fn digit_sizes(bits: u32, count: usize) -> Vec<u32> {
    let count = count as u32;
    (0..count).map(|i| (bits + count - 1 - i) / count).collect()
}

/// Offline bits of masked leaves of `count` digits.
fn corrections(bits: u32, count: usize) -> usize {
    let sizes = digit_sizes(bits, count).into_iter().enumerate();
    sizes.map(|(i, size)| Program::new(size as usize, i > 0).corrections()).sum()
}
