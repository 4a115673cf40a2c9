//! Layouts: the slot of each element of a tensor, and matrices as diagonals between layouts.
//!
//! An image keeps the grid of the network's input. After a stride of 2, four channels share the places of one
//! (multiplexed packing, [MPCNN22]), so a convolution moves slots over few distances. A tensor that fills a
//! part of the slots is repeated.

use std::collections::{BTreeMap, BTreeSet};

use tacit_he::ckks::Complex;

use super::sparse::Sparse;

/// The slots of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// Slot of each element, below `period`.
    pub slots: Vec<u32>,
    /// Slots after which they repeat: a power of two.
    pub period: usize,
}

fn image_shape(shape: &[usize]) -> [usize; 3] {
    match *shape {
        [c, h, w] => [c, h, w],
        [c, l] => [c, 1, l],
        _ => [shape.iter().product(), 1, 1],
    }
}

fn repetitions(total: usize, part: usize) -> usize {
    if part > total { 1 } else { 1 << (total / part).ilog2() }
}

impl Layout {
    /// Layout in a network with inputs of shape `input`, among `n` slots; `None` if the tensor does not fit.
    pub fn new(shape: &[usize], input: &[usize], n: usize) -> Option<Self> {
        let ([channels, h, w], [_, gh, gw]) = (image_shape(shape), image_shape(input));
        let count = channels * h * w;
        if h * w == 1 {
            return Self::tight(count, n);
        }
        let [ty, tx] = [repetitions(gh, h), repetitions(gw, w)];
        let [rows, columns] = [gh.max(h), gw.max(w)];
        let blocks = channels.div_ceil(ty * tx);
        let wide = (rows * columns).next_power_of_two();
        let block = if blocks * wide <= n { wide } else { rows * columns };
        let slots = (0..count).map(|i| {
            let (c, y, x) = (i / (h * w), i / w % h, i % w);
            let (share, place) = (c / (ty * tx), c % (ty * tx));
            (share * block + (y * ty + place / tx) * columns + x * tx + place % tx) as u32
        });
        Self::from_slots(slots.collect(), n).or_else(|| Self::tight(count, n))
    }

    fn tight(count: usize, n: usize) -> Option<Self> {
        Self::from_slots((0..count as u32).collect(), n)
    }

    /// Returns `None` if the period exceeds `n`.
    fn from_slots(slots: Vec<u32>, n: usize) -> Option<Self> {
        let used = slots.iter().max().map_or(1, |last| *last as usize + 1);
        let period = used.next_power_of_two().max(2);
        (period <= n).then_some(Self { slots, period })
    }

    /// Puts values of elements into all `n` slots; others are 0.
    pub fn to_slots(&self, values: &[f64], n: usize) -> Vec<f64> {
        let mut slots = vec![0.0; n];
        for copy in slots.chunks_mut(self.period) {
            self.slots.iter().zip(values).for_each(|(&slot, &v)| copy[slot as usize] = v);
        }
        slots
    }

    pub fn to_complex_slots(&self, values: &[f64], n: usize) -> Vec<Complex> {
        self.to_slots(values, n).into_iter().map(Complex::from).collect()
    }
}

/// How a matrix between layouts is computed.
pub(super) struct Moves {
    /// Distances over which slots are rotated before they are multiplied.
    pub offsets: BTreeSet<i64>,
    /// Distances over which sums are rotated and added to themselves, one after the other.
    pub folds: Vec<usize>,
}

/// Diagonals that one fold is worth: a key switch and a key, against a product and its weights.
const FOLD_COST: usize = 4;

/// Chooses the cheaper of two ways. Either each sum is computed in the slot of its result; or shares of it
/// are computed in all slots that equal that slot modulo the result's period, and folds add them up. The
/// second way moves no slot as far as that period ([GAZELLE], hybrid).
pub(super) fn moves(matrix: &Sparse, input: &Layout, output: &Layout) -> Moves {
    let (inner, outer) = (input.period, output.period);
    let distances = output.slots.iter().enumerate().flat_map(|(row, &slot)| {
        matrix.row(row).map(move |(column, _)| i64::from(input.slots[column]) - i64::from(slot))
    });
    let offsets = sorted_offsets(distances, inner);
    let copies = (inner / outer).max(1) as i64;
    let all_offsets =
        sorted_offsets(offsets.iter().flat_map(|d| (0..copies).map(move |copy| d - copy * outer as i64)), inner);
    let reduced_offsets = sorted_offsets(offsets.iter().map(|d| d & (outer as i64 - 1)), inner);
    let folds: Vec<usize> = (0..copies.ilog2()).map(|k| outer << k).collect();
    if 2 * (reduced_offsets.len() + FOLD_COST * folds.len()) <= all_offsets.len() && !folds.is_empty() {
        return Moves { offsets: reduced_offsets.into_iter().collect(), folds };
    }
    Moves { offsets: all_offsets.into_iter().map(|d| centred(d, inner)).collect(), folds: Vec::new() }
}

fn sorted_offsets(offsets: impl Iterator<Item = i64>, period: usize) -> Vec<i64> {
    let mut is_present = vec![false; period];
    offsets.for_each(|offset| is_present[offset.rem_euclid(period as i64) as usize] = true);
    is_present.iter().enumerate().filter(|(_, is_present)| **is_present).map(|(d, _)| d as i64).collect()
}

/// The representative of an offset that is nearest to 0.
fn centred(offset: i64, period: usize) -> i64 {
    if 2 * offset > period as i64 { offset - period as i64 } else { offset }
}

