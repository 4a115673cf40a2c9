//! The shape of a batch of sign tests: its digits, and how their leaves are evaluated.

use tacit_arith::bits::Bits;

use super::tree::Tree;

/// How the digits of a comparison are evaluated. For 24 compared bits: `Direct(2)` takes 46 ROTs, 24 bits
/// offline and 69 + 58 bits online; `Direct(3)` 38 ROTs, 46 bits offline and 105 + 32 bits online;
/// `Masked(2)` 46 ROTs, 59 bits offline and 24 + 58 bits online; `Masked(3)` 38 ROTs, 146 bits offline and 24
/// + 32 bits online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Leaves {
    /// Digits of the given number of bits (1 to 4) by 1-of-2^m OT: fewer OTs and offline bits, more online
    /// bits.
    Direct(u32),
    /// Digits of the given number of bits (1 to 4) by masked evaluation: fewest online bits.
    Masked(u32),
}

impl Leaves {
    fn digit_bits(self) -> u32 {
        match self {
            Self::Direct(radix) | Self::Masked(radix) => radix.clamp(1, 4),
        }
    }
}

/// Public shape of a batch of sign tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSpec {
    pub(super) n: usize,
    pub(super) width: u32,
    pub(super) leaves: Leaves,
    digits: Vec<u32>,
}

/// One digit of the compared numbers: bits `from .. from + bits`.
#[derive(Clone, Copy)]
pub(super) struct Digit {
    from: u32,
    pub(super) bits: u32,
    pub(super) with_eq: bool,
}

impl Digit {
    /// The digit's planes among those of a number.
    pub(super) fn of(self, numbers: &[Bits]) -> &[Bits] {
        &numbers[self.from as usize..(self.from + self.bits) as usize]
    }
}

impl CompareSpec {
    /// `n` sign tests in a ring of `width` bits (2 to 64). No digit is larger than `leaves` says, and there are
    /// as few as that allows. They are as equal as can be, since large ones cost most, the largest lowest,
    /// where they need no `eq`.
    pub fn new(n: usize, width: u32, leaves: Leaves) -> Self {
        let bits = width.max(2) - 1;
        let count = bits.div_ceil(leaves.digit_bits());
        let digits = (0..count).map(|i| (bits + count - 1 - i) / count).collect();
        Self { n, width: bits + 1, leaves, digits }
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

    /// The sum over all digits of one of two figures, by the kind of leaves.
    pub(super) fn per_digit(&self, direct: fn(Digit) -> usize, masked: fn(Digit) -> usize) -> usize {
        self.digits().map(if matches!(self.leaves, Leaves::Masked(_)) { masked } else { direct }).sum()
    }
}
