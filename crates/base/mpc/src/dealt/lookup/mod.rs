//! Look-ups in a public table of up to 2^16 entries, or pieces of lines, with dealt material.
//!
//! **Who holds what.** Client and server hold shares `x = c + s mod 2^k` of the index. The dealer
//! knows the client's share c, and the mask rho, which the server draws from its dealt seed. The
//! client has the seed of its half, from which it draws its shares of all masks. The server has its
//! own seed and the bytes that [`deal_look_up`] makes.
//!
//! | symbol | meaning | held by |
//! | --- | --- | --- |
//! | `R = rho - c` | mask of the index | dealer; the parties share its one-hot vector |
//! | `xh = x + R` | masked index | public once the server has sent it |
//! | `M_t` | mask of bit t of the result | XOR shares and arithmetic shares at both parties |
//! | `o_t` | bit t of the entry, XOR `M_t` | public once both have sent their shares |
//! | `base` | smallest entry; entries are relative to it | public |
//! | `w` | bits of the ring of the result | public |
//!
//! **Steps of a look-up.**
//! 1. The server sends `xh = s + rho mod 2^k`.
//! 2. Both parties hold XOR shares of the one-hot vector of R, so each computes its share of
//!    `T(x) = sum_j [j = R] T(xh - j)` alone, bit by bit.
//! 3. Both open these bits under the masks: this gives `o_t`.
//! 4. Each computes its share of the result from its arithmetic shares of `M_t`:
//!    ```text
//!    y = base + sum_t 2^t (o_t + (1 - 2 o_t) M_t)       M_t in the ring of w - t bits
//!    ```
//! 5. The client sends the difference of its share to the share that it is to end with.
//!
//! **The one-hot vectors.**
//! * Up to [`ONE_HOT_BITS`] bits the dealer gives the server the difference of the one-hot vectors:
//!   `2^k` bits (at least 64).
//! * Above that both have keys of an early-terminated point function ([`crate::fss::dpf`]):
//!   `16 (k - 6)` bytes, the same for both. The server forwards the keys online, so that the
//!   client's half is still a seed.
//!
//! **Pieces of lines** ([`LookUp::with_lines`]): the number has s bits more than the index of a piece.
//! With P and Q the s low bits of xh and R, `l = P - Q` and `i = floor(xh / 2^s) - floor(R / 2^s)`,
//! `x = 2^s i + l` and `|l| < 2^s`: i is `floor(x / 2^s)` or one more, depending on the mask. Bits
//! of the piece's entry and of its slope are opened alike. With o and M the opened bit and the mask
//! of a bit b of the slope, `b l = o (P - Q) + (1 - 2 o)(P M - M Q)`. Shares of `M Q` and of Q were
//! dealt for this.
//!
//! **Cost** of a look-up from k (and s) bits to m bits, of these m' of a slope:
//! * material at the server: `2^k` bits or the key, and at most w bits for each of `m + m' + 1`
//!   words (m without lines);
//! * online: `k + s + m` bits (and the key) down, `m + w` bits up, one exchange;
//! * a batch with keys has a public seed of 16 bytes more in both.
//!
//! Exact for every index, and for i and l as above. Semi-honest.

mod spec;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use tacit_arith::block::Block;
use tacit_arith::pack;
use tacit_arith::prg::{Prg, PublicSeed};
use tacit_net::{Sides, Tag};
use zeroize::Zeroizing;

pub(crate) use self::spec::Word;
pub use self::spec::{Lines, LookUp, MAX_SPLINE_BITS};
use super::{DealtHalf, block};
use crate::fss::GROUP;
use crate::fss::dpf::{self, Keys};
use crate::fss::table::MAX_TABLE_BITS;
use crate::fss::tree_hash::{Place, TreeHash};
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, draw_words, low_mask};

const OPENED: Tag = Tag::new(0x0356, "masked indices of a table");
const KEYS: Tag = Tag::new(0x0357, "keys of point functions");
const BITS: Tag = Tag::new(0x0358, "masked results of a table");
const MOVE: Tag = Tag::new(0x0359, "share difference of a table's results");

/// The widest index with a dealt one-hot vector.
pub const ONE_HOT_BITS: u32 = 8;
/// The widest index.
pub const MAX_INDEX_BITS: u32 = MAX_TABLE_BITS;

