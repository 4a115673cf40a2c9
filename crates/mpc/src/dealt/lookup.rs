//! Look-ups in a public table of up to 2^16 entries, with dealt material.
//!
//! As in a gate the server opens `xh = x + R mod 2^k`, `R = rho - c`, over the whole ring of the index. Both
//! parties hold XOR shares of the one-hot vector of R: `T(x) = sum_j [j = R] T(xh - j)` is local, bit by bit
//! of the result. The bits are opened under masks, of which arithmetic shares were dealt:
//! ```text
//! y = base + sum_t 2^t (o_t + (1 - 2 o_t) M_t)       M_t in the ring of w - t bits
//! ```
//! * up to [`ONE_HOT_BITS`] bits the server is given the difference of the one-hot vectors: `2^k` bits (at
//!   least 64);
//! * above that both have keys of an early-terminated point function ([`crate::fss::dpf`]): `16 (k - 6)`
//!   bytes, the same for both, which the server passes on online, so that the client's half is still a seed.
//!
//! Cost of a look-up from k bits to m bits in a ring of w: material `2^k` bits or the key, and
//! `sum (w - t)` bits for t below m, at the server; online `k + m` bits (and the key) down, `m + w` bits up,
//! one exchange. A batch with keys has a public seed of 16 bytes more in both. Exact for every index.
//! Semi-honest.

use std::sync::Arc;

use rayon::prelude::*;
use tacit_arith::block::Block;
use tacit_arith::pack;
use tacit_arith::prg::{Prg, PublicSeed};
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::{DealtCost, block};
use crate::fss::GROUP;
use crate::fss::dpf::{self, Keys, Shape};
use crate::fss::table::{MAX_TABLE_BITS, Table};
use crate::fss::tree_hash::{Place, TreeHash};
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, low_mask};

const OPENED: Tag = Tag::new(0x0356, "masked indices of a table");
const KEYS: Tag = Tag::new(0x0357, "keys of point functions");
const BITS: Tag = Tag::new(0x0358, "masked results of a table");
const MOVE: Tag = Tag::new(0x0359, "share difference of a table's results");

/// The widest index whose one-hot vector is dealt as it is.
pub const ONE_HOT_BITS: u32 = 8;
/// The widest index.
pub const MAX_INDEX_BITS: u32 = MAX_TABLE_BITS;

/// Public shape of a batch of look-ups in one table.
#[derive(Clone)]
pub struct LookUp {
    pub(super) n: usize,
    /// Bits of the index.
    pub(super) bits: u32,
    /// Ring of the result.
    pub(super) width: u32,
    /// Smallest entry, in the ring of the result.
    base: u64,
    /// Bits of an entry above that.
    pub(super) out_bits: u32,
    table: Arc<Tables>,
}

/// Entries above the smallest one.
struct Tables {
    /// From the last place to the first, twice: any shift of it is a slice.
    backwards: Vec<u64>,
    keyed: Table,
}

impl LookUp {
    /// `n` look-ups among `entries`, those of the indices `0, 1, ...`, into a ring of `width` bits (2 to 63).
    ///
    /// # Errors
    /// `OutOfRange`: the entries are not `2^k` for a k of 1 to 16, or lie farther apart than the ring is
    /// large.
    pub fn new(n: usize, width: u32, entries: &[i64]) -> Result<Self, MpcError> {
        let range = |what, got: usize, max| Err(MpcError::OutOfRange { what, max, got });
        let bits = entries.len().max(1).ilog2();
        if entries.len() != 1 << bits || !(1..=MAX_INDEX_BITS).contains(&bits) {
            return range("the entries of a table (a power of two)", entries.len(), 1 << MAX_INDEX_BITS);
        }
        if !(2..64).contains(&width) {
            return range("the ring of a table's results", width as usize, 63);
        }
        let low = entries.iter().copied().min().expect("there are two entries at least");
        let above: Vec<u64> = entries.iter().map(|&e| e.wrapping_sub(low) as u64).collect();
        let most = above.iter().copied().max().expect("there are two entries at least").max(1);
        let out_bits = most.ilog2() + 1;
        if out_bits > width {
            return range("the bits between a table's entries", out_bits as usize, width as usize);
        }
        let backwards = above.iter().rev().chain(above.iter().rev()).copied().collect();
        let table = Arc::new(Tables { backwards, keyed: Table::new(bits, out_bits, above)? });
        Ok(Self { n, bits, width, base: low as u64 & low_mask(width), out_bits, table })
    }

