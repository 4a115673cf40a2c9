//! The client's check that a server's linear layer used the masked weights, which the client does
//! not have.
//!
//! Both parties know `xh = x - c` and `V = E c + tau`. The server sends the result
//! ```text
//! zh = W xh + bias + V + K = (E + A) xh + (E_b + A_b) + V + K
//! K = A c - tau - target, from the dealer
//! ```
//! From its seed, the client has a secret matrix G of bits with [`ROWS`] rows for each output
//! channel, and random a and b. The dealer gives the server `beta = a - G A`, a kernel with
//! [`ROWS`] output channels, and for each position of the result `kappa = b - G (K + A_b)`. The
//! server proves its result with the digest of `T = beta xh + kappa`, and the client expects
//! ```text
//! T = (a + G E) xh + b + G (E_b + V) - G zh
//! ```
//! all modulo `2^w`. The client computes the first two terms offline. Without a and b, beta and
//! kappa are uniform, so they reveal nothing about G. The client can compute T itself, so T reveals
//! nothing to the client. A result that is wrong by an e other than 0 needs a T that is off by
//! `G e`. Let v be the smallest number of trailing zeros of an entry of e. Then each row of `G e`
//! is `2^v` times a sum whose lowest bit is uniform, so T is guessed with probability at most
//! `2^-ROWS`.
//!
//! The positions of a batch are those of all its inputs. A batch has one G, one a and one beta, and
//! a separate b and kappa for each position of each input.
//!
//! The server holds per layer [`ROWS`] words of w bits for each weight of one output channel of all
//! groups, and for each position. The client holds as many after the offline phase. Online, only
//! the digest is sent.

use std::ops::Range;

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::{ConvSpec, conv2d};
use tacit_mpc::codec::{Packed, Reader, Writer};
use zeroize::Zeroizing;

use crate::session::masked_weights::{self, Matrix};
use crate::session::{LinearLayer, Source};
use tacit_backend_api::BackendError;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{GatePosition, chosen, stream};

/// Number of rows of a projection.
pub(super) const ROWS: usize = 48;

/// Number of matrix entries that are projected in one step, before the projections are added up.
const ENTRIES_AT_ONCE: usize = 1 << 20;
/// Bytes of these entries as words.
pub(super) const AT_ONCE_BYTES: u64 = 8 * ENTRIES_AT_ONCE as u64;
/// Number of words that fit together in a core's own cache.
const CACHED_WORDS: usize = 1 << 17;

/// Parts of the client's seed, for G, a and b.
const BITS: u8 = 0xf4;
const KERNEL: u8 = 0xf5;
const OFFSETS: u8 = 0xf6;

/// Number of weights of one output channel that reads all groups, and of positions of the result.
fn sizes(conv: &ConvSpec) -> [usize; 2] {
    [conv.in_ch * conv.kernel.0 * conv.kernel.1, conv.out_h() * conv.out_w()]
}

/// Number of words of a kernel, and of the offsets of `batch` inputs.
fn words(conv: &ConvSpec, batch: usize) -> [usize; 2] {
    let [kernel, positions] = sizes(conv);
    [kernel, batch * positions].map(|n| ROWS * n)
}

/// Bytes of a kernel and of the offsets of `batch` inputs at each party.
pub(super) fn bytes(conv: &ConvSpec, width: u32, batch: usize) -> usize {
    words(conv, batch).iter().map(|n| Packed::len_bytes(*n, width)).sum()
}

/// Number of multiplications for projecting a layer's matrix, and for applying the projection to
/// masked values and result of one input.
pub(super) fn work(conv: &ConvSpec) -> [u64; 2] {
    let ([kernel, positions], out) = (sizes(conv), conv.out_ch);
    [conv.weight_len(), kernel * positions + out * positions].map(|n| (ROWS * n) as u64)
}

/// A layer's secret projection, at the client and the dealer.
pub(super) struct Projection<'a> {
    /// `[ROWS, out]`, 0 or 1.
    bits: Zeroizing<Vec<i32>>,
    conv: &'a ConvSpec,
    width: u32,
    /// a and b.
    pads: [Zeroizing<Vec<u64>>; 2],
}

