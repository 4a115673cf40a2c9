//! The random matrices `A` and what the client gets instead of the weights: `E = W - A` modulo the layer's
//! ring.
//!
//! `A` is the stream of a key that is bound to the layer's integers, its ring and its shape, under a secret
//! of the owner's: two sets of weights never share an `A` (which would reveal their difference). `E` alone
//! is uniform. **`A`'s key together with `E` is `W`**: it stays with server and dealer.

use rayon::prelude::*;
use tacit_arith::pack;
use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::{ConvSpec, conv2d};
use zeroize::{Zeroize, Zeroizing};

use crate::ring::fixed::ring_mask;
use crate::ring::share::{Kind, Step};
use crate::ring::{LayerWeights, RingGraph, Weights};
use crate::{BackendError, seam};

/// Weights that are drawn from one stream: rows are generated in parallel.
const PIECE: usize = 1 << 16;

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
    /// One of `count` entries, from its pieces.
    fn joined(pieces: Vec<Self>, count: usize, width: u32) -> Self {
        let mut out = Self { low: Vec::with_capacity(count), high: Vec::new(), width };
        for piece in pieces {
            out.low.extend_from_slice(&piece.low);
            out.high.extend_from_slice(&piece.high);
        }
        out
    }

    fn new(words: impl Iterator<Item = u64>, width: u32) -> Self {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for word in words {
            low.push(word as u32 as i32);
            if width > 32 {
                // `low` counts as signed.
                high.push((word.wrapping_sub(i64::from(word as u32 as i32) as u64) >> 32) as i32);
            }
        }
        Self { low, high, width }
    }

    /// Entries as integers: `low + 2^32 high`, where there is no `high` for rings of up to 32 bits.
    pub(crate) fn parts(&self) -> (&[i32], &[i32]) {
        (&self.low, &self.high)
    }

    /// `M x` modulo `2^width`.
    pub(crate) fn apply(&self, conv: &ConvSpec, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let fail = |_| BackendError::Misuse("a matrix belongs to another layer");
        let mut out = conv2d(conv, &self.low, x, self.width).map_err(fail)?;
        if !self.high.is_empty() {
            let high = conv2d(conv, &self.high, x, self.width - 32).map_err(fail)?;
            out.iter_mut().zip(high).for_each(|(o, h)| *o = o.wrapping_add(h << 32));
        }
        out.iter_mut().for_each(|o| *o &= ring_mask(self.width));
        Ok(out)
    }
}

/// Entries `range` of a layer's `A`.
fn entries(key: &Prg, piece: usize, count: usize, width: u32) -> Vec<u64> {
    let mut prg = key.fork(piece as u64);
    let mask = ring_mask(width);
    if width > 32 {
        let mut words = vec![0u64; count];
        prg.fill_u64(&mut words);
        words.iter_mut().for_each(|w| *w &= mask);
        return words;
    }
    let mut pairs = vec![0u64; count.div_ceil(2)];
    prg.fill_u64(&mut pairs);
    pairs.into_iter().flat_map(|w| [w & mask, w >> 32 & mask]).take(count).collect()
}

/// A layer's `A` of `count` entries.
pub(crate) fn random(key: &Seed, count: usize, width: u32) -> Matrix {
    let key = Prg::from_seed(key.clone());
    let pieces = (0..count.div_ceil(PIECE)).into_par_iter().map(|piece| {
        let words = entries(&key, piece, PIECE.min(count - piece * PIECE), width);
        Matrix::new(words.into_iter(), width)
    });
    Matrix::joined(pieces.collect(), count, width)
}

/// A plan whose linear layers are masked.
pub(crate) trait Masked {
    /// Its steps.
    type Parts: Kind<Linear = ConvSpec>;
    fn graph(&self) -> &RingGraph;
    fn steps(&self) -> &[Step<Self::Parts>];
}

