//! Semi-honest keys that end early: distributed point functions on half-trees ([HalfTree], eprint 2022/1431)
//! with leaves of 128 bits ([BGI16], section 3.2.3), read as a comparison or as a one-hot vector.
//!
//! The two roots come from the two parties' seeds, with bit 0 set at the server only. Their sum is
//! an offset of 127 random bits that is unique to this tree. The construction is that of
//! [`compare`](super::compare), with `h = max(N - 7, 0)` levels. The last node `s` becomes a leaf
//! `H'(s) ^ lsb(s) * L` of 128 bits with
//!
//! ```text
//! L = H'(s) ^ H'(s ^ offset) ^ e,      e has a 1 at the low 7 bits of alpha
//! ```
//!
//! so that leaves add up to the one-hot vector of alpha. Bit 0 of two nodes adds up to 1 if alpha
//! lies below, and so to the parity of all one-hot bits below. `[x < alpha]` is the parity of the
//! one-hot bits after x: those of the right siblings where x goes left, and those after x in its
//! own leaf (a comparison from a point function by its prefix sum). One key may be evaluated at any
//! number of points: **many thresholds on one value**.
//!
//! Per key: `16 (h + 1)` bytes, the same for both parties. AES: `2 (h + 1)` at the dealer, `h + 1`
//! per point and party, `2^(h + 1) - 1` for all indices; h + 1 hash keys for every
//! [`GROUP`](super::GROUP) trees. No rounds. Exact. Does not detect a party that deviates; keys
//! with tags do.

use tacit_arith::aes::CcrHash;
use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use zeroize::Zeroizing;

use super::expand::Expander;
use super::group::{Bound, GROUP, Planes};
use super::table::{MAX_TABLE_BITS, Table};
use super::tree_hash::{Place, Purpose, TreeHash, Work};
use crate::error::check_max;
use crate::{MpcError, Role};

const LEAF_BITS: u32 = 7;

/// Public shape of point functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    bits: u32,
}

impl Shape {
    /// Points of `bits` bits (0 to 64).
    ///
    /// # Errors
    /// `OutOfRange` for more.
    pub fn new(bits: u32) -> Result<Self, MpcError> {
        check_max("the bits of a point", bits as usize, 64)?;
        Ok(Self { bits })
    }

    /// Bits of a point.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Levels above the leaves.
    pub fn levels(self) -> u32 {
        self.bits.saturating_sub(LEAF_BITS)
    }

    /// Correction words of a key.
    pub fn words(self) -> usize {
        self.levels() as usize + 1
    }

    /// Bytes of `n` keys, the same for both parties.
    pub fn bytes(self, n: usize) -> usize {
        16 * n * self.words()
    }

    /// The dealer's work for `n` keys.
    pub fn deal_work(self, n: usize) -> Work {
        Work::new(n, self.words(), 2 * self.words())
    }

    /// A party's work for `n` keys at one point each.
    pub fn eval_work(self, n: usize) -> Work {
        Work::new(n, self.words(), self.words())
    }

    /// A party's work for `n` one-hot vectors.
    pub fn one_hot_work(self, n: usize) -> Work {
        Work::new(n, self.words(), (2 << self.levels()) - 1)
    }

    /// The bit of a number that decides at a level.
    fn bit(self, level: u32) -> u32 {
        self.bits - 1 - level
    }

    /// Index of a number in its leaf.
    fn place(self, number: u64) -> u32 {
        (number & crate::low_mask(self.bits.min(LEAF_BITS))) as u32
    }
}

/// Draws the roots of `n` trees; the lowest bit of a root is the party's control bit.
fn roots(role: Role, n: usize, prg: &mut Prg) -> Zeroizing<Vec<Block>> {
    let mut roots = Zeroizing::new(vec![Block::ZERO; n]);
    prg.fill_blocks(&mut roots);
    roots.iter_mut().for_each(|root| *root = Block(root.0 & !1 | u128::from(role == Role::Server)));
    roots
}