/// Diagonals before any folds: `out[i] = sum_d D_d[i] v[i + d]` for `n` slots.
pub(super) fn diagonals(
    matrix: &Sparse,
    input: &Layout,
    output: &Layout,
    n: usize,
    moves: &Moves,
) -> BTreeMap<i64, Vec<Complex>> {
    let mut diagonals: BTreeMap<i64, Vec<Complex>> = BTreeMap::new();
    let (mask, outer) = (input.period as i64 - 1, output.period as i64);
    let mut add = |offset: i64, i: usize, value: f64| {
        let diagonal = diagonals.entry(offset).or_insert_with(|| vec![Complex::default(); n]);
        diagonal[i] = diagonal[i] + Complex::from(value);
    };
    for (row, &slot) in output.slots.iter().enumerate() {
        for (column, value) in matrix.row(row) {
            let source = i64::from(input.slots[column]);
            if !moves.folds.is_empty() {
                let offset = (source - i64::from(slot)) & (outer - 1);
                add(offset, ((source - offset) & mask) as usize, value);
                continue;
            }
            for copy in 0..(input.period as i64 / outer).max(1) {
                let i = i64::from(slot) + copy * outer;
                add(centred((source - i) & mask, input.period), i as usize, value);
            }
        }
    }
    let period = input.period.max(output.period);
    for diagonal in diagonals.values_mut() {
        let (first, rest) = diagonal.split_at_mut(period);
        rest.chunks_mut(period).for_each(|copy| copy.copy_from_slice(first));
    }
    diagonals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks_for_tests::geometry;
    use tacit_graph::float::{FloatNode, FloatOp};
    use tacit_graph::rng::SplitMix;

    fn conv(shape: &[usize], out: usize, stride: usize) -> Sparse {
        let mut rng = SplitMix::new(1);
        let weights = (0..out * shape[0] * 9).map(|_| rng.range(-1.0, 1.0) as f32).collect();
        let shape_out = vec![out, shape[1] / stride, shape[2] / stride];
        let op = FloatOp::Conv { geometry: geometry(out, stride), weights, bias: vec![0.0; out] };
        let node = FloatNode { name: "c".into(), op, inputs: vec![0], shape: shape_out };
        crate::maps::map(&node, shape).unwrap().matrix
    }

    /// A chain of layers by diagonals gives what matrices give, in every slot of every copy.
    #[test]
    fn diagonals_compute_the_matrix() {
        let (input, n) = (vec![3, 8, 8], 1024);
        let shapes = [input.clone(), vec![8, 8, 8], vec![6, 4, 4], vec![7, 2, 2], vec![5]];
        let layouts: Vec<Layout> = shapes.iter().map(|s| Layout::new(s, &input, n).unwrap()).collect();
        let mut rng = SplitMix::new(2);
        let dense = |rows: usize, columns: usize, rng: &mut SplitMix| {
            let row = |_| (0..columns as u32).map(|c| (c, rng.range(-1.0, 1.0) as f32)).collect();
            Sparse::from_rows(columns, (0..rows).map(row).collect::<Vec<_>>())
        };
        let matrices = [conv(&shapes[0], 8, 1), conv(&shapes[1], 6, 2), conv(&shapes[2], 7, 2), dense(5, 28, &mut rng)];
        let mut values: Vec<f64> = (0..192).map(|_| rng.range(-1.0, 1.0)).collect();
        let mut slots = layouts[0].to_slots(&values, n);
        let mut folded = Vec::new();
        for (k, matrix) in matrices.iter().enumerate() {
            let moves = moves(matrix, &layouts[k], &layouts[k + 1]);
            let parts = diagonals(matrix, &layouts[k], &layouts[k + 1], n, &moves);
            assert!(parts.keys().eq(&moves.offsets));
            folded.push(moves.folds.len());
            let value = |i: usize| -> f64 {
                let rotated = |d: i64| slots[(i as i64 + d).rem_euclid(n as i64) as usize];
                parts.iter().map(|(&d, p)| p[i].re * rotated(d)).sum()
            };
            slots = (0..n).map(value).collect();
            for distance in &moves.folds {
                slots = (0..n).map(|i| slots[i] + slots[(i + distance) % n]).collect();
            }
            values = matrix.apply(&values);
            let expected = layouts[k + 1].to_slots(&values, n);
            assert!(slots.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "layer {k}");
        }
        assert_eq!(folded, [0, 2, 0, 3]);
    }

    #[test]
    fn convolutions_have_few_diagonals() {
        let input = [3, 32, 32];
        let n = 1 << 14;
        let layout = |shape: &[usize]| Layout::new(shape, &input, n).unwrap();
        let [first, second, third] = [layout(&[16, 32, 32]), layout(&[32, 16, 16]), layout(&[64, 8, 8])];
        assert_eq!([first.period, second.period, third.period], [1 << 14, 1 << 13, 1 << 12]);
        let count = |shape: &[usize], out: usize, stride: usize, to: &Layout| {
            moves(&conv(shape, out, stride), &layout(shape), to).offsets.len()
        };
        assert_eq!(count(&[16, 32, 32], 16, 1, &first), 144);
        assert_eq!(count(&[32, 16, 16], 32, 1, &second), 392);
        assert_eq!(count(&[64, 8, 8], 64, 1, &third), 900);
        assert!(Layout::new(&[17, 32, 32], &input, n).is_none());
    }
}
