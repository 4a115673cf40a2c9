//! Products of masked weights and words with spare bits, in rings of up to 81 bits, and the words
//! `V` of linear layers that follow from them.
//!
//! Entries are split as `l + 2^32 h` and words as `x = x_0 + 2^d x_1` at `d = bits - 64`. Sums of
//! `l x_0` are exact in 64 bits; those of `l x_1` and `h x` are needed only modulo 2^64. This takes
//! two or three products in words of 64 bits.

use tacit_arith::ring::{ConvSpec, conv2d};
use tacit_mpc::MpcError;
use tacit_mpc::codec::{Reader, Writer};
use tacit_mpc::fss::gate::CheckTranscript;
use tacit_mpc::fss::mac::ring::{Ring, Share};
use zeroize::Zeroizing;

use crate::session::LinearLayer;
use crate::session::masked_weights::Matrix;
use tacit_backend_api::BackendError;
use tacit_ring::fixed::ring_mask;

/// The ring of words of `width` bits with their spare bits.
pub(super) fn ring(width: u32) -> Ring {
    Ring::new(width).expect("a checked graph's rings have 2 to 40 bits")
}

pub(super) fn word_bytes(ring: Ring) -> usize {
    ring.share_bits().div_ceil(8) as usize
}

/// Checks that a layer's sums fit; the error says why they do not.
pub(super) fn check(conv: &ConvSpec, width: u32) -> Result<(), String> {
    let row = conv.weight_len() / conv.out_ch.max(1);
    let low = ring(width).share_bits().saturating_sub(64);
    match (row as u64).checked_mul(1 << (31 + low)).is_some_and(|sum| sum < 1 << 63) {
        true => Ok(()),
        false => Err(format!("{row} weights an output in a ring of {width} bits: their tags do not fit 128 bits")),
    }
}

/// `M x` modulo `2^bits` for words of `bits` (42 to 81) bits, with the entries of M as integers.
/// `x` holds one or more inputs.
pub(super) fn apply(
    matrix: &Matrix,
    conv: &ConvSpec,
    x: &[u128],
    bits: u32,
) -> Result<Zeroizing<Vec<u128>>, BackendError> {
    let mut out = Zeroizing::new(Vec::with_capacity(x.len() / conv.in_len() * conv.out_len()));
    for x in x.chunks(conv.in_len()) {
        out.extend_from_slice(&apply_one(matrix, conv, x, bits)?);
    }
    Ok(out)
}

fn apply_one(matrix: &Matrix, conv: &ConvSpec, x: &[u128], bits: u32) -> Result<Zeroizing<Vec<u128>>, BackendError> {
    // Biases may follow the weights.
    let (low, high) = matrix.parts();
    let low = low.get(..conv.weight_len()).unwrap_or(low);
    let high = high.get(..conv.weight_len()).unwrap_or(high);
    let split = bits.saturating_sub(64);
    let words = |f: &dyn Fn(u128) -> u64| Zeroizing::new(x.iter().map(|x| f(*x)).collect::<Vec<u64>>());
    let upper = product(conv, low, &words(&|x| (x >> split) as u64))?;
    let mut out: Vec<u128> = upper.iter().map(|v| u128::from(*v) << split).collect();
    if split > 0 {
        let lower = product(conv, low, &words(&|x| x as u64 & ((1 << split) - 1)))?;
        // The sums are exact and signed.
        out.iter_mut().zip(lower.iter()).for_each(|(o, v)| *o = o.wrapping_add(*v as i64 as u128));
    }
    if !high.is_empty() {
        let upper_entries = product(conv, high, &words(&|x| x as u64))?;
        out.iter_mut().zip(upper_entries.iter()).for_each(|(o, v)| *o = o.wrapping_add(u128::from(*v) << 32));
    }
    let mask = u128::MAX >> (128 - bits);
    out.iter_mut().for_each(|o| *o &= mask);
    Ok(Zeroizing::new(out))
}

/// Returns the product of a layer's entries and words, in words of 64 bits.
fn product(conv: &ConvSpec, entries: &[i32], x: &[u64]) -> Result<Zeroizing<Vec<u64>>, BackendError> {
    let product = conv2d(conv, entries, x, 64).map(Zeroizing::new);
    product.map_err(|_| BackendError::Misuse("a matrix belongs to another layer"))
}

/// A party's shares with tags of a layer's input and of its masks tau.
pub(super) struct LinearShares {
    pub(super) x: Zeroizing<Vec<Share>>,
    pub(super) tau: Zeroizing<Vec<Share>>,
}

impl LinearShares {
    /// Reads the shares, as [`write`] encodes value and tag of each.
    pub(super) fn read(layer: &LinearLayer<'_>, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        let LinearLayer { conv, width, batch, .. } = *layer;
        let x = read_shares(reader, ring(width), batch * conv.in_len())?;
        Ok(Self { x, tau: read_shares(reader, ring(width), batch * conv.out_len())? })
    }

