//! The public shape of look-ups, and the linear form of their results.

use std::sync::Arc;

use super::super::{DealtCost, block};
use super::{MAX_INDEX_BITS, ONE_HOT_BITS};
use crate::error::{beyond, check_max};
use crate::fss::dpf::Shape;
use crate::fss::table::Table;
use crate::{MpcError, low_mask, packed_bytes};

/// Widest looked-up number, pieces of lines included.
pub const MAX_SPLINE_BITS: u32 = 40;

/// The lines of a piecewise linear table: `y = 2^shift entry(i) + slope(i) l`.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a> {
    /// Bits of the number below the index of the piece.
    pub low: u32,
    /// Zero bits appended to the entries.
    pub shift: u32,
    /// Slope of each piece.
    pub slopes: &'a [i64],
}

/// Public shape of a batch of look-ups in one table.
#[derive(Clone)]
pub struct LookUp {
    pub(super) n: usize,
    /// Bits of the index of an entry.
    pub(super) bits: u32,
    /// Bits of the number below the index.
    pub(crate) low: u32,
    /// Ring of the result.
    pub(crate) width: u32,
    /// Smallest entry with its zeros appended, in the ring of the result.
    pub(crate) base: u64,
    /// Zero bits appended to the entries.
    shift: u32,
    /// Bits of an entry relative to the smallest.
    entry_bits: u32,
    /// Smallest slope.
    flattest: i64,
    /// Bits of an entry and, above them, of a slope, both relative to the smallest.
    pub(super) out_bits: u32,
    pub(super) table: Arc<Tables>,
}

/// Entries and slopes, relative to the smallest.
pub(super) struct Tables {
    /// From the last index to the first, twice, so that any rotation is a slice.
    pub(super) backwards: Vec<u64>,
    pub(super) keyed: Table,
}

/// A dealt word. A look-up's result is a combination of these words with public coefficients. Q is
/// the low part of the number's mask R.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The mask of an opened bit.
    Bit(u32),
    /// The mask of an opened bit times Q.
    Product(u32),
    /// Q.
    Low,
}

/// Entries relative to the smallest one, the smallest one, and the bits of the relative entries.
fn offsets_from_lowest(entries: &[i64], width: u32) -> Result<(Vec<u64>, i64, u32), MpcError> {
    let low = entries.iter().copied().min().unwrap_or(0);
    let offsets: Vec<u64> = entries.iter().map(|&e| e.wrapping_sub(low) as u64).collect();
    let bits = offsets.iter().copied().max().unwrap_or(0).max(1).ilog2() + 1;
    check_max("the bits between a table's entries", bits as usize, width as usize)?;
    Ok((offsets, low, bits))
}

impl LookUp {
    /// `n` look-ups among `entries`, for the indices `0, 1, ...`, into a ring of `width` bits (2 to
    /// 63).
    ///
    /// # Errors
    /// `OutOfRange`: the number of entries is not `2^k` for a k of 1 to 16, or their range exceeds
    /// the ring.
    pub fn new(n: usize, width: u32, entries: &[i64]) -> Result<Self, MpcError> {
        Self::build(n, width, entries, None)
    }

    /// `n` look-ups in a piecewise linear table with an entry and a slope for each piece.
    ///
    /// # Errors
    /// As [`new`](Self::new). Also `OutOfRange` if the numbers of slopes and entries differ, without low
    /// bits, or with more than [`MAX_SPLINE_BITS`] bits in all. Also if entries and slopes have more than
    /// 64 bits or do not fit the ring.
    pub fn with_lines(n: usize, width: u32, entries: &[i64], lines: Lines<'_>) -> Result<Self, MpcError> {
        Self::build(n, width, entries, Some(lines))
    }