/// One party's streams for a block.
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

/// The public seed of a batch's keys. It comes from a separate generator, so it is no block under
/// the key of the server's masks.
fn public_seed(server: &Prg) -> [u8; 16] {
    server.fork(u64::MAX).next_seed().0
}

fn place_of(index: usize) -> Place {
    let group = index * super::BLOCK / GROUP;
    Place { batch: 0, group: u32::try_from(group).expect("a batch has fewer than 2^40 look-ups") }
}

/// Makes the server's material, in pieces, for a batch of look-ups whose index the client shares as
/// `c` (`[n]`, modulo `2^(k+s)`). Deterministic.
///
/// # Errors
/// Errors of `sink`.
pub fn deal_look_up<E>(
    spec: &LookUp,
    c: &[u64],
    streams: Sides<&Prg>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let seed = public_seed(streams.server);
    if spec.keys().is_some() {
        sink(&seed)?;
    }
    let deal = |index| deal_block(spec, &c[block::range(spec.n, index)], streams, seed, index);
    block::deal_blocks(spec.n, deal, sink)
}

/// `c` holds the client's shares of the block's indices.
fn deal_block(spec: &LookUp, c: &[u64], streams: Sides<&Prg>, seed: [u8; 16], index: usize) -> Zeroizing<Vec<u8>> {
    let (client, server) = (Streams::new(streams.client, index), Streams::new(streams.server, index));
    let len = c.len();
    let mut secrets = draw_words(&mut server.indices(), len, spec.index_bits());
    secrets.iter_mut().zip(c).for_each(|(rho, c)| *rho = rho.wrapping_sub(*c) & low_mask(spec.index_bits()));
    let pieces = Zeroizing::new(secrets.iter().map(|r| r >> spec.low).collect::<Vec<u64>>());
    let mut out = Zeroizing::new(Vec::with_capacity(spec.block_bytes(len) + 8));
    match spec.keys() {
        None => {
            let words = spec.words();
            let mut vectors = draw_words(&mut client.vectors(), len * words, 64);
            for (vector, r) in vectors.chunks_exact_mut(words).zip(pieces.iter()) {
                for (w, word) in vector.iter_mut().enumerate() {
                    let apart = (r >> 6) ^ w as u64;
                    *word ^= (1 ^ (apart | apart.wrapping_neg()) >> 63) << (r & 63);
                }
            }
            vectors.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        Some(shape) => {
            let mut hash = TreeHash::new(PublicSeed::from_bytes(seed));
            let (mut client_roots, mut server_roots) = (client.vectors(), server.vectors());
            let words = dpf::deal(&mut hash, place_of(index), shape, &pieces, &mut client_roots, &mut server_roots);
            words.iter().for_each(|word| out.extend_from_slice(&word.to_bytes()));
        }
    }
    let mut client_stream = client.masks();
    let mut masks = draw_words(&mut client_stream, len, spec.out_bits);
    masks.iter_mut().zip(draw_words(&mut server.masks(), len, spec.out_bits).iter()).for_each(|(a, b)| *a ^= b);
    for word in spec.words_dealt() {
        let mut column = draw_words(&mut client_stream, len, 64);
        let values = masks.iter().zip(secrets.iter()).map(|(mask, secret)| spec.word(word, *mask, *secret));
        column.iter_mut().zip(values).for_each(|(a, value)| *a = value.wrapping_sub(*a));
        pack::pack_slice(&column, spec.word_bits(word), &mut out);
    }
    out
}

enum Half<'a> {
    /// The client's half, with all keys, if any.
    Client {
        prg: &'a Prg,
        keys: &'a [u8],
    },
    Server {
        prg: &'a Prg,
        bytes: &'a [u8],
    },
}