/// Deals keys, one for each of `alphas`, of which only the low bits count. Returns the corrections, the same
/// for both parties: by groups of [`GROUP`] trees, in a group by level (leaves last), then by tree. Each
/// party's stream gives one block for each key. Time is independent of `alphas`.
pub fn deal(
    hash: &mut TreeHash,
    place: Place,
    shape: Shape,
    alphas: &[u64],
    client: &mut Prg,
    server: &mut Prg,
) -> Vec<Block> {
    let mut nodes = roots(Role::Client, alphas.len(), client);
    let mut deltas = roots(Role::Server, alphas.len(), server);
    deltas.iter_mut().zip(nodes.iter()).for_each(|(delta, node)| *delta ^= *node);
    let mut corrections = vec![Block::ZERO; alphas.len() * shape.words()];
    for (g, alphas) in alphas.chunks(GROUP).enumerate() {
        let (m, first) = (alphas.len(), g * GROUP);
        let (nodes, deltas) = (&mut nodes[first..first + m], &mut deltas[first..first + m]);
        let mut words = corrections[first * shape.words()..].chunks_exact_mut(m);
        let planes = Planes::new(alphas);
        for (level, out) in (0..shape.levels()).zip(&mut words) {
            hash.at(Purpose::Dpf, place.after(g), level).correct(nodes, deltas, planes.bit(shape.bit(level)), out);
        }
        let leaves = words.next().expect("a word for the leaves follows those of the levels");
        let ccr = hash.at(Purpose::Leaf, place.after(g), 0);
        deltas.iter_mut().zip(nodes.iter()).for_each(|(delta, node)| *delta ^= *node);
        let mut others = Zeroizing::new([Block::ZERO; GROUP]);
        ccr.hash(nodes, Block::ZERO, leaves);
        ccr.hash(deltas, Block::ZERO, &mut others[..m]);
        for ((leaf, other), alpha) in leaves.iter_mut().zip(others.iter()).zip(alphas) {
            *leaf ^= *other ^ Block(1 << shape.place(*alpha));
        }
        hash.count(2 * m * shape.words());
    }
    corrections
}

/// One party's keys of a batch. Wiped on drop.
pub struct Keys {
    shape: Shape,
    roots: Zeroizing<Vec<Block>>,
    corrections: Vec<Block>,
}

