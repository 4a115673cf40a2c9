//! The random matrices `A`, and the masked weights `E = W - A` modulo the layer's ring, which the
//! client gets instead of the weights.
//!
//! `A` is the stream of a key. The key is bound to the layer's integers, ring and shape, under a
//! secret of the owner, so that two sets of weights never share an `A`, which would reveal their
//! difference. `E` alone is uniform. **The key of `A` together with `E` gives `W`**: the key stays
//! with server and dealer.

use std::ops::Range;

use rayon::prelude::*;
use tacit_arith::pack;
use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::{ConvSpec, ShapeError, conv2d};
use zeroize::{Zeroize, Zeroizing};

use super::plan::{LinearLayer, Plan, Scheme, domain};
use super::source::Sink;
use tacit_backend_api::{BackendError, seam};
use tacit_ring::fixed::ring_mask;
use tacit_ring::{self, LayerWeights, Weights};

/// Number of weights per stream: rows are generated in parallel.
const PIECE_WEIGHTS: usize = 1 << 16;
/// Number of pieces that are masked or unpacked together.
const PIECES_AT_ONCE: usize = 64;

/// A matrix with entries modulo `2^width`, up to 2^40: `low + 2^32 high`.
pub(crate) struct Matrix {
    low: Vec<i32>,
    /// Empty for rings of up to 32 bits.
    high: Vec<i32>,
    width: u32,
}

impl Drop for Matrix {
    fn drop(&mut self) {
        self.low.zeroize();
        self.high.zeroize();
    }
}

impl Matrix {
    fn empty(count: usize, width: u32) -> Self {
        let high = if width > 32 { count } else { 0 };
        Self { low: Vec::with_capacity(count), high: Vec::with_capacity(high), width }
    }

    fn extend(&mut self, pieces: &[Self]) {
        for piece in pieces {
            self.low.extend_from_slice(&piece.low);
            self.high.extend_from_slice(&piece.high);
        }
    }

    /// A matrix of words modulo `2^width`.
    pub(crate) fn new(words: &[u64], width: u32) -> Self {
        let mut out = Self::empty(words.len(), width);
        for &word in words {
            out.low.push(word as u32 as i32);
            if width > 32 {
                // `low` is signed.
                out.high.push((word.wrapping_sub(i64::from(word as u32 as i32) as u64) >> 32) as i32);
            }
        }
        out
    }

    /// Entries as integers `low + 2^32 high`; `high` is empty for rings of up to 32 bits.
    pub(crate) fn parts(&self) -> (&[i32], &[i32]) {
        (&self.low, &self.high)
    }

    /// Entries as words that are correct modulo `2^width`; higher bits are arbitrary.
    pub(crate) fn words(&self, range: Range<usize>) -> Zeroizing<Vec<u64>> {
        let low = self.low[range.clone()].iter().map(|low| i64::from(*low) as u64).collect::<Vec<u64>>();
        let mut out = Zeroizing::new(low);
        if !self.high.is_empty() {
            let pairs = out.iter_mut().zip(&self.high[range]);
            pairs.for_each(|(word, high)| *word = word.wrapping_add((*high as u64) << 32));
        }
        out
    }

    /// `M x` modulo `2^width` for each x of one or more inputs.
    pub(crate) fn apply(&self, conv: &ConvSpec, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let mut results = x.chunks(conv.in_len()).map(|x| self.apply_one(conv, x)).collect::<Result<Vec<_>, _>>()?;
        // A single result is not copied.
        Ok(if results.len() == 1 { results.remove(0) } else { results.concat() })
    }

    fn apply_one(&self, conv: &ConvSpec, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let mut out = conv2d(conv, &self.low, x, self.width).map_err(shape_error)?;
        if !self.high.is_empty() {
            let high = conv2d(conv, &self.high, x, self.width - 32).map_err(shape_error)?;
            out.iter_mut().zip(high).for_each(|(o, h)| *o = o.wrapping_add(h << 32));
        }
        out.iter_mut().for_each(|o| *o &= ring_mask(self.width));
        Ok(out)
    }
}

fn shape_error(_: ShapeError) -> BackendError {
    BackendError::Misuse("a matrix belongs to another layer")
}

