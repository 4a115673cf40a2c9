//! Look-ups in a public table of up to `2^12` entries, or pieces of lines, with tags on all
//! messages.
//!
//! The server opens `xh = x + R mod 2^k`, as in a gate; if both parties are checked they have it
//! already. From an authenticated tree on R ([`table`](super::super::table)) both have blocks of
//! every bit of `T(x)`. With a dealt bit `lambda_t`, also tagged, both send the lowest bits:
//! `o_t = T_t(x) ^ lambda_t` is public. Then
//! ```text
//! y = base + sum_t 2^t o_t + sum_t 2^t (1 - 2 o_t) lambda_t
//! ```
//! The client draws `a_t` (its share of `lambda_t`) and a C, and sends
//! `V = sum_t 2^t (1 - 2 o_t) a_t + C`. The server has the differences to `lambda_t` and to
//! `base - target`. If both are checked, both have shares of these words with tags, and V is opened. The
//! blocks of every bit and V are checked as those of a gate ([`super`]).
//!
//! *Pieces of lines* ([`LookUp::with_lines`]): the tree is on R without its s low bits, Q. Of a slope's
//! bits the client has, beside `a_t`, a share of `lambda_t Q`, and one of Q; the server has the
//! differences. V is then a sum of `LookUp::words_dealt`, with public coefficients as before.
//!
//! Cost of a look-up from k bits to m bits in a ring of w bits:
//! * correction words: `16 (k - 2)` bytes to both parties;
//! * more at the server: `64 + 16 m` bytes and m + 1 words (m + m' + 2 for lines with m' bits of a slope);
//! * online: m bits each way, w bits up, and k + s bits down (w if both are checked), in one exchange;
//! * `2^k - 4` AES at each party.
//!
//! Exact for every index.

use rayon::prelude::*;
use tacit_arith::bits::Bits;
use tacit_arith::block::{self, Block};
use tacit_arith::prg::Prg;
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::super::compare::{self, Shape};
use super::super::mac::ring::{Ring, Share};
use super::super::table;
use super::super::tree_hash::TreeHash;
use super::check_transcript::CheckTranscript;
use super::columns::{self, Constants, ServerConstants, Shared};
use super::deal::{BatchId, BatchKeys, DealerStreams, client_streams, deal_keys, pieces, place, write_keys};
use super::party::{self, KeysAndTags, check_len};
use super::shared::{Half, open_words};
use super::spec::{Checked, FssCost, given_bytes, range, ring};
use super::{PIECE, PIECES_AT_ONCE};
use crate::codec::Packed;
use crate::dealt::{DealtHalf, LookUp, Word};
use crate::error::check_max;
use crate::wire::PackedMessages;
use crate::{MpcError, Session, draw_words, low_mask};

const OPENED: Tag = Tag::new(0x036a, "masked indices of a table with tags");
const BITS: Tag = Tag::new(0x036b, "masked bits of a table's results");
const WORDS: Tag = Tag::new(0x036c, "checked words of a table's results");

/// Public shape of a batch of look-ups in one table.
#[derive(Clone)]
pub struct FssLookUp {
    pub(super) table: LookUp,
    shape: Shape,
    words: Vec<Word>,
    pub(super) checked: Checked,
}

impl FssLookUp {
    /// Adds tags to the look-ups of `table`.
    ///
    /// # Errors
    /// `OutOfRange`: the index has more than [`table::MAX_BITS`] bits.
    pub fn new(table: &LookUp, checked: Checked) -> Result<Self, MpcError> {
        let bits = table.entries().bits();
        check_max("the bits of an index of a table with tags", bits as usize, table::MAX_BITS as usize)?;
        let (shape, words) = (Shape::new(bits)?.with_dropped_bits(table.low)?, table.words_dealt());
        Ok(Self { table: table.clone(), shape, words, checked })
    }

    /// Number of look-ups.
    #[must_use]
    pub fn n(&self) -> usize {
        self.table.n()
    }

    pub(super) fn out_bits(&self) -> usize {
        self.table.entries().out_bits() as usize
    }

    fn ring(&self) -> Ring {
        ring(self.table.width)
    }

    /// Tagged words of one look-up.
    fn columns(&self) -> usize {
        self.words.len() + 1
    }

    fn column_bytes(&self, len: usize) -> usize {
        len * self.columns() * given_bytes(self.ring(), self.checked)
    }

    fn client_bytes(&self, len: usize) -> usize {
        self.shape.corrections_bytes(len)
    }

    fn server_bytes(&self, len: usize) -> usize {
        self.client_bytes(len) + self.shape.tops_bytes(len) + 16 * len * self.out_bits() + self.column_bytes(len)
    }