/// An affine map of masked values to a party's `T`: a kernel `[ROWS, in, kh, kw]`, and offsets
/// `[B, ROWS, positions]`.
pub(super) struct AffineMap {
    kernel: Zeroizing<Vec<u64>>,
    offsets: Zeroizing<Vec<u64>>,
}

impl<'a> Projection<'a> {
    pub(super) fn draw(seed: &Prg, layer: LinearLayer<'a>) -> Self {
        let LinearLayer { id, conv, width, batch } = layer;
        let (position, [kernel, offsets]) = (GatePosition { node: id, level: 0 }, words(conv, batch));
        let mut words = Zeroizing::new(vec![0u64; conv.out_ch]);
        stream(seed, position, BITS).fill_u64(&mut words);
        let bits = (0..ROWS).flat_map(|row| words.iter().map(move |word| (word >> row & 1) as i32));
        let pads = [(KERNEL, kernel), (OFFSETS, offsets)]
            .map(|(part, n)| Zeroizing::new(chosen(seed, position, part, n, width)));
        Self { bits: Zeroizing::new(bits.collect()), conv, width, pads }
    }

    /// `G M` for the rows from `first` on of a matrix, each of `length` words: `[ROWS, length]`.
    fn rows(&self, first: usize, words: &[u64], length: usize) -> Result<Zeroizing<Vec<u64>>, BackendError> {
        let n = words.len() / length;
        let bits = self.bits.chunks_exact(self.conv.out_ch).flat_map(|row| &row[first..first + n]);
        let bits: Zeroizing<Vec<i32>> = Zeroizing::new(bits.copied().collect());
        let mut out = Zeroizing::new(vec![0; ROWS * length]);
        // Works on some columns at a time, so that all their projections find them in the core's
        // cache.
        let columns = (CACHED_WORDS / n).max(64);
        for start in (0..length).step_by(columns) {
            let end = length.min(start + columns);
            let part: Zeroizing<Vec<u64>> =
                Zeroizing::new(words.chunks_exact(length).flat_map(|row| &row[start..end]).copied().collect());
            let product = ConvSpec { in_ch: n, out_ch: ROWS, in_h: 1, in_w: end - start, ..ConvSpec::linear(1, 1) };
            let part = conv2d(&product, &bits, &part, self.width).map(Zeroizing::new);
            let part = part.map_err(|_| BackendError::Misuse("a projection belongs to another layer"))?;
            let lines = out.chunks_exact_mut(length).zip(part.chunks_exact(end - start));
            lines.for_each(|(out, part)| out[start..end].copy_from_slice(part));
        }
        Ok(out)
    }

    /// `G M` for a whole matrix of the layer, with entries by range: `[ROWS, in, kh, kw]`.
    fn kernel(
        &self,
        entries: impl Fn(Range<usize>) -> Zeroizing<Vec<u64>>,
    ) -> Result<Zeroizing<Vec<u64>>, BackendError> {
        let (conv, [kernel_len, _]) = (self.conv, sizes(self.conv));
        let row = kernel_len / conv.groups;
        let (at_once, mut out) = ((ENTRIES_AT_ONCE / row).max(1), Zeroizing::new(vec![0u64; ROWS * kernel_len]));
        for group in 0..conv.groups {
            let rows = group * conv.group_out()..(group + 1) * conv.group_out();
            for first in rows.clone().step_by(at_once) {
                let last = rows.end.min(first + at_once);
                let part = self.rows(first, &entries(first * row..last * row), row)?;
                for (out, part) in out.chunks_exact_mut(kernel_len).zip(part.chunks_exact(row)) {
                    let group_words = out[group * row..][..row].iter_mut().zip(part);
                    group_words.for_each(|(out, part)| *out = out.wrapping_add(*part));
                }
            }
        }
        Ok(out)
    }

    /// `G z` at every position, z `[B, out, positions]`: `[B, ROWS, positions]`.
    fn positions(&self, z: &[u64]) -> Result<Zeroizing<Vec<u64>>, BackendError> {
        let [_, positions] = sizes(self.conv);
        let mut out = Zeroizing::new(Vec::with_capacity(z.len() / self.conv.out_ch * ROWS));
        for z in z.chunks(self.conv.out_len()) {
            out.extend_from_slice(&self.rows(0, z, positions)?);
        }
        Ok(out)
    }

