//! Public shapes of batches, and their costs.

use super::super::Bound;
use super::super::compare::Shape;
use super::super::mac::ring::Ring;
use super::{PIECE, PIECES_AT_ONCE};
use crate::codec::Packed;
use crate::dealt::{self, Value};
use crate::packed_bytes;

/// Which parties are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The client: values are shared between the parties, and the server is trusted.
    Client,
    /// Both parties: each holds a public masked value, and the dealer alone knows the mask.
    Both,
}

/// Public shape of a batch of gates `z_k = base_k + [y >= 0] X_k`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FssGate {
    n: usize,
    pub(super) width: u32,
    drop: u32,
    values: Vec<Value>,
    pub(super) checked: Checked,
}

/// Public shape of a batch of signed widenings from `width` to `width + extra` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FssWiden {
    /// Number of values.
    pub n: usize,
    /// Bits of their ring, at least 3.
    pub width: u32,
    /// Extra bits of the widened ring.
    pub extra: u32,
    /// Which parties are checked.
    pub checked: Checked,
}

/// Bytes and work of a batch: payload bytes without frame headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FssCost {
    /// Client to server, online.
    pub up: usize,
    /// Server to client, online.
    pub down: usize,
    /// Number of times that the parties wait for each other, online.
    pub exchanges: usize,
    /// Bytes of material at the client, beside its seed.
    pub client_material: usize,
    /// Bytes of material at the server, beside its seed.
    pub server_material: usize,
    /// Opened words with tags: each party stores them until the check at the end.
    pub opened: usize,
    /// Bytes of blocks that a party holds while the batch runs.
    pub held: usize,
    /// Bytes of the server's material that a dealer makes before it hands them over.
    pub dealt_at_once: usize,
    /// Blocks that each party hashes.
    pub hashes: u64,
    /// AES blocks of the client's streams.
    pub client_aes: u64,
    /// AES blocks of the server's streams.
    pub server_aes: u64,
}

/// Bytes of a word of a ring with its spare bits.
pub(super) fn word_bytes(ring: Ring) -> usize {
    ring.share_bits().div_ceil(8) as usize
}

/// Bytes of the server's material for one constant: a word and the key of the client's tag, or its
/// shares of word and tag.
pub(super) fn given_bytes(ring: Ring, checked: Checked) -> usize {
    match checked {
        Checked::Client => ring.width().div_ceil(8) as usize + word_bytes(ring),
        Checked::Both => 2 * word_bytes(ring),
    }
}

pub(super) fn range(n: usize, index: usize) -> std::ops::Range<usize> {
    index * PIECE..((index + 1) * PIECE).min(n)
}

/// The ring of checked values of `width` bits.
pub(super) fn ring(width: u32) -> Ring {
    Ring::new(width).expect("widths are checked when a gate is made")
}

impl FssGate {
    /// `n` gates on a value in a ring of `width` bits (2 to 63), without its `drop` lowest bits.
    /// With dropped bits, results of `0 <= y < 2^drop` may count as negative, and the lowest `2^drop`
    /// values of the ring as positive.
    ///
    /// # Panics
    /// For widths out of range, without a compared bit or a value: a plan checks them.
    #[must_use]
    pub fn new(n: usize, width: u32, drop: u32, values: Vec<Value>, checked: Checked) -> Self {
        assert!((2..64).contains(&width) && drop < width - 1, "{width} bits, {drop} dropped");
        assert!(values.iter().all(|v| (1..=64).contains(&v.width())) && !values.is_empty(), "values of a gate");
        Self { n, width, drop, values, checked }
    }

    /// `factor` times as many gates of the same kind.
    #[must_use]
    pub fn times(&self, factor: usize) -> Self {
        Self { n: factor * self.n, ..self.clone() }
    }

    /// Number of gates.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values that the bit is multiplied with.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The comparison keys. Where bits are dropped, equality counts as less.
    pub(super) fn comparison(&self) -> (Shape, Bound) {
        let shape = Shape::new(self.width - 1 - self.drop).and_then(|shape| shape.with_dropped_bits(self.drop));
        let bound = if self.drop > 0 { Bound::AtMost } else { Bound::Below };
        (shape.expect("the widths were checked when the gate was made"), bound)
    }