impl Half<'_> {
    /// The party's masked XOR shares of a block's results.
    fn masked_shares(&self, spec: &LookUp, index: usize, xh: &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let (role, prg) = match self {
            Self::Client { prg, .. } => (Role::Client, prg),
            Self::Server { prg, .. } => (Role::Server, prg),
        };
        let (streams, len) = (Streams::new(prg, index), xh.len());
        let mut out = draw_words(&mut streams.masks(), len, spec.out_bits);
        match spec.keys() {
            Some(shape) => {
                let (seed, words) = match self {
                    Self::Client { keys, .. } => {
                        let start = spec.head() + index * shape.bytes(super::BLOCK);
                        (keys, &keys[start..][..shape.bytes(len)])
                    }
                    Self::Server { bytes: material, .. } => {
                        (material, &spec.block_material(material, index)[..shape.bytes(len)])
                    }
                };
                let seed = *seed.first_chunk().expect("keys have a seed in front");
                let words = words.as_chunks().0.iter().map(|word| Block::from_bytes(*word)).collect();
                let keys = Keys::new(role, shape, len, &mut streams.vectors(), words)?;
                let mut hash = TreeHash::new(PublicSeed::from_bytes(seed));
                let points: Vec<u64> = xh.iter().map(|xh| xh >> spec.low).collect();
                let shares = Zeroizing::new(keys.look_up(&mut hash, place_of(index), spec.entries(), &points)?);
                out.iter_mut().zip(shares.iter()).for_each(|(mask, share)| *mask ^= share);
            }
            None => {
                let words = spec.words();
                let vectors = match self {
                    Self::Client { .. } => draw_words(&mut streams.vectors(), len * words, 64),
                    Self::Server { bytes: material, .. } => {
                        let bytes = &spec.block_material(material, index)[..spec.vector_bytes(len)];
                        Zeroizing::new(bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect())
                    }
                };
                for ((mask, vector), xh) in out.iter_mut().zip(vectors.chunks_exact(words)).zip(xh) {
                    *mask ^= xor_selected(vector, spec.shifted(*xh));
                }
            }
        }
        Ok(out)
    }

    /// The party's shares of all results in their ring, from the opened bits and the masked numbers.
    fn all_shares(&self, spec: &LookUp, opened: &[u64], xh: &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        map_blocks(spec, opened, |index, opened| self.shares(spec, index, opened, &xh[block::range(spec.n, index)]))
    }

    /// The same for one block.
    fn shares(&self, spec: &LookUp, index: usize, opened: &[u64], xh: &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let len = opened.len();
        let mut out = Zeroizing::new(vec![0; len]);
        let (mut stream, mut unread) = match self {
            Self::Client { prg, .. } => {
                let mut stream = Streams::new(prg, index).masks();
                drop(draw_words(&mut stream, len, spec.out_bits));
                (Some(stream), &[][..])
            }
            Self::Server { bytes, .. } => {
                let public = opened.iter().zip(xh).map(|(o, xh)| spec.base.wrapping_add(spec.public(*o, *xh)));
                out.iter_mut().zip(public).for_each(|(sum, public)| *sum = public);
                (None, &spec.block_material(bytes, index)[spec.vector_bytes(len)..])
            }
        };
        for word in spec.words_dealt() {
            let width = spec.word_bits(word);
            let column = match &mut stream {
                Some(stream) => draw_words(stream, len, 64),
                None => {
                    let (now, later) = unread.split_at((len * width as usize).div_ceil(8));
                    unread = later;
                    let values = pack::unpack(now, len, width, u64::MAX);
                    Zeroizing::new(values.map_err(|e| MpcError::Material { what: e.to_string() })?)
                }
            };
            for (((sum, o), xh), m) in out.iter_mut().zip(opened).zip(xh).zip(column.iter()) {
                *sum = sum.wrapping_add((spec.coefficient(word, *o, *xh) as u64).wrapping_mul(*m));
            }
        }
        out.iter_mut().for_each(|v| *v &= low_mask(spec.width));
        Ok(out)
    }
}