    /// Adds the pads to `kernel` and to `positions`, which are negated first if `negative`. Each
    /// position also gets the projection of `biases`, which has one word for each channel.
    fn pad(
        &self,
        negative: bool,
        kernel: &[u64],
        positions: &[u64],
        biases: &[u64],
    ) -> Result<AffineMap, BackendError> {
        let biases = self.rows(0, biases, 1)?;
        let rows = positions.chunks_exact(sizes(self.conv)[1]).zip(biases.iter().cycle());
        let offsets = rows.flat_map(|(row, bias)| row.iter().map(move |word| word.wrapping_add(*bias)));
        let padded = |pad: &[u64], words: &mut dyn Iterator<Item = u64>| {
            let sums = pad.iter().zip(words).map(|(pad, word)| {
                pad.wrapping_add(if negative { word.wrapping_neg() } else { word }) & ring_mask(self.width)
            });
            Zeroizing::new(sums.collect::<Vec<u64>>())
        };
        let kernel = padded(&self.pads[0], &mut kernel.iter().copied());
        Ok(AffineMap { kernel, offsets: padded(&self.pads[1], &mut { offsets }) })
    }

    /// The server's beta and kappa. `key`: the key of A, which has `count` entries; `known`: K.
    pub(super) fn for_server(&self, key: &Seed, count: usize, known: &[u64]) -> Result<AffineMap, BackendError> {
        let (key, width, weights) = (Prg::from_seed(key.clone()), self.width, self.conv.weight_len());
        let draw = |range: Range<usize>| masked_weights::draw_mask(&key, range, count, width);
        // A small matrix with many groups is drawn in one step.
        let whole = (weights <= ENTRIES_AT_ONCE).then(|| draw(0..weights));
        let kernel = self.kernel(|range| match &whole {
            Some(matrix) => matrix.words(range),
            None => draw(range.clone()).words(0..range.len()),
        })?;
        let biases = draw(weights..count).words(0..count - weights);
        self.pad(true, &kernel, &self.positions(known)?, &biases)
    }

    /// The client's `a + G E` and `b + G (E_b + V)`.
    pub(super) fn for_client(&self, masked: &Matrix, opened: &[u64]) -> Result<AffineMap, BackendError> {
        let (weights, count) = (self.conv.weight_len(), self.conv.weight_len() + self.conv.out_ch);
        let kernel = self.kernel(|range| masked.words(range))?;
        self.pad(false, &kernel, &self.positions(opened)?, &masked.words(weights..count))
    }

    /// The `T` that the client expects for masked values and the server's result.
    pub(super) fn expected_words(
        &self,
        client_map: &AffineMap,
        masked: &[u64],
        result: &[u64],
    ) -> Result<Vec<u64>, BackendError> {
        let (mut out, result) = (client_map.apply(self.conv, masked, self.width)?, self.positions(result)?);
        let pairs = out.iter_mut().zip(result.iter());
        pairs.for_each(|(out, result)| *out = out.wrapping_sub(*result) & ring_mask(self.width));
        Ok(out)
    }
}

impl AffineMap {
    /// Applies the kernel to masked values and adds the offsets: `[B, ROWS, positions]`.
    pub(super) fn apply(&self, conv: &ConvSpec, masked: &[u64], width: u32) -> Result<Vec<u64>, BackendError> {
        let projected = ConvSpec { out_ch: ROWS, groups: 1, ..*conv };
        let mut out = Matrix::new(&self.kernel, width).apply(&projected, masked)?;
        let pairs = out.iter_mut().zip(self.offsets.iter());
        pairs.for_each(|(out, offset)| *out = out.wrapping_add(*offset) & ring_mask(width));
        Ok(out)
    }