fn draw_mask_piece(key: &Prg, piece: usize, count: usize, width: u32) -> Zeroizing<Vec<u64>> {
    let mut prg = key.fork(piece as u64);
    let mask = ring_mask(width);
    if width > 32 {
        let mut words = Zeroizing::new(vec![0u64; count]);
        prg.fill_u64(&mut words);
        words.iter_mut().for_each(|w| *w &= mask);
        return words;
    }
    let mut pairs = Zeroizing::new(vec![0u64; count.div_ceil(2)]);
    prg.fill_u64(&mut pairs);
    Zeroizing::new(pairs.iter().flat_map(|w| [w & mask, w >> 32 & mask]).take(count).collect())
}

/// Draws the entries `range` of a layer's `A`, which has `count` entries.
pub(crate) fn draw_mask(key: &Prg, range: Range<usize>, count: usize, width: u32) -> Matrix {
    let pieces = (range.start / PIECE_WEIGHTS..range.end.div_ceil(PIECE_WEIGHTS)).into_par_iter().map(|piece| {
        let first = piece * PIECE_WEIGHTS;
        let words = draw_mask_piece(key, piece, PIECE_WEIGHTS.min(count - first), width);
        let (start, end) = (range.start.max(first) - first, range.end.min(first + words.len()) - first);
        Matrix::new(&words[start..end], width)
    });
    let mut out = Matrix::empty(range.len(), width);
    out.extend(&pieces.collect::<Vec<_>>());
    out
}

/// Entries of `A` in memory at a time, unless one row is longer: 1 MB, and as much again while they
/// are drawn.
pub(crate) const ENTRIES_AT_ONCE: usize = 1 << 18;
/// Bytes of these entries as words.
pub(crate) const AT_ONCE_BYTES: u64 = 8 * ENTRIES_AT_ONCE as u64;

/// `A x` modulo `2^width` for a layer's `A` and each x of one or more inputs, by groups of rows. A
/// large `A` is drawn once and is never in memory as a whole.
pub(crate) fn apply_random(key: &Seed, conv: &ConvSpec, x: &[u64], width: u32) -> Result<Vec<u64>, BackendError> {
    apply_random_in_steps(ENTRIES_AT_ONCE, key, conv, x, width)
}

/// As [`apply_random`], with at most `at_once` entries or one row of `A` in memory.
fn apply_random_in_steps(
    at_once: usize,
    key: &Seed,
    conv: &ConvSpec,
    x: &[u64],
    width: u32,
) -> Result<Vec<u64>, BackendError> {
    let (key, count) = (Prg::from_seed(key.clone()), conv.weight_len());
    if count <= at_once {
        return draw_mask(&key, 0..count, count, width).apply(conv, x);
    }
    let row = conv.group_in() * conv.kernel.0 * conv.kernel.1;
    let (rows, inputs) = ((at_once / row).max(1), conv.group_in() * conv.in_h * conv.in_w);
    let positions = conv.out_h() * conv.out_w();
    let mut out = vec![0; x.len() / conv.in_len() * conv.out_len()];
    for group in 0..conv.groups {
        for first in (0..conv.group_out()).step_by(rows) {
            let out_ch = rows.min(conv.group_out() - first);
            let part = ConvSpec { in_ch: conv.group_in(), out_ch, groups: 1, ..*conv };
            let channel = group * conv.group_out() + first;
            let matrix = draw_mask(&key, channel * row..(channel + out_ch) * row, count, width);
            for (x, out) in x.chunks_exact(conv.in_len()).zip(out.chunks_exact_mut(conv.out_len())) {
                let rows = matrix.apply(&part, &x[group * inputs..][..inputs])?;
                out[channel * positions..][..rows.len()].copy_from_slice(&rows);
            }
        }
    }
    Ok(out)
}

pub(crate) fn entry_count<C: Scheme>(plan: &Plan<C>, conv: &ConvSpec) -> usize {
    conv.weight_len() + if C::masks_biases(plan.options()) { conv.out_ch } else { 0 }
}

/// An entry of the weights, or of the biases after them.
fn weight_or_bias(layer: &LayerWeights, i: usize) -> u64 {
    let weight = layer.weights.get(i).map(|weight| i64::from(*weight));
    weight.unwrap_or_else(|| layer.bias[i - layer.weights.len()]) as u64
}

pub(crate) fn layer_bytes(entries: usize, width: u32) -> u64 {
    (entries as u64 * u64::from(width)).div_ceil(8)
}

pub(crate) fn bytes<C: Scheme>(plan: &Plan<C>) -> u64 {
    plan.masked_layers().map(|layer| layer_bytes(entry_count(plan, layer.conv), layer.width)).sum()
}