/// Calls `per_block` for each block with its index and its part of `values` (`[n]`), in parallel,
/// and joins the results.
fn map_blocks(
    spec: &LookUp,
    values: &[u64],
    per_block: impl Fn(usize, &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError> + Sync,
) -> Result<Zeroizing<Vec<u64>>, MpcError> {
    let blocks = (0..block::count(spec.n)).into_par_iter();
    let parts = blocks.map(|index| per_block(index, &values[block::range(spec.n, index)]));
    let parts: Vec<Zeroizing<Vec<u64>>> = parts.collect::<Result<_, _>>()?;
    Ok(Zeroizing::new(parts.iter().flat_map(|part| part.iter().copied()).collect()))
}

/// The sum of the entries at which a share of a one-hot vector is 1, in constant time.
fn xor_selected(vector: &[u64], entries: &[u64]) -> u64 {
    vector.iter().zip(entries.chunks(64)).fold(0, |sum, (word, entries)| {
        entries.iter().enumerate().fold(sum, |sum, (j, entry)| sum ^ (entry & (word >> j & 1).wrapping_neg()))
    })
}

fn xor(a: &[u64], b: &[u64]) -> Zeroizing<Vec<u64>> {
    Zeroizing::new(a.iter().zip(b).map(|(a, b)| a ^ b).collect())
}

/// The client's online part: its final share is `target` (`[n]`, in the ring of the results). `prg`
/// is the stream that [`deal_look_up`] used for the client.
///
/// # Errors
/// Channel errors; `Material` if the server forwards invalid keys.
pub fn client_look_up(spec: &LookUp, target: &[u64], prg: &Prg, session: &mut Session<'_>) -> Result<(), MpcError> {
    let xh = session.channel.recv_packed(OPENED, spec.n, spec.index_bits())?;
    let keys = match spec.keys() {
        Some(shape) => session.channel.recv(KEYS, spec.head() + shape.bytes(spec.n))?,
        None => Vec::new(),
    };
    let peer_bits = session.channel.recv_packed(BITS, spec.n, spec.out_bits)?;
    if spec.keys().is_some_and(|shape| keys.len() != spec.head() + shape.bytes(spec.n)) {
        return Err(MpcError::Material { what: format!("{} bytes of keys for {} look-ups", keys.len(), spec.n) });
    }
    let half = Half::Client { prg, keys: &keys };
    let own_bits = map_blocks(spec, &xh, |index, xh| half.masked_shares(spec, index, xh))?;
    session.channel.send_packed(BITS, &own_bits, spec.out_bits)?;
    let opened = xor(&own_bits, &peer_bits);
    let shares = half.all_shares(spec, &opened, &xh)?;
    let differences = shares.iter().zip(target).map(|(y, r)| y.wrapping_sub(*r)).collect::<Vec<u64>>();
    let differences = Zeroizing::new(differences);
    Ok(session.channel.send_packed(MOVE, &differences, spec.width)?)
}

/// The server's online part: its shares of the results (`[n]`) for its shares `s` of the indices
/// (`[n]`). The bytes of `half` are the output of [`deal_look_up`].
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to these look-ups.
pub fn server_look_up(
    spec: &LookUp,
    s: &[u64],
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
) -> Result<Vec<u64>, MpcError> {
    let DealtHalf { prg, bytes } = half;
    if bytes.len() != spec.material() {
        let what = format!("{} bytes for a batch of look-ups, {} expected", bytes.len(), spec.material());
        return Err(MpcError::Material { what });
    }
    let half = Half::Server { prg, bytes };
    let xh = map_blocks(spec, s, |index, s| {
        let rho = draw_words(&mut Streams::new(prg, index).indices(), s.len(), spec.index_bits());
        let sums = s.iter().zip(rho.iter()).map(|(s, r)| s.wrapping_add(*r) & low_mask(spec.index_bits()));
        Ok(Zeroizing::new(sums.collect()))
    })?;
    session.channel.send_packed(OPENED, &xh, spec.index_bits())?;
    if let Some(shape) = spec.keys() {
        let blocks = 0..block::count(spec.n);
        let keys = blocks.map(|i| &spec.block_material(bytes, i)[..shape.bytes(block::range(spec.n, i).len())]);
        let parts: Vec<&[u8]> = std::iter::once(&bytes[..spec.head()]).chain(keys).collect();
        session.channel.send(KEYS, &parts.concat())?;
    }
    let own_bits = map_blocks(spec, &xh, |index, xh| half.masked_shares(spec, index, xh))?;
    session.channel.send_packed(BITS, &own_bits, spec.out_bits)?;
    let peer_bits = session.channel.recv_packed(BITS, spec.n, spec.out_bits)?;
    let opened = xor(&own_bits, &peer_bits);
    let mut shares = half.all_shares(spec, &opened, &xh)?.to_vec();
    let differences = Zeroizing::new(session.channel.recv_packed(MOVE, spec.n, spec.width)?);
    shares.iter_mut().zip(differences.iter()).for_each(|(y, d)| *y = y.wrapping_add(*d) & low_mask(spec.width));
    Ok(shares)
}