    /// The ring of the bit's own shares: the widest of the values'.
    pub(super) fn slope(&self) -> Ring {
        ring(self.widths().into_iter().max().expect("a gate multiplies something"))
    }

    /// Constants of a value: one for each q, and for each top bit of xh if the value is widened.
    pub(super) fn branches(&self, value: Value) -> usize {
        if matches!(value, Value::Tested { wide } if wide > self.width) { 4 } else { 2 }
    }

    /// Widths of the server's openings: the tested value, and others.
    pub(super) fn opened(&self) -> Vec<u32> {
        dealt::opened(&self.values, self.width)
    }

    /// Selects the shares of the values that the server opens, from those of all values.
    pub(super) fn inputs<'a>(
        &'a self,
        tested: &'a [u64],
        values: &'a [&'a [u64]],
    ) -> impl Iterator<Item = &'a [u64]> + 'a {
        dealt::inputs(&self.values, tested, values)
    }

    pub(super) fn widths(&self) -> Vec<u32> {
        self.values.iter().map(|v| v.width()).collect()
    }

    /// Bytes of the server's words of `len` gates.
    pub(super) fn column_bytes(&self, len: usize) -> usize {
        let values = self.values.iter().map(|&v| self.branches(v) * given_bytes(ring(v.width()), self.checked));
        len * (given_bytes(self.slope(), self.checked) + values.sum::<usize>())
    }

    pub(super) fn server_bytes(&self, len: usize) -> usize {
        let (shape, _) = self.comparison();
        shape.corrections_bytes(len) + shape.tops_bytes(len) + 16 * len + self.column_bytes(len)
    }

    pub(super) fn piece<'a>(&self, material: &'a [u8], index: usize) -> &'a [u8] {
        &material[self.server_bytes(PIECE) * index..][..self.server_bytes(range(self.n, index).len())]
    }

    pub(super) fn piece_words<'a>(&self, material: &'a [u8], index: usize) -> &'a [u8] {
        let (piece, words) = (self.piece(material, index), self.column_bytes(range(self.n, index).len()));
        &piece[piece.len() - words..]
    }

    pub(super) fn client_bytes(&self, len: usize) -> usize {
        self.comparison().0.corrections_bytes(len)
    }

    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> FssCost {
        let (n, shape) = (self.n, self.comparison().0);
        let results = self.widths();
        let constants = 1 + self.values.iter().map(|&v| self.branches(v)).sum::<usize>();
        let (down, masks) = match self.checked {
            Checked::Client => (packed_bytes(n, &self.opened()), (n * self.opened().len()).div_ceil(2)),
            Checked::Both => (packed_bytes(n, &results), 0),
        };
        FssCost {
            up: n.div_ceil(8) + packed_bytes(n, &results),
            down: down + n.div_ceil(8),
            exchanges: 1,
            client_material: self.client_bytes(n),
            server_material: self.server_bytes(n),
            opened: n * results.len(),
            held: 16 * n,
            dealt_at_once: self.server_bytes(n.min(PIECES_AT_ONCE * PIECE)),
            hashes: shape.eval_work(n).hashes,
            client_aes: (n * (shape.tops() + 1 + 2 * constants)) as u64,
            server_aes: masks as u64,
        }
    }
}

impl FssWiden {
    pub(super) fn ring(&self) -> Ring {
        ring(self.width + self.extra)
    }

    /// Bytes of the server's material.
    pub(super) fn server_bytes(&self) -> usize {
        2 * self.n * given_bytes(self.ring(), self.checked)
    }

    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> FssCost {
        let words = Packed::len_bytes(self.n, self.width + self.extra);
        let (down, masks) = match self.checked {
            Checked::Client => (self.n.div_ceil(8), self.n.div_ceil(2)),
            Checked::Both => (words, 0),
        };
        FssCost {
            up: words,
            down,
            exchanges: 1,
            server_material: self.server_bytes(),
            opened: self.n,
            dealt_at_once: self.server_bytes(),
            client_aes: 4 * self.n as u64,
            server_aes: masks as u64,
            ..FssCost::default()
        }
    }
}