    fn piece<'a>(&self, material: &'a [u8], index: usize) -> &'a [u8] {
        &material[self.server_bytes(PIECE) * index..][..self.server_bytes(range(self.n(), index).len())]
    }

    fn client_keys(&self, client: &Prg, corrections: &[u8], index: usize, len: usize) -> Result<KeysAndTags, MpcError> {
        party::client_keys(self.shape, client, corrections, index, len, len * self.out_bits())
    }

    fn server_keys(&self, material: &[u8], index: usize, len: usize) -> Result<KeysAndTags, MpcError> {
        party::server_keys(self.shape, self.piece(material, index), len, len * self.out_bits())
    }

    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> FssCost {
        let (n, m) = (self.n(), self.out_bits());
        let (bits, words) = ((n * m).div_ceil(8), Packed::len_bytes(n, self.table.width));
        let (down, masks) = match self.checked {
            Checked::Client => (Packed::len_bytes(n, self.table.index_bits()), n.div_ceil(2)),
            Checked::Both => (words, 0),
        };
        FssCost {
            up: bits + words,
            down: bits + down,
            exchanges: 1,
            client_material: self.client_bytes(n),
            server_material: self.server_bytes(n),
            opened: n,
            held: 16 * n * m,
            dealt_at_once: self.server_bytes(n.min(PIECES_AT_ONCE * PIECE)),
            hashes: table::work(self.shape, n).hashes,
            client_aes: (n * (self.shape.tops() + m + 2 * self.columns())) as u64,
            server_aes: masks as u64,
        }
    }

    /// Bits of each look-up, one behind the other.
    fn flatten(&self, values: &[u64]) -> Bits {
        let m = self.out_bits();
        let mut words = vec![0u64; (values.len() * m).div_ceil(64)];
        for bit in 0..values.len() * m {
            words[bit / 64] |= (values[bit / m] >> (bit % m) & 1) << (bit % 64);
        }
        Bits::from_words(values.len() * m, words).expect("a word for every 64 bits")
    }

    /// The opened bits of look-up `i`, as a number.
    fn opened_number(&self, bits: &Bits, i: usize) -> u64 {
        let m = self.out_bits();
        (0..m).fold(0, |sum, t| sum | (bits.words()[(i * m + t) / 64] >> ((i * m + t) % 64) & 1) << t)
    }
}

fn rho(spec: &FssLookUp, server: &Prg, index: usize) -> Zeroizing<Vec<u64>> {
    draw_words(&mut server.fork(index as u64), range(spec.n(), index).len(), spec.table.index_bits())
}

/// The dealer's secrets of a piece: R, and keys for it.
fn deal_piece(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    index: usize,
) -> (Zeroizing<Vec<u64>>, compare::Dealt) {
    let mut secrets = match spec.checked {
        Checked::Client => rho(spec, streams.server, index),
        Checked::Both => Zeroizing::new(vec![0; range(spec.n(), index).len()]),
    };
    let pairs = secrets.iter_mut().zip(&c[range(spec.n(), index)]);
    pairs.for_each(|(r, c)| *r = r.wrapping_sub(*c) & low_mask(spec.table.index_bits()));
    let keys = deal_keys(spec.shape, keys, streams.client, &secrets, index);
    (secrets, keys)
}

/// Makes the client's correction words for look-ups of indices that it shares as `c` (`[n]`).
///
/// # Errors
/// Errors of `sink`.
pub fn deal_look_up_client<E>(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    pieces(spec.n(), |i| Zeroizing::new(block::to_bytes(&deal_piece(spec, keys, streams, c, i).1.corrections)), sink)
}

/// Makes the server's material, with the client's final shares `target`: correction words, tables,
/// tags of the dealt bits, words.
///
/// # Errors
/// Errors of `sink`.
pub fn deal_look_up_server<E>(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    target: &[u64],
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    pieces(spec.n(), |index| server_piece(spec, keys, streams, c, target, index), sink)
}

fn server_piece(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    target: &[u64],
    index: usize,
) -> Zeroizing<Vec<u8>> {
    let ((secrets, trees), target) = (deal_piece(spec, keys, streams, c, index), &target[range(spec.n(), index)]);
    let lambda = draw_words(&mut streams.dealer.fork(index as u64), target.len(), 64);
    let [_, mut tags, mut stream] = client_streams(streams.client, index);
    let tags = Zeroizing::new(keys.delta.deal_bits(&spec.flatten(&lambda), &mut tags));
    let mut out = Zeroizing::new(Vec::with_capacity(spec.server_bytes(target.len())));
    write_keys(&trees, &tags, &mut out);
    let mut draw = || Constants::draw(&mut stream, spec.ring(), target.len());
    for &word in &spec.words {
        columns::write(&draw(), keys.key, spec.checked, |i| spec.table.word(word, lambda[i], secrets[i]), &mut out);
    }
    columns::write(&draw(), keys.key, spec.checked, |i| spec.table.base.wrapping_sub(target[i]), &mut out);
    out
}