    fn build(n: usize, width: u32, entries: &[i64], lines: Option<Lines<'_>>) -> Result<Self, MpcError> {
        let bits = entries.len().max(1).ilog2();
        if entries.len() != 1 << bits || !(1..=MAX_INDEX_BITS).contains(&bits) {
            return beyond("the entries of a table (a power of two)", entries.len(), 1 << MAX_INDEX_BITS);
        }
        if !(2..64).contains(&width) {
            return beyond("the ring of a table's results", width as usize, 63);
        }
        let (low, shift) = lines.map_or((0, 0), |lines| (lines.low, lines.shift));
        if lines.is_some_and(|lines| lines.low == 0 || lines.slopes.len() != entries.len()) {
            return beyond("the pieces without a slope or low bits", entries.len(), 0);
        }
        if low > MAX_SPLINE_BITS - bits || shift >= width {
            return beyond("the bits of a number that is looked up", bits.saturating_add(low.max(shift)) as usize, 40);
        }
        let (mut above_both, smallest, entry_bits) = offsets_from_lowest(entries, width - shift)?;
        let (mut flattest, mut out_bits) = (0, entry_bits);
        if let Some(lines) = lines {
            let (slopes, least, slope_bits) = offsets_from_lowest(lines.slopes, width)?;
            (flattest, out_bits) = (least, entry_bits + slope_bits);
            check_max("the bits of a piece's entry and slope", out_bits as usize, u64::BITS as usize)?;
            above_both.iter_mut().zip(slopes).for_each(|(entry, slope)| *entry |= slope << entry_bits);
        }
        let backwards = above_both.iter().rev().chain(above_both.iter().rev()).copied().collect();
        let table = Arc::new(Tables { backwards, keyed: Table::new(bits, out_bits, above_both)? });
        let base = (smallest as u64).wrapping_shl(shift) & low_mask(width);
        Ok(Self { n, bits, low, width, base, shift, entry_bits, flattest, out_bits, table })
    }

    /// The same look-ups, `factor` times as many.
    #[must_use]
    pub fn times(&self, factor: usize) -> Self {
        Self { n: factor * self.n, ..self.clone() }
    }

    /// Number of look-ups.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Entries and slopes, relative to the smallest.
    pub(crate) fn entries(&self) -> &Table {
        &self.table.keyed
    }

    /// Ring of the looked-up number.
    pub(crate) fn index_bits(&self) -> u32 {
        self.bits + self.low
    }

    /// The words of a result, in dealing order.
    pub(crate) fn words_dealt(&self) -> Vec<Word> {
        let mut words: Vec<Word> = (0..self.out_bits).map(Word::Bit).collect();
        if self.low > 0 {
            words.extend((self.entry_bits..self.out_bits).map(Word::Product));
            words.push(Word::Low);
        }
        words
    }

    /// The value of a word for the masks of the opened bits and the number's mask.
    pub(crate) fn word(&self, word: Word, masks: u64, secret: u64) -> u64 {
        let low = secret & low_mask(self.low);
        match word {
            Word::Bit(t) => masks >> t & 1,
            Word::Product(t) => (masks >> t & 1).wrapping_neg() & low,
            Word::Low => low,
        }
    }

    /// The word's integer coefficient in the result, for the opened bits and the masked number.
    pub(crate) fn coefficient(&self, word: Word, opened: u64, masked: u64) -> i128 {
        let sign = |t: u32| 1 - 2 * i128::from(opened >> t & 1);
        match word {
            Word::Bit(t) if t < self.entry_bits => sign(t) << (t + self.shift),
            Word::Bit(t) => (sign(t) << (t - self.entry_bits)) * i128::from(masked & low_mask(self.low)),
            Word::Product(t) => -(sign(t) << (t - self.entry_bits)),
            Word::Low => -self.opened_slope(opened),
        }
    }

    /// The slope that follows from the opened bits alone.
    fn opened_slope(&self, opened: u64) -> i128 {
        // An entry may have all 64 bits.
        let slope_bits = (u128::from(opened) >> self.entry_bits) as i128;
        slope_bits + i128::from(self.flattest)
    }