/// The name of a key of `A` at the dealer. All back ends use the same, so that no two of them hide
/// different weights with one `A`.
pub(crate) fn fingerprint(key: &Seed) -> [u8; 32] {
    seam::digest("tacit 2026-11 dealt mask", &[&key.0])
}

/// Derives the keys of all layers, in node order.
pub(crate) fn keys<C: Scheme>(plan: &Plan<C>, weights: &Weights, secret: &[u8; 32]) -> Vec<Seed> {
    let keys = plan.masked_layers().map(|LinearLayer { id, conv, width, .. }| {
        let layer = weights.get(id).expect("weights are checked against the graph when they are read or made");
        let mut ints: Zeroizing<Vec<u8>> = Zeroizing::new(Vec::with_capacity(4 * conv.weight_len() + 8 * conv.out_ch));
        ints.extend(layer.weights.iter().flat_map(|w| w.to_le_bytes()));
        if C::masks_biases(plan.options()) {
            ints.extend(layer.bias.iter().flat_map(|b| b.to_le_bytes()));
        }
        let shape = postcard::to_stdvec(&(conv.in_ch, conv.out_ch, conv.kernel, conv.groups, width));
        let shape = shape.expect("plain data in memory can be encoded");
        let digest = seam::digest("tacit 2026-11 dealt layer", &[secret, &(id as u64).to_le_bytes(), &shape, &ints]);
        Seed(*digest.first_chunk().expect("a digest has 32 bytes"))
    });
    keys.collect()
}

/// Writes `E`, packed at the ring's width, in pieces and layer by layer.
pub(crate) fn write<C: Scheme>(
    plan: &Plan<C>,
    weights: &Weights,
    keys: &[Seed],
    sink: &mut Sink<'_>,
) -> Result<(), BackendError> {
    for (LinearLayer { id, conv, width, .. }, key) in plan.masked_layers().zip(keys) {
        let layer: &LayerWeights = weights.get(id).expect("there is a key for each layer with weights");
        let (key, count) = (Prg::from_seed(key.clone()), entry_count(plan, conv));
        let pieces = count.div_ceil(PIECE_WEIGHTS);
        // A few pieces at a time: `E` of a large layer is never in memory as a whole.
        for first in (0..pieces).step_by(PIECES_AT_ONCE) {
            let group = first..(first + PIECES_AT_ONCE).min(pieces);
            let packed = group.into_par_iter().map(|piece| pack_piece(layer, &key, piece, count, width));
            let packed: Vec<Vec<u8>> = packed.collect();
            packed.iter().try_for_each(|bytes| sink(bytes))?;
        }
    }
    Ok(())
}

fn pack_piece(layer: &LayerWeights, key: &Prg, piece: usize, count: usize, width: u32) -> Vec<u8> {
    let first = piece * PIECE_WEIGHTS;
    let random = draw_mask_piece(key, piece, PIECE_WEIGHTS.min(count - first), width);
    let words = (first..).zip(random.iter()).map(|(i, a)| weight_or_bias(layer, i).wrapping_sub(*a) & ring_mask(width));
    let (words, mut out) = (words.collect::<Vec<u64>>(), Vec::new());
    pack::pack(words.into_iter(), width, &mut out);
    out
}