    /// `factor` times as many look-ups in the same table.
    #[must_use]
    pub fn times(&self, factor: usize) -> Self {
        Self { n: factor * self.n, ..self.clone() }
    }

    /// Number of look-ups.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Entries above the smallest one.
    pub(crate) fn entries(&self) -> &Table {
        &self.table.keyed
    }

    /// The smallest entry, in the ring of the result.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Ring of the result.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// Shape of the point functions, if there are any.
    fn keys(&self) -> Option<Shape> {
        let shape = || Shape::new(self.bits).expect("an index has at most 16 bits");
        (self.bits > ONE_HOT_BITS).then(shape)
    }

    /// Words of a one-hot vector.
    fn words(&self) -> usize {
        (1usize << self.bits).div_ceil(64)
    }

    /// Bytes of the one-hot vectors, or keys, of `len` look-ups.
    fn vector_bytes(&self, len: usize) -> usize {
        self.keys().map_or_else(|| 8 * len * self.words(), |shape| shape.bytes(len))
    }

    fn block_bytes(&self, len: usize) -> usize {
        let columns = (0..self.out_bits).map(|t| (len * (self.width - t) as usize).div_ceil(8));
        self.vector_bytes(len) + columns.sum::<usize>()
    }

    /// Bytes in front of the blocks: the public seed of keys.
    fn head(&self) -> usize {
        if self.keys().is_some() { 16 } else { 0 }
    }

    /// Bytes of the keys that the server passes on, if there are any.
    pub(super) fn key_bytes(&self) -> Option<usize> {
        self.keys().map(|shape| self.head() + shape.bytes(self.n))
    }

    /// Bytes that the server is given.
    #[must_use]
    pub fn material(&self) -> usize {
        let blocks = (0..block::count(self.n)).map(|i| self.block_bytes(block::range(self.n, i).len()));
        self.head() + blocks.sum::<usize>()
    }

    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> DealtCost {
        let packed = |width: u32| (self.n * width as usize).div_ceil(8);
        let keys = self.key_bytes().unwrap_or(0);
        let drawn = |words: usize| (self.n * words).div_ceil(2);
        let [own, hashed] = match self.keys() {
            None => [drawn(self.words()), 0],
            Some(shape) => [self.n, shape.one_hot_work(self.n).hashes as usize],
        };
        DealtCost {
            up: packed(self.out_bits) + packed(self.width),
            down: packed(self.bits) + packed(self.out_bits) + keys,
            exchanges: 1,
            material: self.material(),
            client_aes: own + hashed + drawn(1 + self.out_bits as usize),
            server_aes: hashed + drawn(2) + if hashed > 0 { self.n } else { 0 },
        }
    }

    /// A block's part of what the server is given.
    fn given<'a>(&self, given: &'a [u8], index: usize) -> &'a [u8] {
        let at = self.head() + index * self.block_bytes(super::BLOCK);
        &given[at..][..self.block_bytes(block::range(self.n, index).len())]
    }

    /// The entries that belong to the places 0, 1, ... of a one-hot vector, for a masked index.
    fn shifted(&self, xh: u64) -> &[u64] {
        let count = 1usize << self.bits;
        &self.table.backwards[count - 1 - (xh as usize & (count - 1))..][..count]
    }
}

/// The streams of one party for a block.
struct Streams<'a> {
    prg: &'a Prg,
    index: u64,
}

impl<'a> Streams<'a> {
    fn new(prg: &'a Prg, index: usize) -> Self {
        Self { prg, index: index as u64 }
    }

    /// One-hot vectors, or roots of point functions.
    fn vectors(&self) -> Prg {
        self.prg.fork(3 * self.index)
    }

    /// Masks of bits, then (at the client) their columns.
    fn masks(&self) -> Prg {
        self.prg.fork(3 * self.index + 1)
    }

    /// At the server: masks of indices.
    fn indices(&self) -> Prg {
        self.prg.fork(3 * self.index + 2)
    }
}