    /// The public addend of a result without its base, in the result's ring.
    pub(crate) fn public(&self, opened: u64, masked: u64) -> u64 {
        let entry = (opened & low_mask(self.entry_bits)).wrapping_shl(self.shift);
        let line = (self.opened_slope(opened) as u64).wrapping_mul(masked & low_mask(self.low));
        entry.wrapping_add(line) & low_mask(self.width)
    }

    /// Bits of a word that affect the result.
    pub(super) fn word_bits(&self, word: Word) -> u32 {
        match word {
            Word::Bit(t) if t < self.entry_bits => self.width - t - self.shift,
            Word::Bit(t) | Word::Product(t) => self.width - (t - self.entry_bits),
            Word::Low => self.width,
        }
    }

    /// Shape of the point functions, if any.
    pub(super) fn keys(&self) -> Option<Shape> {
        (self.bits > ONE_HOT_BITS).then(|| Shape::new(self.bits).expect("an index has at most 16 bits"))
    }

    pub(super) fn words(&self) -> usize {
        (1usize << self.bits).div_ceil(64)
    }

    /// Bytes of the one-hot vectors, or keys, of `len` look-ups.
    pub(super) fn vector_bytes(&self, len: usize) -> usize {
        self.keys().map_or_else(|| 8 * len * self.words(), |shape| shape.bytes(len))
    }

    /// Bytes of the server's material for a block of `len` look-ups.
    pub(super) fn block_bytes(&self, len: usize) -> usize {
        let columns: Vec<u32> = self.words_dealt().into_iter().map(|word| self.word_bits(word)).collect();
        self.vector_bytes(len) + packed_bytes(len, &columns)
    }

    /// Bytes before the blocks: the public seed of keys.
    pub(super) fn head(&self) -> usize {
        if self.keys().is_some() { 16 } else { 0 }
    }

    /// Bytes of the keys that the server forwards, if any.
    pub(in crate::dealt) fn key_bytes(&self) -> Option<usize> {
        self.keys().map(|shape| self.head() + shape.bytes(self.n))
    }

    /// Bytes of the server's material.
    #[must_use]
    pub fn material(&self) -> usize {
        let blocks = (0..block::count(self.n)).map(|i| self.block_bytes(block::range(self.n, i).len()));
        self.head() + blocks.sum::<usize>()
    }

    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> DealtCost {
        let keys = self.key_bytes().unwrap_or(0);
        let [own_aes, hash_aes] = match self.keys() {
            None => [self.stream_blocks(self.words()), 0],
            Some(shape) => [self.n, shape.one_hot_work(self.n).hashes as usize],
        };
        DealtCost {
            up: packed_bytes(self.n, &[self.out_bits, self.width]),
            down: packed_bytes(self.n, &[self.index_bits(), self.out_bits]) + keys,
            exchanges: 1,
            material: self.material(),
            client_aes: own_aes + hash_aes + self.stream_blocks(1 + self.words_dealt().len()),
            server_aes: hash_aes + self.stream_blocks(2) + if hash_aes > 0 { self.n } else { 0 },
        }
    }

    /// Returns the blocks of a stream that has `words` words for each look-up.
    fn stream_blocks(&self, words: usize) -> usize {
        (self.n * words).div_ceil(2)
    }

    /// A block's part of the server's material.
    pub(super) fn block_material<'a>(&self, material: &'a [u8], index: usize) -> &'a [u8] {
        let start = self.head() + index * self.block_bytes(super::super::BLOCK);
        &material[start..][..self.block_bytes(block::range(self.n, index).len())]
    }

    /// The entries for the positions 0, 1, ... of a one-hot vector, for a masked number.
    pub(super) fn shifted(&self, xh: u64) -> &[u64] {
        let count = 1usize << self.bits;
        &self.table.backwards[count - 1 - ((xh >> self.low) as usize & (count - 1))..][..count]
    }
}
