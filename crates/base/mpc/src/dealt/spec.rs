//! The public shape of a batch of dealt gates, and the division of its bits into digits.

use super::terms::Terms;

/// Number of times that the parties wait for each other in a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Exchanges {
    /// Once: larger tables (TT1).
    One,
    /// Twice: less material (TT2).
    Two,
}

/// A value that the tested bit is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// The tested value itself, in a ring of `wide` bits (at least its own).
    Tested {
        /// Bits of the result's ring.
        wide: u32,
    },
    /// Another shared value in a ring of `width` bits.
    Other {
        /// Bits of its ring.
        width: u32,
    },
    /// The constant -1 in a ring of `width` bits.
    MinusOne {
        /// Bits of its ring.
        width: u32,
    },
}

impl Value {
    /// Bits of the result's ring.
    #[must_use]
    pub fn width(self) -> u32 {
        match self {
            Self::Tested { wide } => wide,
            Self::Other { width } | Self::MinusOne { width } => width,
        }
    }
}

/// Widths of the values that a gate opens: the tested value, of `width` bits, and others.
pub(crate) fn opened(values: &[Value], width: u32) -> Vec<u32> {
    let others = values.iter().filter_map(|v| if let Value::Other { width } = v { Some(*width) } else { None });
    std::iter::once(width).chain(others).collect()
}

/// Selects the shares of the values that a gate opens, from those of all values.
pub(crate) fn inputs<'a>(
    values: &'a [Value],
    tested: &'a [u64],
    shares: &'a [&'a [u64]],
) -> impl Iterator<Item = &'a [u64]> + 'a {
    let pairs = values.iter().zip(shares).filter(|(value, _)| matches!(value, Value::Other { .. }));
    std::iter::once(tested).chain(pairs.map(|(_, share)| *share))
}

/// Public shape of a batch of gates `z_k = base_k + [y >= 0] X_k`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DealtGate {
    pub(super) n: usize,
    pub(super) width: u32,
    pub(super) drop: u32,
    pub(super) values: Vec<Value>,
    pub(super) digits: Vec<u32>,
    pub(super) exchanges: Exchanges,
    pub(super) terms: Terms,
}

/// Largest digit, m bits: its table has 2^m - 1 bits an element.
const MAX_DIGIT: u32 = 10;
/// Most digits, for one exchange and for two.
const MAX_DIGITS: [u32; 2] = [4, 8];
/// Smallest ring width of a tested value: a sign and one more bit.
pub const MIN_WIDTH: u32 = 2;

impl DealtGate {
    /// `n` gates on a value in a ring of `width` bits (2 to 63), without its `drop` lowest bits.
    /// Results of `0 <= y < 2^drop` may then count as negative, and the lowest `2^drop` values of
    /// the ring as positive. Chooses the digits with the least material.
    ///
    /// # Panics
    /// For a width out of range, or without a compared bit: a plan checks its widths.
    #[must_use]
    pub fn new(n: usize, width: u32, drop: u32, values: Vec<Value>, exchanges: Exchanges) -> Self {
        assert!((MIN_WIDTH..64).contains(&width) && drop < width - 1, "{width} bits, {drop} dropped");
        let bits = width - 1 - drop;
        let max_digits = if exchanges == Exchanges::One { MAX_DIGITS[0] } else { MAX_DIGITS[1] };
        let digit_count = bits.div_ceil(MAX_DIGIT).min(max_digits);
        let candidates = (digit_count..=max_digits.min(bits)).map(|count| {
            let digits = (0..count).map(|i| bits / count + u32::from(i < bits % count)).collect::<Vec<_>>();
            // A single digit leaves nothing to open between test and multiplexer.
            let exchanges = if count == 1 { Exchanges::One } else { exchanges };
            let terms = Terms::new(digits.len(), exchanges);
            Self { n, width, drop, values: values.clone(), digits, exchanges, terms }
        });
        candidates.min_by_key(Self::material_bits).expect("there is at least one way to cut")
    }

    /// Number of gates.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// `factor` times as many gates, with the same digits.
    #[must_use]
    pub fn times(&self, factor: usize) -> Self {
        Self { n: factor * self.n, ..self.clone() }
    }

    /// Values that the bit is multiplied with.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Number of times that the two parties wait for each other.
    #[must_use]
    pub fn exchanges(&self) -> Exchanges {
        self.exchanges
    }

    /// Selects the shares of the values that the server opens, from those of all values.
    pub(super) fn inputs<'a>(
        &'a self,
        tested: &'a [u64],
        values: &'a [&'a [u64]],
    ) -> impl Iterator<Item = &'a [u64]> + 'a {
        inputs(&self.values, tested, values)
    }

    pub(super) fn widths(&self) -> Vec<u32> {
        self.values.iter().map(|v| v.width()).collect()
    }

    /// Whether all arithmetic fits words of 32 bits.
    pub(super) fn is_narrow(&self) -> bool {
        self.all_columns().into_iter().all(|width| width <= u32::BITS)
    }

    /// Planes of masks that each party draws.
    pub(super) fn masks(&self) -> usize {
        2 * self.digits.len() - 1
    }

    pub(super) fn low_bits(&self) -> u32 {
        self.width - 1
    }

    /// Table entries of an element, over all digits.
    pub(super) fn table_planes(&self) -> usize {
        self.digits.iter().map(|m| (1usize << m) - 1).sum()
    }

    /// Planes of an element in the server's material: tables, the sign of `R`, products of masks.
    pub(super) fn planes(&self) -> usize {
        self.table_planes() + 1 + self.terms.xor_shared_monomials().len()
    }

    /// Extra bits of the widened tested value; 0 without widening.
    pub(super) fn extra(&self) -> u32 {
        let extra = |v: &Value| if let Value::Tested { wide } = v { wide - self.width } else { 0 };
        self.values.iter().map(extra).max().unwrap_or(0)
    }

    /// The ring of the bit's own arithmetic shares.
    pub(super) fn bit_width(&self) -> u32 {
        self.values.iter().map(|v| v.width()).max().expect("a gate multiplies something")
    }

    /// Widths of the arithmetic columns of one term, and of the columns that belong to the value
    /// alone.
    pub(super) fn columns(&self) -> (Vec<u32>, Vec<u32>) {
        let extra = self.extra();
        let mut term = vec![self.bit_width()];
        for value in &self.values {
            match value {
                Value::Tested { wide } => term.extend([*wide, extra].into_iter().filter(|&w| w > 0)),
                Value::Other { width } => term.push(*width),
                Value::MinusOne { .. } => {}
            }
        }
        (term, if extra > 0 { vec![extra; 2] } else { Vec::new() })
    }

    pub(super) fn all_columns(&self) -> Vec<u32> {
        let (term, final_columns) = self.columns();
        term.repeat(self.terms.count()).into_iter().chain(final_columns).collect()
    }

    /// Material of one gate at the server, in bits.
    fn material_bits(&self) -> usize {
        self.planes() + self.all_columns().iter().map(|&w| w as usize).sum::<usize>()
    }

    /// Widths of the values that the server opens: the tested value, and others.
    pub(super) fn opened(&self) -> Vec<u32> {
        opened(&self.values, self.width)
    }

    /// Masked bits of each party's first opening.
    pub(super) fn masked_bits(&self) -> usize {
        match self.exchanges {
            Exchanges::One => 2 * self.digits.len() - 1,
            Exchanges::Two => 2 * self.digits.len() - 2,
        }
    }
}