fn draw(prg: &mut Prg, count: usize, width: u32) -> Zeroizing<Vec<u64>> {
    let mut out = Zeroizing::new(vec![0; count]);
    prg.fill_u64(&mut out);
    out.iter_mut().for_each(|v| *v &= low_mask(width));
    out
}

/// The public seed of a batch's keys.
fn public_seed(server: &Prg) -> [u8; 16] {
    server.fork(u64::MAX).seed().0
}

fn place(index: usize) -> Place {
    let group = index * super::BLOCK / GROUP;
    Place { batch: 0, group: u32::try_from(group).expect("a batch has fewer than 2^40 look-ups") }
}

/// What the server gets for a batch of look-ups whose index the client shares as `c` (`[n]`, modulo `2^k`),
/// in pieces. Deterministic.
///
/// # Errors
/// Those of `sink`.
pub fn deal_look_up<E>(
    spec: &LookUp,
    c: &[u64],
    [client, server]: [&Prg; 2],
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let seed = public_seed(server);
    if spec.keys().is_some() {
        sink(&seed)?;
    }
    let one = |index: usize| {
        let c = &c[block::range(spec.n, index)];
        dealt(spec, c, (Streams::new(client, index), Streams::new(server, index)), (seed, index))
    };
    for first in (0..block::count(spec.n)).step_by(block::AT_ONCE) {
        let last = (first + block::AT_ONCE).min(block::count(spec.n));
        let blocks: Vec<Zeroizing<Vec<u8>>> = (first..last).into_par_iter().map(one).collect();
        blocks.iter().try_for_each(|block| sink(block))?;
    }
    Ok(())
}

fn dealt(
    spec: &LookUp,
    c: &[u64],
    (client, server): (Streams<'_>, Streams<'_>),
    (seed, index): ([u8; 16], usize),
) -> Zeroizing<Vec<u8>> {
    let len = c.len();
    let mut secrets = draw(&mut server.indices(), len, spec.bits);
    secrets.iter_mut().zip(c).for_each(|(rho, c)| *rho = rho.wrapping_sub(*c) & low_mask(spec.bits));
    let mut out = Zeroizing::new(Vec::with_capacity(spec.block_bytes(len) + 8));
    match spec.keys() {
        None => {
            let words = spec.words();
            let mut vectors = draw(&mut client.vectors(), len * words, 64);
            for (vector, r) in vectors.chunks_exact_mut(words).zip(secrets.iter()) {
                for (w, word) in vector.iter_mut().enumerate() {
                    let apart = (r >> 6) ^ w as u64;
                    *word ^= (1 ^ (apart | apart.wrapping_neg()) >> 63) << (r & 63);
                }
            }
            vectors.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        Some(shape) => {
            let mut hash = TreeHash::new(PublicSeed::from_bytes(seed));
            let (mut ours, mut theirs) = (client.vectors(), server.vectors());
            let words = dpf::deal(&mut hash, place(index), shape, &secrets, &mut ours, &mut theirs);
            words.iter().for_each(|word| out.extend_from_slice(&word.to_bytes()));
        }
    }
    let mut own = client.masks();
    let mut masks = draw(&mut own, len, spec.out_bits);
    masks.iter_mut().zip(draw(&mut server.masks(), len, spec.out_bits).iter()).for_each(|(a, b)| *a ^= b);
    for t in 0..spec.out_bits {
        let mut column = draw(&mut own, len, 64);
        column.iter_mut().zip(masks.iter()).for_each(|(a, mask)| *a = (mask >> t & 1).wrapping_sub(*a));
        pack::pack(column.iter().copied(), spec.width - t, &mut out);
    }
    out
}

/// One party's half of a batch.
enum Half<'a> {
    /// With all keys, where there are any.
    Client {
        prg: &'a Prg,
        keys: &'a [u8],
    },
    Server {
        prg: &'a Prg,
        given: &'a [u8],
    },
}