/// A party's blocks of the masked bits of all results.
fn blocks(
    spec: &FssLookUp,
    batch: BatchId,
    points: &[u64],
    keys: impl Fn(usize, usize) -> Result<KeysAndTags, MpcError> + Sync,
) -> Result<Zeroizing<Vec<Block>>, MpcError> {
    let m = spec.out_bits();
    let mut out = Zeroizing::new(vec![Block::ZERO; spec.n() * m]);
    out.par_chunks_mut(PIECE * m).enumerate().try_for_each(|(index, out)| {
        let (keys, tags) = keys(index, out.len() / m)?;
        let points: Vec<u64> = points[range(spec.n(), index)].iter().map(|xh| xh >> spec.table.low).collect();
        let mut hash = TreeHash::new(batch.hash);
        table::look_up(&keys, &mut hash, place(batch.number, index), spec.table.entries(), &points, out)?;
        out.iter_mut().zip(tags.iter()).for_each(|(out, tag)| *out ^= *tag);
        Ok::<_, MpcError>(())
    })?;
    Ok(out)
}

fn draw_columns(spec: &FssLookUp, prg: &Prg, index: usize, len: usize) -> Vec<Shared<'static>> {
    let [_, _, mut stream] = client_streams(prg, index);
    (0..spec.columns()).map(|_| Shared::Drawn(Constants::draw(&mut stream, spec.ring(), len))).collect()
}

/// The server's constants of a piece, if both are checked.
fn read_columns<'a>(spec: &FssLookUp, piece: &'a [u8], len: usize) -> Vec<Shared<'a>> {
    let mut unread = &piece[piece.len() - spec.column_bytes(len)..];
    (0..spec.columns()).map(|_| Shared::take(&mut unread, spec.ring(), len)).collect()
}

/// The public coefficients of a look-up's words in V, except the last one, which is 1.
fn coefficients(spec: &FssLookUp, opened: u64, masked: u64) -> impl Iterator<Item = u128> {
    spec.words.iter().map(move |&word| spec.table.coefficient(word, opened, masked) as u128).chain([1])
}

fn combine(coefficients: &[u128], xs: impl Iterator<Item = u128>) -> u128 {
    coefficients.iter().zip(xs).fold(0, |sum: u128, (c, x)| sum.wrapping_add(c.wrapping_mul(x)))
}

/// A party's shares of V, with tags, from the opened bits.
fn words<'a>(
    spec: &FssLookUp,
    bits: &Bits,
    masked: &[u64],
    columns: impl Fn(usize, usize) -> Vec<Shared<'a>> + Sync,
) -> Zeroizing<Vec<Share>> {
    let pieces = (0..spec.n().div_ceil(PIECE)).into_par_iter().map(|index| {
        let (range, mask) = (range(spec.n(), index), spec.ring().mask());
        let columns = columns(index, range.len());
        let shares = range.enumerate().map(|(position, i)| {
            let factors: Vec<u128> = coefficients(spec, spec.opened_number(bits, i), masked[i]).collect();
            let shares_of = Zeroizing::new(columns.iter().map(|column| column.get(position)).collect::<Vec<_>>());
            let part = |part: fn(&Share) -> u128| combine(&factors, shares_of.iter().map(part)) & mask;
            Share { value: part(|share| share.value), tag: part(|share| share.tag) }
        });
        Zeroizing::new(shares.collect::<Vec<Share>>())
    });
    let pieces: Vec<Zeroizing<Vec<Share>>> = pieces.collect();
    Zeroizing::new(pieces.iter().flat_map(|piece| piece.iter().cloned()).collect())
}