/// Digest of `E` as in the public part.
pub(crate) fn digest<C: Scheme>(plan: &Plan<C>, weights: &Weights, keys: &[Seed]) -> Result<[u8; 32], BackendError> {
    let mut hasher = hasher::<C>();
    write(plan, weights, keys, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(*hasher.finalize().as_bytes())
}

/// Reads the keys of all layers from a dealer's part of a model.
///
/// # Errors
/// `Private` if the number of keys differs from that of linear layers.
pub(crate) fn read_keys<C: Scheme>(plan: &Plan<C>, part: &[u8]) -> Result<Vec<Seed>, BackendError> {
    let layers = plan.masked_layers().count();
    let (keys, rest) = part.as_chunks();
    if keys.len() != layers || !rest.is_empty() {
        let what = format!("{} bytes of keys for {layers} linear layers", part.len());
        return Err(BackendError::Private { what });
    }
    Ok(keys.iter().map(|key| Seed(*key)).collect())
}

/// Encodes a model's private part: the secret of its keys, and its weights.
pub(crate) fn private_bytes(secret: &[u8; 32], weights: &Weights) -> Zeroizing<Vec<u8>> {
    let weights = tacit_ring::weights_to_bytes(weights);
    let mut out = Zeroizing::new(Vec::with_capacity(secret.len() + weights.len()));
    out.extend_from_slice(secret);
    out.extend_from_slice(&weights);
    out
}

pub(crate) fn read_private<C: Scheme>(
    plan: &Plan<C>,
    private: &[u8],
) -> Result<(Zeroizing<[u8; 32]>, Weights), BackendError> {
    let Some((secret, rest)) = private.split_first_chunk() else {
        return Err(BackendError::Private { what: "it has no secret".into() });
    };
    Ok((Zeroizing::new(*secret), tacit_ring::read_weights(rest, &plan.graph)?))
}

/// Computes a layer's `E` at the server.
pub(crate) fn mask_weights(layer: &LayerWeights, key: &Seed, width: u32) -> Matrix {
    let key = Prg::from_seed(key.clone());
    let pieces = layer.weights.par_chunks(PIECE_WEIGHTS).enumerate().map(|(piece, weights)| {
        let random = draw_mask_piece(&key, piece, weights.len(), width);
        let words = weights.iter().zip(random.iter());
        let words: Vec<u64> = words.map(|(&w, a)| (i64::from(w) as u64).wrapping_sub(*a) & ring_mask(width)).collect();
        Matrix::new(&words, width)
    });
    let mut out = Matrix::empty(layer.weights.len(), width);
    out.extend(&pieces.collect::<Vec<_>>());
    out
}

/// The client's matrices `E`, in node order.
pub(crate) struct MaskedWeights(Vec<Matrix>);

impl MaskedWeights {
    pub(crate) fn layer(&self, index: usize) -> &Matrix {
        &self.0[index]
    }
}

/// Receives `E` in the order of [`write`], with a few megabytes of memory beside the matrices.
pub(crate) struct MaskedWeightsReceiver<'a> {
    /// Number of entries and width of the layers that have not begun.
    layers: Box<dyn Iterator<Item = (usize, u32)> + 'a>,
    matrices: Vec<Matrix>,
    /// Missing entries of the last matrix.
    left: usize,
    /// Received bytes of incomplete pieces.
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
}

/// The start of the digest of `E` in the public part.
fn hasher<C: Scheme>() -> blake3::Hasher {
    blake3::Hasher::new_derive_key(&domain::<C>(" masked weights"))
}

impl<'a> MaskedWeightsReceiver<'a> {
    pub(crate) fn new<C: Scheme>(plan: &'a Plan<C>) -> Self {
        let layers = Box::new(plan.masked_layers().map(|layer| (entry_count(plan, layer.conv), layer.width)));
        Self { layers, matrices: Vec::new(), left: 0, buffer: Vec::new(), hasher: hasher::<C>() }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), BackendError> {
        self.hasher.update(bytes);
        while !bytes.is_empty() {
            if self.left == 0 {
                let Some((count, width)) = self.layers.next() else {
                    return Err(public_error("more bytes of masked weights than it has".into()));
                };
                self.matrices.push(Matrix::empty(count, width));
                self.left = count;
            }
            let matrix = self.matrices.last_mut().expect("there is one with entries to come");
            // Pieces begin at whole bytes because their counts are multiples of eight.
            let count = self.left.min(PIECES_AT_ONCE * PIECE_WEIGHTS);
            let needed = (count * matrix.width as usize).div_ceil(8);
            let (now, later) = bytes.split_at(bytes.len().min(needed - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == needed {
                matrix.extend(&unpack_pieces(&self.buffer, count, matrix.width)?);
                self.left -= count;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    /// Returns all matrices, if they are complete and have this digest.
    pub(crate) fn finish(mut self, digest: &[u8; 32]) -> Result<MaskedWeights, BackendError> {
        if self.left > 0 || self.layers.next().is_some() {
            return Err(public_error("fewer bytes of masked weights than it has".into()));
        }
        if self.hasher.finalize().as_bytes() != digest {
            return Err(public_error("the masked weights are others than it says".into()));
        }
        Ok(MaskedWeights(self.matrices))
    }
}

fn public_error(what: String) -> BackendError {
    BackendError::Public { what }
}

fn unpack_pieces(bytes: &[u8], count: usize, width: u32) -> Result<Vec<Matrix>, BackendError> {
    let pieces = bytes.par_chunks(PIECE_WEIGHTS * width as usize / 8).enumerate().map(|(i, piece)| {
        let values = pack::unpack(piece, PIECE_WEIGHTS.min(count - i * PIECE_WEIGHTS), width, u64::MAX);
        Ok(Matrix::new(&values.map_err(|e| public_error(e.to_string()))?, width))
    });
    pieces.collect()
}

#[cfg(test)]
mod tests;