impl Half<'_> {
    /// The party's XOR shares of a block's results, under its masks.
    fn masked(&self, spec: &LookUp, index: usize, xh: &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let (role, prg) = match self {
            Self::Client { prg, .. } => (Role::Client, prg),
            Self::Server { prg, .. } => (Role::Server, prg),
        };
        let (streams, len) = (Streams::new(prg, index), xh.len());
        let mut out = draw(&mut streams.masks(), len, spec.out_bits);
        match spec.keys() {
            Some(shape) => {
                let (seed, words) = match self {
                    Self::Client { keys, .. } => {
                        let at = spec.head() + index * shape.bytes(super::BLOCK);
                        (keys, &keys[at..][..shape.bytes(len)])
                    }
                    Self::Server { given, .. } => (given, &spec.given(given, index)[..shape.bytes(len)]),
                };
                let seed = *seed.first_chunk().expect("keys have a seed in front");
                let words = words.as_chunks().0.iter().map(|word| Block::from_bytes(*word)).collect();
                let keys = Keys::new(role, shape, len, &mut streams.vectors(), words)?;
                let mut hash = TreeHash::new(PublicSeed::from_bytes(seed));
                let shares = Zeroizing::new(keys.look_up(&mut hash, place(index), &spec.table.keyed, xh)?);
                out.iter_mut().zip(shares.iter()).for_each(|(mask, share)| *mask ^= share);
            }
            None => {
                let words = spec.words();
                let vectors = match self {
                    Self::Client { .. } => draw(&mut streams.vectors(), len * words, 64),
                    Self::Server { given, .. } => {
                        let bytes = &spec.given(given, index)[..spec.vector_bytes(len)];
                        Zeroizing::new(bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect())
                    }
                };
                for ((mask, vector), xh) in out.iter_mut().zip(vectors.chunks_exact(words)).zip(xh) {
                    *mask ^= chosen(vector, spec.shifted(*xh));
                }
            }
        }
        Ok(out)
    }

    /// The party's shares of a block's results in their ring, from the opened bits.
    fn shares(&self, spec: &LookUp, index: usize, opened: &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let len = opened.len();
        let (mut stream, mut rest, base) = match self {
            Self::Client { prg, .. } => {
                let mut stream = Streams::new(prg, index).masks();
                drop(draw(&mut stream, len, spec.out_bits));
                (Some(stream), &[][..], None)
            }
            Self::Server { given, .. } => (None, &spec.given(given, index)[spec.vector_bytes(len)..], Some(spec.base)),
        };
        let mut out = Zeroizing::new(vec![base.unwrap_or(0); len]);
        for t in 0..spec.out_bits {
            let width = spec.width - t;
            let column = match &mut stream {
                Some(stream) => draw(stream, len, 64),
                None => {
                    let (now, later) = rest.split_at((len * width as usize).div_ceil(8));
                    rest = later;
                    let values = pack::unpack(now, len, width, u64::MAX);
                    Zeroizing::new(values.map_err(|e| MpcError::Material { what: e.to_string() })?)
                }
            };
            for ((sum, o), m) in out.iter_mut().zip(opened).zip(column.iter()) {
                let o = o >> t & 1;
                let public = if base.is_some() { o } else { 0 };
                let term = public.wrapping_add(1u64.wrapping_sub(2 * o).wrapping_mul(*m));
                *sum = sum.wrapping_add(term << t);
            }
        }
        out.iter_mut().for_each(|v| *v &= low_mask(spec.width));
        Ok(out)
    }

    fn all<T: Send>(
        spec: &LookUp,
        of: &[u64],
        one: impl Fn(usize, &[u64]) -> Result<T, MpcError> + Sync,
    ) -> Result<Vec<T>, MpcError> {
        (0..block::count(spec.n)).into_par_iter().map(|index| one(index, &of[block::range(spec.n, index)])).collect()
    }
}

/// The entries where a share of a one-hot vector is 1, added up. Time does not depend on the vector.
fn chosen(vector: &[u64], entries: &[u64]) -> u64 {
    vector.iter().zip(entries.chunks(64)).fold(0, |sum, (word, entries)| {
        entries.iter().enumerate().fold(sum, |sum, (j, entry)| sum ^ (entry & (word >> j & 1).wrapping_neg()))
    })
}

fn joined(parts: &[Zeroizing<Vec<u64>>]) -> Zeroizing<Vec<u64>> {
    Zeroizing::new(parts.iter().flat_map(|part| part.iter().copied()).collect())
}

