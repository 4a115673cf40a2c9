//! Authenticated look-up tables: the keys of [`compare`](super::compare), evaluated at every index.
//! The leaves are shares of `[j = alpha] * Delta`, a one-hot vector with tags. Linear functions of
//! the bits follow locally, tag included. A tree with tags cannot end early: every entry needs its
//! own 128 bits.
//!
//! Look-up of k bits: the parties know `x = v + alpha mod 2^k`; bit `t` of `f(v)` is the sum over j of
//! `[j = alpha] f_t(x - j)`. Result: shares of `f_t(v) * Delta` for every output bit. Exact, no rounds; the
//! result is as secret as any share.
//!
//! Per look-up: the bytes of a comparison key; `2^k - 2^top` AES; and for each 8 output bits `2^k + 1024`
//! additions of blocks.

use tacit_arith::aes::CcrHash;
use tacit_arith::block::Block;
use zeroize::Zeroizing;

use super::compare::{Keys, Shape};
use super::expand::Expander;
use super::group::GROUP;
use super::tree_hash::{Place, Purpose, TreeHash, Work};
use crate::MpcError;
use crate::error::{beyond, check_max};

/// The widest authenticated table, in bits of its input.
pub const MAX_BITS: u32 = 12;

/// The widest table of all, in bits of its input.
pub const MAX_TABLE_BITS: u32 = 16;

/// A public function of `bits` bits: entry `v` is `f(v)`.
pub struct Table {
    bits: u32,
    out_bits: u32,
    /// `f` from its last index to its first, twice, so that any rotation is a slice.
    backwards: Vec<u64>,
}

impl Table {
    /// A function of numbers of `bits` bits, with results of `out_bits` bits.
    ///
    /// # Errors
    /// `OutOfRange` if the entries are not `2^bits`, or one has more than `out_bits` bits.
    pub fn new(bits: u32, out_bits: u32, entries: Vec<u64>) -> Result<Self, MpcError> {
        check_max("the bits of a table's input", bits as usize, MAX_TABLE_BITS as usize)?;
        check_max("the bits of a table's results", out_bits as usize, 64)?;
        let missing = (1usize << bits).abs_diff(entries.len());
        check_max("the difference between a table's entries and its places", missing, 0)?;
        let mask = crate::low_mask(out_bits);
        if let Some(&v) = entries.iter().find(|&&v| v > mask) {
            return beyond("an entry of a table", v as usize, mask as usize);
        }
        let backwards = entries.iter().rev().chain(entries.iter().rev()).copied().collect();
        Ok(Self { bits, out_bits, backwards })
    }

    /// Checks that the table's input has as many bits as its keys.
    pub(super) fn check_key_bits(&self, bits: u32) -> Result<(), MpcError> {
        check_max("the difference in bits between a table and its keys", bits.abs_diff(self.bits) as usize, 0)
    }

    /// Bits of the input.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Bits of a result.
    pub fn out_bits(&self) -> u32 {
        self.out_bits
    }

    /// The entries for the indices `j` = 0, 1, ... of a one-hot vector for the masked input `x`.
    pub(super) fn shifted(&self, x: u64) -> &[u64] {
        let n = 1 << self.bits;
        &self.backwards[n - 1 - (x as usize & (n - 1))..][..n]
    }
}

/// A party's work for `n` look-ups with keys of a shape.
pub fn work(shape: Shape, n: usize) -> Work {
    Work::new(n, shape.levels() as usize, (1 << shape.bits()) - shape.tops())
}

/// Calls `each` with the number of a key and this party's shares of its one-hot vector times Delta, `2^bits`
/// blocks.
///
/// # Errors
/// `OutOfRange` if the keys have more than [`MAX_BITS`] bits.
pub fn one_hot(
    keys: &Keys,
    hash: &mut TreeHash,
    place: Place,
    mut each: impl FnMut(usize, &[Block]),
) -> Result<(), MpcError> {
    let shape = keys.shape();
    check_max("the bits of a table with tags", shape.bits() as usize, MAX_BITS as usize)?;
    let mut tree = Expander::new(1 << shape.bits());
    for g in 0..keys.len().div_ceil(GROUP) {
        let m = keys.group_len(g);
        let levels: Vec<CcrHash> =
            (0..shape.levels()).map(|level| hash.at(Purpose::Authenticated, place.after(g), level)).collect();
        for i in 0..m {
            let tops = keys.tops_of(g)[i..].iter().step_by(m).copied();
            let corrections = keys.corrections_of(g).iter().skip(i).step_by(m).copied();
            let (leaves, _, hashes) = tree.run(tops, &levels, corrections);
            hash.count(hashes);
            each(g * GROUP + i, leaves);
        }
    }
    Ok(())
}

/// Writes this party's shares of `f_t(v) * Delta`: bit `t` of key `i` at `out[i * out_bits + t]`, for the
/// masked inputs `points`, of which only the table's bits count.
///
/// # Errors
/// `OutOfRange` if the keys have more than [`MAX_BITS`] bits, or another number than the table.
///
/// # Panics
/// If there is not one point and `out_bits` results for every key.
pub fn look_up(
    keys: &Keys,
    hash: &mut TreeHash,
    place: Place,
    table: &Table,
    points: &[u64],
    out: &mut [Block],
) -> Result<(), MpcError> {
    table.check_key_bits(keys.shape().bits())?;
    let out_bits = table.out_bits as usize;
    assert!(
        points.len() == keys.len() && out.len() == keys.len() * out_bits,
        "a point and {out_bits} results for each key"
    );
    let mut buckets = Zeroizing::new([Block::ZERO; 256]);
    one_hot(keys, hash, place, |i, leaves| {
        for (byte, out) in out[i * out_bits..][..out_bits].chunks_mut(8).enumerate() {
            buckets.fill(Block::ZERO);
            for (leaf, entry) in leaves.iter().zip(table.shifted(points[i])) {
                buckets[(entry >> (8 * byte)) as usize & 255] ^= *leaf;
            }
            for (t, out) in out.iter_mut().enumerate() {
                let chosen = buckets.iter().enumerate().filter(|(value, _)| value >> t & 1 == 1);
                *out = chosen.fold(Block::ZERO, |sum, (_, block)| sum ^ *block);
            }
        }
    })
}