/// The linear nodes of a plan: index, shape, ring.
pub(crate) fn layers<P: Masked>(plan: &P) -> impl Iterator<Item = (usize, &ConvSpec, u32)> {
    let nodes = plan.graph().nodes().iter().zip(plan.steps()).enumerate();
    nodes.filter_map(|(id, (node, step))| match step {
        Step::Linear(conv) => Some((id, conv, node.fixed.width)),
        _ => None,
    })
}

/// Bytes of `E`, all layers.
pub(crate) fn bytes(plan: &impl Masked) -> u64 {
    layers(plan).map(|(_, conv, width)| (conv.weight_len() as u64 * u64::from(width)).div_ceil(8)).sum()
}

/// The keys of all layers, in node order.
pub(crate) fn keys(plan: &impl Masked, weights: &Weights, secret: &[u8; 32]) -> Vec<Seed> {
    let key = |(id, conv, width): (usize, &ConvSpec, u32)| {
        let layer = weights.get(id).expect("weights are checked against the graph when they are read or made");
        let ints: Zeroizing<Vec<u8>> = Zeroizing::new(layer.weights.iter().flat_map(|w| w.to_le_bytes()).collect());
        let shape = postcard::to_stdvec(&(conv.in_ch, conv.out_ch, conv.kernel, conv.groups, width));
        let shape = shape.expect("plain data in memory can be encoded");
        let digest = seam::digest("tacit 2026-11 dealt layer", &[secret, &(id as u64).to_le_bytes(), &shape, &ints]);
        Seed(*digest.first_chunk().expect("a digest has 32 bytes"))
    };
    layers(plan).map(key).collect()
}

/// Gives `E`, packed at the ring's width, in pieces and layer by layer.
pub(crate) fn write(
    plan: &impl Masked,
    weights: &Weights,
    keys: &[Seed],
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    for ((id, _, width), key) in layers(plan).zip(keys) {
        let layer: &LayerWeights = weights.get(id).expect("there is a key for each layer with weights");
        let key = Prg::from_seed(key.clone());
        let pieces: Vec<&[i32]> = layer.weights.chunks(PIECE).collect();
        // A few at a time: `E` of a large layer is never in memory as a whole.
        for (group, chunk) in pieces.chunks(64).enumerate() {
            let packed: Vec<Vec<u8>> = chunk
                .par_iter()
                .enumerate()
                .map(|(i, weights)| {
                    let random = entries(&key, group * 64 + i, weights.len(), width);
                    let mut out = Vec::new();
                    let words = weights.iter().zip(&random);
                    let words: Vec<u64> =
                        words.map(|(&w, a)| (i64::from(w) as u64).wrapping_sub(*a) & ring_mask(width)).collect();
                    pack::pack(words.into_iter(), width, &mut out);
                    out
                })
                .collect();
            packed.iter().try_for_each(|bytes| sink(bytes))?;
        }
    }
    Ok(())
}

/// A layer's `E`, at the server.
pub(crate) fn masked(layer: &LayerWeights, key: &Seed, width: u32) -> Matrix {
    let key = Prg::from_seed(key.clone());
    let pieces = layer.weights.par_chunks(PIECE).enumerate().map(|(piece, weights)| {
        let random = entries(&key, piece, weights.len(), width);
        let words =
            weights.iter().zip(&random).map(|(&w, a)| (i64::from(w) as u64).wrapping_sub(*a) & ring_mask(width));
        Matrix::new(words, width)
    });
    Matrix::joined(pieces.collect(), layer.weights.len(), width)
}

/// The client's matrices, in node order.
pub(crate) struct Statics(Vec<Matrix>);