    /// Encodes kernel and offsets in [`bytes`] bytes.
    pub(super) fn write(&self, width: u32) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::default();
        [&self.kernel, &self.offsets].iter().for_each(|words| out.packed(&Packed::new(words, width)));
        out.finish()
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(super) fn read(layer: &LinearLayer<'_>, source: &mut Source<'_>) -> Result<Self, BackendError> {
        let LinearLayer { conv, width, batch, .. } = *layer;
        let bytes = source.bytes(bytes(conv, width, batch))?;
        let (mut reader, [kernel, offsets]) = (Reader::new(&bytes), words(conv, batch));
        let kernel = Zeroizing::new(reader.packed(kernel, width)?.values());
        Ok(Self { kernel, offsets: Zeroizing::new(reader.packed(offsets, width)?.values()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(byte: u8, n: usize, width: u32) -> Vec<u64> {
        let mut words = vec![0; n];
        Prg::from_seed(Seed([byte; 16])).fill_u64(&mut words);
        words.iter().map(|word| word & ring_mask(width)).collect()
    }

    #[test]
    fn projection_detects_wrong_results() {
        let conv = |in_ch, out_ch, kernel, stride, groups| ConvSpec {
            in_ch,
            out_ch,
            in_h: 6,
            in_w: 5,
            kernel: (kernel, kernel),
            stride: (stride, stride),
            pads: [1, 0, 1, 1],
            groups,
            ..ConvSpec::linear(1, 1)
        };
        let (key, seed) = (Seed([3; 16]), Prg::from_seed(Seed([4; 16])));
        // The last layer is projected in several parts.
        let large = ConvSpec::linear(200, 3000);
        for conv in [ConvSpec::linear(30, 7), conv(4, 6, 3, 2, 1), conv(6, 4, 2, 1, 2), conv(5, 5, 3, 1, 5), large] {
            for (width, batch) in [(13, 1), (32, 3), (37, 1), (37, 2)] {
                let (count, weights) = (conv.weight_len() + conv.out_ch, conv.weight_len());
                let a = masked_weights::draw_mask(&Prg::from_seed(key.clone()), 0..count, count, width);
                let e = random(5, count, width);
                let [xh, known, opened] = [(6, conv.in_len()), (7, conv.out_len()), (8, conv.out_len())]
                    .map(|(b, n)| random(b, batch * n, width));
                // The result of an honest server.
                let sum: Vec<u64> = a.words(0..count).iter().zip(&e).map(|(a, e)| a.wrapping_add(*e)).collect();
                let sum: Vec<u64> = sum.iter().map(|w| w & ring_mask(width)).collect();
                let mut zh = Matrix::new(&sum[..weights], width).apply(&conv, &xh).unwrap();
                let positions = sizes(&conv)[1];
                for (i, z) in zh.iter_mut().enumerate() {
                    let addend =
                        sum[weights + i % conv.out_len() / positions].wrapping_add(known[i]).wrapping_add(opened[i]);
                    *z = z.wrapping_add(addend) & ring_mask(width);
                }
                let layer = LinearLayer { id: 2, conv: &conv, width, batch };
                let projection = Projection::draw(&seed, layer);
                let server_map = projection.for_server(&key, count, &known).unwrap();
                let proof = server_map.apply(&conv, &xh, width).unwrap();
                let client_map = projection.for_client(&Matrix::new(&e, width), &opened).unwrap();
                assert!(projection.expected_words(&client_map, &xh, &zh).unwrap() == proof, "{conv:?}, {width} bits");
                let bytes = server_map.write(width);
                assert_eq!(bytes.len(), super::bytes(&conv, width, batch));
                let reread = AffineMap::read(&layer, &mut Source::Memory(Reader::new(&bytes))).unwrap();
                assert!(reread.apply(&conv, &xh, width).unwrap() == proof);
                // Flips the top bit of one entry of the last input: about half of the rows at its
                // position change.
                zh[(batch - 1) * conv.out_len() + positions / 2] ^= 1 << (width - 1);
                let expected = projection.expected_words(&client_map, &xh, &zh).unwrap();
                let wrong_rows = expected.iter().zip(&proof).filter(|(a, b)| a != b).count();
                assert!((8..=40).contains(&wrong_rows), "{wrong_rows} of {ROWS} rows");
            }
        }
    }
}