fn xor(a: &[u64], b: &[u64]) -> Zeroizing<Vec<u64>> {
    Zeroizing::new(a.iter().zip(b).map(|(a, b)| a ^ b).collect())
}

/// The client's online part: its share ends as `target` (`[n]`, in the ring of the results). `prg` is the
/// stream that [`deal_look_up`] was given for it.
///
/// # Errors
/// Channel errors; `Material` if what the server passes on is no key.
pub fn client_look_up(spec: &LookUp, target: &[u64], prg: &Prg, session: &mut Session<'_>) -> Result<(), MpcError> {
    let xh = session.channel.recv_packed(OPENED, spec.n, spec.bits)?;
    let keys = match spec.keys() {
        Some(shape) => session.channel.recv(KEYS, spec.head() + shape.bytes(spec.n))?,
        None => Vec::new(),
    };
    let theirs = session.channel.recv_packed(BITS, spec.n, spec.out_bits)?;
    if spec.keys().is_some_and(|shape| keys.len() != spec.head() + shape.bytes(spec.n)) {
        return Err(MpcError::Material { what: format!("{} bytes of keys for {} look-ups", keys.len(), spec.n) });
    }
    let half = Half::Client { prg, keys: &keys };
    let mine = joined(&Half::all(spec, &xh, |index, xh| half.masked(spec, index, xh))?);
    session.channel.send_packed(BITS, &mine, spec.out_bits)?;
    let opened = xor(&mine, &theirs);
    let shares = Half::all(spec, &opened, |index, opened| half.shares(spec, index, opened))?;
    let shares = joined(&shares);
    let moved = shares.iter().zip(target).map(|(y, r)| y.wrapping_sub(*r)).collect::<Vec<u64>>();
    let moved = Zeroizing::new(moved);
    Ok(session.channel.send_packed(MOVE, &moved, spec.width)?)
}

/// The server's online part: its shares of the results (`[n]`) for its shares `s` of the indices (`[n]`);
/// `prg` is its stream and `given` what [`deal_look_up`] made.
///
/// # Errors
/// Channel errors; `Material` if `given` is not of these look-ups.
pub fn server_look_up(
    spec: &LookUp,
    s: &[u64],
    (prg, given): (&Prg, &[u8]),
    session: &mut Session<'_>,
) -> Result<Vec<u64>, MpcError> {
    if given.len() != spec.material() {
        let what = format!("{} bytes for a batch of look-ups, {} expected", given.len(), spec.material());
        return Err(MpcError::Material { what });
    }
    let half = Half::Server { prg, given };
    let masked = |index: usize, s: &[u64]| {
        let rho = draw(&mut Streams::new(prg, index).indices(), s.len(), spec.bits);
        Ok(Zeroizing::new(s.iter().zip(rho.iter()).map(|(s, r)| s.wrapping_add(*r) & low_mask(spec.bits)).collect()))
    };
    let xh = joined(&Half::all(spec, s, masked)?);
    session.channel.send_packed(OPENED, &xh, spec.bits)?;
    if let Some(shape) = spec.keys() {
        let of = |index: usize| &spec.given(given, index)[..shape.bytes(block::range(spec.n, index).len())];
        let parts: Vec<&[u8]> =
            std::iter::once(&given[..spec.head()]).chain((0..block::count(spec.n)).map(of)).collect();
        session.channel.send(KEYS, &parts.concat())?;
    }
    let mine = joined(&Half::all(spec, &xh, |index, xh| half.masked(spec, index, xh))?);
    session.channel.send_packed(BITS, &mine, spec.out_bits)?;
    let theirs = session.channel.recv_packed(BITS, spec.n, spec.out_bits)?;
    let opened = xor(&mine, &theirs);
    let parts = Half::all(spec, &opened, |index, opened| half.shares(spec, index, opened))?;
    let mut shares = joined(&parts).to_vec();
    let moved = Zeroizing::new(session.channel.recv_packed(MOVE, spec.n, spec.width)?);
    shares.iter_mut().zip(moved.iter()).for_each(|(y, d)| *y = y.wrapping_add(*d) & low_mask(spec.width));
    Ok(shares)
}
