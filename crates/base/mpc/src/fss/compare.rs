//! Authenticated comparison keys: a half-tree DPF ([HalfTree], eprint 2022/1431) whose offset is the global
//! MAC key. The argument is in `docs/notes/fss.md`.
//!
//! Input: a number `alpha` of N bits at the dealer (a mask), a number `x` of N bits that both parties know
//! (the masked value). Result: blocks `t` at one party and `t'` at the other with
//! `t ^ t' = [x < alpha] * Delta`. The blocks are shares of the bit's tag, and their least significant bits
//! are shares of the bit. Exact.
//!
//! The invariant: at every node `p` of the tree the parties' values add up to
//! `[p is on the path to alpha] * Delta`. A node `s` has the children `left = H(s) ^ lsb(s) * C` and
//! `right = left ^ s` with the level's correction
//!
//! ```text
//! C = H(s) ^ H(s ^ Delta) ^ (1 - bit of alpha) * Delta,      s on the path to alpha
//! ```
//!
//! so that left children add up to `(1 - bit) * Delta` below the path and to 0 elsewhere, and right
//! ones follow. `x < alpha` means that at the first differing bit the path of `alpha` goes right
//! and that of `x` goes left: the sum of the right siblings of the left steps of `x` is the result.
//! Adding the last node of the path of `x` gives `[x <= alpha] * Delta`.
//!
//! A table replaces the first `top` levels: 2^top blocks. The seeded party draws its own from its
//! seed, and the other party gets its own from the dealer. That saves each party a correction and a
//! hash for each level. With `top` = 2 the dealer sends as many bytes in all as without a table,
//! and 32 bytes fewer to the seeded party.
//!
//! Per comparison, L = N - top: corrections `16 L` bytes to each party, tables `16 * 2^top` bytes to the
//! party without the seed, no rounds. AES: `2 L` at the dealer, `L` at each party, and L keys for every
//! [`GROUP`](super::GROUP) trees.

use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use zeroize::Zeroizing;

use super::delta::Delta;
use super::group::{Bound, GROUP, Planes, equal};
use super::tree_hash::{Place, Purpose, TreeHash, Work};
use crate::MpcError;
use crate::error::{beyond, check_max};

/// The most levels that a table replaces.
pub const MAX_TOP: u32 = 8;

/// Public shape of comparison keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    bits: u32,
    low: u32,
    top: u32,
}

impl Shape {
    /// Keys for numbers of `bits` bits (1 to 64), with the cheapest table.
    ///
    /// # Errors
    /// `OutOfRange` for other numbers of bits.
    pub fn new(bits: u32) -> Result<Self, MpcError> {
        if !(1..=64).contains(&bits) {
            return beyond("the number of compared bits, which is at least 1,", bits as usize, 64);
        }
        Ok(Self { bits, low: 0, top: bits.min(2) })
    }

    /// Keys with a table for the first `top` levels.
    ///
    /// # Errors
    /// `OutOfRange` if there are fewer levels, or for more than [`MAX_TOP`].
    pub fn with_top(self, top: u32) -> Result<Self, MpcError> {
        check_max("the levels that a table stands for", top as usize, self.bits.min(MAX_TOP) as usize)?;
        Ok(Self { top, ..self })
    }

    /// Compares `floor(x / 2^low)` and `floor(alpha / 2^low)`.
    ///
    /// # Errors
    /// `OutOfRange` if the compared bits do not fit above `low` in 64.
    pub fn with_dropped_bits(self, low: u32) -> Result<Self, MpcError> {
        check_max("the dropped bits", low as usize, (64 - self.bits) as usize)?;
        Ok(Self { low, ..self })
    }

    /// Compared bits.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Levels with a correction.
    pub fn levels(self) -> u32 {
        self.bits - self.top
    }

    /// Blocks of the table.
    pub fn tops(self) -> usize {
        1 << self.top
    }

    /// Bytes of the tables of `n` keys, for the party without the seed.
    pub fn tops_bytes(self, n: usize) -> usize {
        16 * n * self.tops()
    }

    /// Bytes of the corrections of `n` keys, the same for both parties.
    pub fn corrections_bytes(self, n: usize) -> usize {
        16 * n * self.levels() as usize
    }

    /// The dealer's work for `n` keys.
    pub fn deal_work(self, n: usize) -> Work {
        Work::new(n, self.levels() as usize, 2 * self.levels() as usize)
    }

    /// A party's work for `n` comparisons.
    pub fn eval_work(self, n: usize) -> Work {
        Work::new(n, self.levels() as usize, self.levels() as usize)
    }

    pub(super) fn compared(self, number: u64) -> u64 {
        number >> self.low & crate::low_mask(self.bits)
    }

    /// Index in the table.
    fn top_of(self, number: u64) -> u64 {
        // Two shifts, because `low` and the levels may be 64 bits together.
        self.compared(number) >> (self.levels() / 2) >> self.levels().div_ceil(2)
    }

    /// The bit of a number that decides at a level.
    fn bit(self, level: u32) -> u32 {
        self.low + self.levels() - 1 - level
    }
}

/// The dealer's output for a batch. Order of both parts: by groups of [`GROUP`](super::GROUP)
/// trees; in a group by table index or by level; then by tree.
pub struct Dealt {
    /// For the party without the seed.
    pub tops: Zeroizing<Vec<Block>>,
    /// For both parties.
    pub corrections: Vec<Block>,
}