    /// Enters the party's words `M x + tau` into a transcript. Returns what the party sends of them.
    pub(super) fn enter(
        &self,
        matrix: &Matrix,
        layer: &LinearLayer<'_>,
        transcript: &mut CheckTranscript,
    ) -> Result<Vec<u64>, BackendError> {
        let bits = ring(layer.width).share_bits();
        let [values, tags] = [|share: &Share| share.value, |share: &Share| share.tag].map(|part| {
            let x: Zeroizing<Vec<u128>> = Zeroizing::new(self.x.iter().map(part).collect());
            apply(matrix, layer.conv, &x, bits)
        });
        let (values, tags, mask) = (values?, tags?, u128::MAX >> (128 - bits));
        let words = values.iter().zip(tags.iter()).zip(self.tau.iter()).map(|((value, tag), tau)| Share {
            value: value.wrapping_add(tau.value) & mask,
            tag: tag.wrapping_add(tau.tag) & mask,
        });
        let words: Zeroizing<Vec<Share>> = Zeroizing::new(words.collect());
        transcript.values(layer.width, words.iter().cloned(), std::iter::empty::<u128>());
        Ok(words.iter().map(|word| word.value as u64 & ring_mask(layer.width)).collect())
    }
}

/// Opens words as the sums of both parties' words, and enters these into the transcript.
pub(super) fn open_words(sent: &[u64], received: &[u64], width: u32, transcript: &mut CheckTranscript) -> Vec<u64> {
    let pairs = || sent.iter().zip(received);
    transcript.values(width, std::iter::empty(), pairs().map(|(a, b)| u128::from(*a) + u128::from(*b)));
    pairs().map(|(a, b)| a.wrapping_add(*b) & ring_mask(width)).collect()
}

/// Reads `count` shares, as value and tag of each.
fn read_shares(reader: &mut Reader<'_>, ring: Ring, count: usize) -> Result<Zeroizing<Vec<Share>>, MpcError> {
    let words = read(reader, ring, 2 * count)?;
    let (pairs, _) = words.as_chunks();
    Ok(Zeroizing::new(pairs.iter().map(|&[value, tag]| Share { value, tag }).collect()))
}

/// Encodes words of a ring, each in [`word_bytes`] bytes.
pub(super) fn write(words: impl Iterator<Item = u128>, ring: Ring, out: &mut Writer) {
    words.for_each(|word| out.bytes(&word.to_le_bytes()[..word_bytes(ring)]));
}

pub(super) fn read(reader: &mut Reader<'_>, ring: Ring, count: usize) -> Result<Zeroizing<Vec<u128>>, MpcError> {
    let word_len = word_bytes(ring);
    let words = reader.bytes(count * word_len)?.chunks_exact(word_len).map(|bytes| {
        let mut word = [0; 16];
        word[..word_len].copy_from_slice(bytes);
        u128::from_le_bytes(word) & (u128::MAX >> (128 - ring.share_bits()))
    });
    Ok(Zeroizing::new(words.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::masked_weights;
    use tacit_arith::prg::{Prg, Seed};

    #[test]
    fn products_match_integers() {
        let conv = ConvSpec::linear(300, 5);
        let mut random = Prg::from_seed(Seed([4; 16]));
        for width in [2, 13, 23, 24, 25, 31, 32, 33, 40] {
            let bits = ring(width).share_bits();
            let matrix = masked_weights::draw_mask(&Prg::from_seed(Seed([9; 16])), 0..1500, 1500, width);
            let (low, high) = matrix.parts();
            // Also with every bit of the words set, where the sums are largest.
            for full in [false, true] {
                let mask = u128::MAX >> (128 - bits);
                let x: Vec<u128> = (0..300).map(|_| if full { mask } else { random.next_block().0 & mask }).collect();
                let got = apply(&matrix, &conv, &x, bits).unwrap();
                for (o, got) in got.iter().enumerate() {
                    let entry = |i: usize| i128::from(low[i]) + (i128::from(*high.get(i).unwrap_or(&0)) << 32);
                    let expected = (0..300)
                        .fold(0u128, |sum, i| sum.wrapping_add((entry(300 * o + i) as u128).wrapping_mul(x[i])));
                    assert_eq!(*got, expected & mask, "{width} bits");
                }
            }
        }
        assert!(check(&conv, 40).is_ok());
        assert!(check(&ConvSpec::linear(1 << 15, 2), 40).is_err() && check(&ConvSpec::linear(1 << 15, 2), 32).is_ok());
    }

    #[test]
    fn words_round_trip() {
        for width in [2, 23, 24, 40] {
            let (ring, mut out) = (ring(width), Writer::default());
            let words: Vec<u128> =
                (0..9u128).map(|i| (u128::MAX / 10 * i) & (u128::MAX >> (128 - ring.share_bits()))).collect();
            write(words.iter().copied(), ring, &mut out);
            let bytes = out.finish();
            assert_eq!(*read(&mut Reader::new(&bytes), ring, 9).unwrap(), words);
            assert!(read(&mut Reader::new(&bytes), ring, 10).is_err());
        }
    }
}