impl Keys {
    /// `n` keys: the party draws its roots from the same place of the same stream as the dealer.
    ///
    /// # Errors
    /// `Material` if there are more or fewer corrections than `n` keys have.
    pub fn new(role: Role, shape: Shape, n: usize, prg: &mut Prg, corrections: Vec<Block>) -> Result<Self, MpcError> {
        if n.checked_mul(shape.words()) != Some(corrections.len()) {
            let what = format!("{} correction words for {n} point functions of {} bits", corrections.len(), shape.bits);
            return Err(MpcError::Material { what });
        }
        Ok(Self { shape, roots: roots(role, n, prg), corrections })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// This party's shares of `[x < alpha]` (or `<=`) for the public numbers `points`, of which only the low
    /// bits count. `place` is that of the dealer's call.
    ///
    /// # Panics
    /// If there is not one point for every key.
    pub fn eval(&self, hash: &mut TreeHash, place: Place, points: &[u64], bound: Bound) -> Bits {
        assert_eq!(points.len(), self.len(), "points for {} keys", self.len());
        let shape = self.shape;
        let mut out = Bits::zeros(points.len());
        let mut nodes = self.roots.clone();
        let (mut sums, mut leaves) = (Zeroizing::new([Block::ZERO; GROUP]), Zeroizing::new([Block::ZERO; GROUP]));
        for (g, (points, nodes)) in points.chunks(GROUP).zip(nodes.chunks_mut(GROUP)).enumerate() {
            let m = points.len();
            let sums = &mut sums[..m];
            sums.fill(Block::ZERO);
            let planes = Planes::new(points);
            let mut words = self.words_of(g).chunks_exact(m);
            for (level, corrections) in (0..shape.levels()).zip(&mut words) {
                let ccr = hash.at(Purpose::Dpf, place.after(g), level);
                ccr.descend(nodes, corrections, planes.bit(shape.bit(level)), sums);
            }
            let last = words.next().expect("a word for the leaves follows those of the levels");
            hash.at(Purpose::Leaf, place.after(g), 0).hash(nodes, Block::ZERO, &mut leaves[..m]);
            hash.count(m * shape.words());
            for (i, x) in points.iter().enumerate() {
                let leaf = leaves[i].0 ^ (last[i] & Block::mask(nodes[i].lsb())).0;
                let behind = leaf >> shape.place(*x) >> u32::from(bound == Bound::Below);
                let bit = sums[i].lsb() ^ u64::from(behind.count_ones() & 1);
                out.words_mut()[(g * GROUP + i) / 64] |= bit << (i % 64);
            }
        }
        out
    }

    /// Calls `each` with the index of a key and this party's shares of its one-hot vector. Bit `j`
    /// is bit `j % 128` of block `j / 128`; further bits of the last block have no meaning.
    ///
    /// # Errors
    /// `OutOfRange` if the keys have more than [`MAX_TABLE_BITS`] bits.
    pub fn one_hot(
        &self,
        hash: &mut TreeHash,
        place: Place,
        mut each: impl FnMut(usize, &[Block]),
    ) -> Result<(), MpcError> {
        let shape = self.shape;
        check_max("the bits of a table", shape.bits as usize, MAX_TABLE_BITS as usize)?;
        let mut tree = Expander::new(1 << shape.levels());
        for (g, roots) in self.roots.chunks(GROUP).enumerate() {
            let m = roots.len();
            let levels: Vec<CcrHash> =
                (0..shape.levels()).map(|level| hash.at(Purpose::Dpf, place.after(g), level)).collect();
            let last = hash.at(Purpose::Leaf, place.after(g), 0);
            for (i, root) in roots.iter().enumerate() {
                let mut corrections = self.words_of(g).iter().skip(i).step_by(m).copied();
                let (nodes, leaves, hashes) = tree.run(std::iter::once(*root), &levels, corrections.by_ref());
                let word = corrections.next().expect("a word for the leaves follows those of the levels");
                last.hash(nodes, Block::ZERO, leaves);
                leaves.iter_mut().zip(nodes.iter()).for_each(|(leaf, node)| *leaf ^= word & Block::mask(node.lsb()));
                hash.count(hashes + leaves.len());
                each(g * GROUP + i, leaves);
            }
        }
        Ok(())
    }

    /// This party's XOR shares of `f(v)` for the masked inputs `points`, `v + alpha mod 2^bits`: a look-up in
    /// a public table. Time is independent of the shares.
    ///
    /// # Errors
    /// `OutOfRange` if the keys have more than [`MAX_TABLE_BITS`] bits, or another number than the table.
    ///
    /// # Panics
    /// If there is not one point for every key.
    pub fn look_up(
        &self,
        hash: &mut TreeHash,
        place: Place,
        table: &Table,
        points: &[u64],
    ) -> Result<Vec<u64>, MpcError> {
        assert_eq!(points.len(), self.len(), "points for {} keys", self.len());
        table.check_key_bits(self.shape.bits)?;
        let mut out = vec![0; points.len()];
        self.one_hot(hash, place, |i, leaves| {
            let words = leaves.iter().flat_map(|leaf| [leaf.0 as u64, (leaf.0 >> 64) as u64]);
            for (word, entries) in words.zip(table.shifted(points[i]).chunks(64)) {
                let chosen = entries.iter().enumerate().map(|(j, entry)| entry & (word >> j & 1).wrapping_neg());
                out[i] ^= chosen.fold(0, |sum, entry| sum ^ entry);
            }
        })?;
        Ok(out)
    }

    fn words_of(&self, g: usize) -> &[Block] {
        let (words, m) = (self.shape.words(), GROUP.min(self.len() - g * GROUP));
        &self.corrections[g * GROUP * words..][..m * words]
    }
}