/// The client's online part if only the client is checked; its shares of the results are the dealt
/// targets. `batch` must be that of the dealing; the bytes of `half` are the correction words.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to these look-ups.
pub fn client_look_up(
    spec: &FssLookUp,
    batch: BatchId,
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<(), MpcError> {
    let DealtHalf { prg, bytes: corrections } = half;
    check_len(corrections, spec.client_bytes(spec.n()))?;
    let xh = session.channel.recv_packed(OPENED, spec.n(), spec.table.index_bits())?;
    let tags = blocks(spec, batch, &xh, |index, len| spec.client_keys(prg, corrections, index, len))?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let words = words(spec, &bits, &xh, |index, len| draw_columns(spec, prg, index, len));
    let width = spec.table.width;
    let low: Vec<u64> = words.iter().map(|word| spec.ring().low(word)).collect();
    session.channel.send_packed(WORDS, &low, width)?;
    transcript.values(width, words.iter().cloned(), low.iter().copied());
    Ok(())
}

/// The server's shares of a piece's results, and its values for the check of the client's words.
type ServerResults = (Vec<u64>, Zeroizing<Vec<Share>>);

/// The server's online part if only the client is checked: its shares of the results (`[n]`) of
/// indices that it shares as `s`. `batch` must be that of the dealing.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to these look-ups.
pub fn server_look_up(
    spec: &FssLookUp,
    batch: BatchId,
    s: &[u64],
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, MpcError> {
    let DealtHalf { prg, bytes: dealt } = half;
    check_len(dealt, spec.server_bytes(spec.n()))?;
    let (n, width, count) = (spec.n(), spec.table.width, spec.n().div_ceil(PIECE));
    let draws: Vec<Zeroizing<Vec<u64>>> = (0..count).into_par_iter().map(|index| rho(spec, prg, index)).collect();
    let rho = draws.iter().flat_map(|rho| rho.iter());
    let index_bits = spec.table.index_bits();
    let xh: Vec<u64> = s.iter().zip(rho).map(|(s, r)| s.wrapping_add(*r) & low_mask(index_bits)).collect();
    session.channel.send_packed(OPENED, &xh, index_bits)?;
    // The client begins while this party evaluates.
    session.channel.flush()?;
    let tags = blocks(spec, batch, &xh, |index, len| spec.server_keys(dealt, index, len))?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let received = session.channel.recv_packed(WORDS, n, width)?;
    let results = (0..count).into_par_iter().map(|index| {
        let (range, piece) = (range(n, index), spec.piece(dealt, index));
        let mut unread = &piece[piece.len() - spec.column_bytes(range.len())..];
        let columns: Vec<ServerConstants<'_>> =
            (0..spec.columns()).map(|_| ServerConstants::take(&mut unread, spec.ring(), range.len())).collect();
        let results = range.clone().enumerate().map(|(position, i)| {
            let opened = spec.opened_number(&bits, i);
            let factors: Vec<u128> = coefficients(spec, opened, xh[i]).collect();
            let share = combine(&factors, columns.iter().map(|column| u128::from(column.get(position).0))) as u64;
            let key = combine(&factors, columns.iter().map(|column| column.get(position).1));
            let public = spec.table.public(opened, xh[i]);
            let share = share.wrapping_add(public).wrapping_add(received[i]) & low_mask(width);
            (share, Share { value: 0, tag: key.wrapping_neg() & spec.ring().mask() })
        });
        let (mut shares, mut keys) = (Vec::with_capacity(range.len()), Zeroizing::new(Vec::with_capacity(range.len())));
        results.for_each(|(share, key)| {
            shares.push(share);
            keys.push(key);
        });
        (shares, keys)
    });
    let results: Vec<ServerResults> = results.collect();
    transcript.values(width, results.iter().flat_map(|(_, keys)| keys.iter().cloned()), received.iter().copied());
    Ok(results.iter().flat_map(|(shares, _)| shares.iter().copied()).collect())
}

/// If both are checked: the masked results (`[n]`) of masked indices, the same at both parties.
///
/// # Errors
/// Channel errors; `Material` if the half does not belong to these look-ups.
pub fn shared_look_up(
    spec: &FssLookUp,
    batch: BatchId,
    masked: &[u64],
    half: Half<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, MpcError> {
    match half {
        Half::Client(_, corrections) => check_len(corrections, spec.client_bytes(spec.n()))?,
        Half::Server(dealt) => check_len(dealt, spec.server_bytes(spec.n()))?,
    }
    let tags = blocks(spec, batch, masked, |index, len| match half {
        Half::Client(prg, corrections) => spec.client_keys(prg, corrections, index, len),
        Half::Server(dealt) => spec.server_keys(dealt, index, len),
    })?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let shares = words(spec, &bits, masked, |index, len| match half {
        Half::Client(prg, _) => draw_columns(spec, prg, index, len),
        Half::Server(dealt) => read_columns(spec, spec.piece(dealt, index), len),
    });
    let opened = open_words(&[(spec.ring(), shares)], WORDS, session, transcript)?.pop();
    let mut words = opened.expect("one list was opened");
    let width = spec.table.width;
    for (i, word) in words.iter_mut().enumerate() {
        *word = word.wrapping_add(spec.table.public(spec.opened_number(&bits, i), masked[i])) & low_mask(width);
    }
    Ok(words)
}