/// Deals keys, one for each of `alphas`, of which only the compared bits count. The seeded party draws its
/// tables from `seeded`, [`Shape::tops`] blocks a key. Time is independent of `alphas`.
pub fn deal(hash: &mut TreeHash, place: Place, shape: Shape, delta: &Delta, alphas: &[u64], seeded: &mut Prg) -> Dealt {
    let (n, levels) = (alphas.len(), shape.levels() as usize);
    let mut tops = Zeroizing::new(vec![Block::ZERO; n * shape.tops()]);
    seeded.fill_blocks(&mut tops);
    let mut corrections = vec![Block::ZERO; n * levels];
    let deltas = Zeroizing::new([delta.block(); GROUP]);
    let mut nodes = Zeroizing::new([Block::ZERO; GROUP]);
    for (g, alphas) in alphas.chunks(GROUP).enumerate() {
        let (m, first) = (alphas.len(), g * GROUP);
        let nodes = &mut nodes[..m];
        nodes.fill(Block::ZERO);
        for (j, row) in tops[first * shape.tops()..].chunks_mut(m).take(shape.tops()).enumerate() {
            for ((block, node), alpha) in row.iter_mut().zip(nodes.iter_mut()).zip(alphas) {
                let hit = equal(shape.top_of(*alpha), j as u64);
                *node ^= *block & hit;
                *block ^= delta.block() & hit;
            }
        }
        let planes = Planes::new(alphas);
        for (level, out) in (0..).zip(corrections[first * levels..][..m * levels].chunks_exact_mut(m)) {
            let ccr = hash.at(Purpose::Authenticated, place.after(g), level);
            ccr.correct(nodes, &deltas[..m], planes.bit(shape.bit(level)), out);
            hash.count(2 * m);
        }
    }
    Dealt { tops, corrections }
}

/// One party's keys of a batch. Wiped on drop.
pub struct Keys {
    shape: Shape,
    n: usize,
    tops: Zeroizing<Vec<Block>>,
    corrections: Vec<Block>,
}

impl Keys {
    /// `n` keys from the dealer's bytes, as in [`Dealt`].
    ///
    /// # Errors
    /// `Material` if there are more or fewer blocks than `n` keys have.
    pub fn new(shape: Shape, n: usize, tops: Zeroizing<Vec<Block>>, corrections: Vec<Block>) -> Result<Self, MpcError> {
        for (what, got, want) in [
            ("blocks of tables", tops.len(), n.checked_mul(shape.tops())),
            ("correction words", corrections.len(), n.checked_mul(shape.levels() as usize)),
        ] {
            if want != Some(got) {
                let what = format!("{got} {what} for {n} comparison keys of {} bits", shape.bits);
                return Err(MpcError::Material { what });
            }
        }
        Ok(Self { shape, n, tops, corrections })
    }

    /// The seeded party's keys: it draws its tables from the same place of the same stream as the dealer.
    ///
    /// # Errors
    /// `Material` if there are more or fewer corrections than `n` keys have.
    pub fn seeded(shape: Shape, n: usize, seeded: &mut Prg, corrections: Vec<Block>) -> Result<Self, MpcError> {
        // Checked before any allocation.
        let keys = Self::new(shape, 0, Zeroizing::default(), Vec::new())?;
        if n.checked_mul(shape.levels() as usize) != Some(corrections.len()) {
            return Self::new(shape, n, keys.tops, corrections);
        }
        let mut tops = Zeroizing::new(vec![Block::ZERO; n * shape.tops()]);
        seeded.fill_blocks(&mut tops);
        Self::new(shape, n, tops, corrections)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Their shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Writes this party's shares of `[x < alpha] * Delta` (or `<=`) for the public numbers `points`, of
    /// which only the compared bits count. `place` is that of the dealer's call.
    ///
    /// # Panics
    /// If there is not one point and one result for every key.
    pub fn eval(&self, hash: &mut TreeHash, place: Place, points: &[u64], bound: Bound, out: &mut [Block]) {
        assert!(points.len() == self.n && out.len() == self.n, "a point and a result for each of {} keys", self.n);
        let shape = self.shape;
        let mut nodes = Zeroizing::new([Block::ZERO; GROUP]);
        for (g, (points, sums)) in points.chunks(GROUP).zip(out.chunks_mut(GROUP)).enumerate() {
            let (m, nodes) = (points.len(), &mut nodes[..points.len()]);
            nodes.fill(Block::ZERO);
            sums.fill(Block::ZERO);
            for (j, row) in self.tops_of(g).chunks_exact(m).enumerate() {
                for (((block, node), sum), x) in row.iter().zip(nodes.iter_mut()).zip(sums.iter_mut()).zip(points) {
                    // The points are public, but too irregular to branch on.
                    let top = shape.top_of(*x);
                    *node ^= *block & equal(top, j as u64);
                    *sum ^= *block & Block::mask(top.wrapping_sub(j as u64) >> 63);
                }
            }
            let planes = Planes::new(points);
            for (level, corrections) in (0..).zip(self.corrections_of(g).chunks_exact(m)) {
                let ccr = hash.at(Purpose::Authenticated, place.after(g), level);
                ccr.descend(nodes, corrections, planes.bit(shape.bit(level)), sums);
                hash.count(m);
            }
            if bound == Bound::AtMost {
                sums.iter_mut().zip(nodes).for_each(|(sum, node)| *sum ^= *node);
            }
        }
    }

    pub(super) fn group_len(&self, g: usize) -> usize {
        GROUP.min(self.n - g * GROUP)
    }

    /// The tables of group `g`, by place in the table, then by tree.
    pub(super) fn tops_of(&self, g: usize) -> &[Block] {
        let tops = self.shape.tops();
        &self.tops[g * GROUP * tops..][..self.group_len(g) * tops]
    }

    /// The corrections of group `g`, by level, then by tree.
    pub(super) fn corrections_of(&self, g: usize) -> &[Block] {
        let levels = self.shape.levels() as usize;
        &self.corrections[g * GROUP * levels..][..self.group_len(g) * levels]
    }
}