impl Statics {
    /// From the bytes of all layers, as [`write`] gives them.
    pub(crate) fn read(plan: &impl Masked, bytes: &[u8]) -> Result<Self, BackendError> {
        let wrong = |what: String| BackendError::Public { what };
        if bytes.len() as u64 != self::bytes(plan) {
            return Err(wrong(format!("{} bytes of masked weights, {} expected", bytes.len(), self::bytes(plan))));
        }
        let (mut rest, mut matrices) = (bytes, Vec::new());
        for (_, conv, width) in layers(plan) {
            let count = conv.weight_len();
            let (taken, later) = rest.split_at((count * width as usize).div_ceil(8));
            rest = later;
            // Pieces begin at whole bytes: their counts are multiples of eight.
            let step = PIECE * width as usize / 8;
            let pieces: Result<Vec<Matrix>, BackendError> = taken
                .par_chunks(step)
                .enumerate()
                .map(|(i, piece)| {
                    let values = pack::unpack(piece, PIECE.min(count - i * PIECE), width, u64::MAX);
                    Ok(Matrix::new(values.map_err(|e| wrong(e.to_string()))?.into_iter(), width))
                })
                .collect();
            matrices.push(Matrix::joined(pieces?, count, width));
        }
        Ok(Self(matrices))
    }

    /// The matrix of the `index`-th linear layer.
    pub(crate) fn layer(&self, index: usize) -> &Matrix {
        &self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dealt::{Options, Plan, compile};
    use crate::ring::reference::tests::spec;
    use crate::ring::{FixedPoint, Linear, Node, Op, RingGraph, WeightFacts};

    /// One fully connected layer of 30 inputs and 20 outputs in a ring of `width` bits.
    fn plan(width: u32) -> Plan {
        let node = |op, inputs, n| Node {
            name: "n".into(),
            op,
            inputs,
            shape: vec![n],
            fixed: FixedPoint { width, frac_bits: 4 },
        };
        let facts = WeightFacts { frac_bits: 0, magnitude_bits: 8, norm_bits: 11 };
        let dense = Op::Linear(Linear { out_features: 20, weights: facts });
        let graph = RingGraph::new(spec(vec![node(Op::Input, vec![], 30), node(dense, vec![0], 20)]));
        compile(graph.expect("a valid graph"), Options::default()).expect("a plan")
    }

    fn weights(first: i32) -> Weights {
        let weights = (0..600).map(|i| if i == 0 { first } else { (i * 37) % 255 - 127 }).collect();
        Weights { layers: vec![LayerWeights { node: 1, weights, bias: vec![0; 20] }] }
    }

    #[test]
    fn masked_weights_and_masks_add_up_to_the_weights() {
        for width in [13, 25, 32, 33, 40] {
            let (plan, weights) = (plan(width), weights(-100));
            let keys = keys(&plan, &weights, &[7; 32]);
            let mut masked = Vec::new();
            write(&plan, &weights, &keys, &mut |bytes| {
                masked.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!(masked.len() as u64, bytes(&plan));
            let statics = Statics::read(&plan, &masked).unwrap();
            assert!(Statics::read(&plan, &masked[1..]).is_err());
            let x: Vec<u64> = (0..30u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ring_mask(width)).collect();
            let (_, conv, _) = layers(&plan).next().unwrap();
            let masked = statics.layer(0).apply(conv, &x).unwrap();
            let mask = random(&keys[0], conv.weight_len(), width).apply(conv, &x).unwrap();
            let plain = conv2d(conv, &weights.layers[0].weights, &x, width).unwrap();
            for ((e, a), w) in masked.iter().zip(&mask).zip(&plain) {
                assert_eq!(e.wrapping_add(*a) & ring_mask(width), w & ring_mask(width), "{width} bits");
            }
        }
    }

    #[test]
    fn other_weights_rings_or_owners_have_other_masks() {
        let mut seen = Vec::new();
        for (width, first, secret) in [(25, 1, 7), (25, 2, 7), (26, 1, 7), (25, 1, 8)] {
            seen.push(keys(&plan(width), &weights(first), &[secret; 32])[0].0);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4, "two sets of weights under one mask reveal their difference");
    }
}
