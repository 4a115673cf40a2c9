//! Schedules of pairwise comparisons: separable max pooling and the arg-max tournament.
//!
//! A k x k maximum is one over rows, then over columns, so overlapping windows share the first half. A 3 x 3
//! window with stride 2 needs about 6 comparisons per output instead of 8.

use rayon::prelude::*;
use tacit_graph::geometry::Window;

use super::local::{MIN_PART_LEN, concat_batch, for_each_input, gather, window_range};
use crate::fixed::ring_mask;

/// One round of comparisons on the current list of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// Left operands (they win ties).
    pub left: Vec<u32>,
    /// Right operands.
    pub right: Vec<u32>,
    /// Sources of the next list. Index `i < left.len()` is the result of comparison `i`; others are old
    /// values `i - left.len()`.
    pub next: Vec<u32>,
}

impl Level {
    /// The next list from the results and the old list, each for `batch` concatenated inputs.
    pub(super) fn advance(&self, results: &[u64], old: &[u64], batch: usize) -> Vec<u64> {
        let (pairs, len) = (self.left.len(), old.len() / batch);
        concat_batch(batch, |input| {
            let (results, old) = (&results[input * pairs..], &old[input * len..]);
            let values =
                self.next.par_iter().with_min_len(MIN_PART_LEN).map(|&i| match (i as usize).checked_sub(pairs) {
                    None => results[i as usize],
                    Some(j) => old[j],
                });
            values.collect()
        })
    }

    /// `left - right` of the pairs of each of `batch` inputs.
    pub(super) fn difference(&self, list: &[u64], width: u32, batch: usize) -> Vec<u64> {
        for_each_input(list, batch, |list| {
            let pairs = self.left.par_iter().zip(&self.right).with_min_len(MIN_PART_LEN);
            pairs.map(|(&a, &b)| list[a as usize].wrapping_sub(list[b as usize]) & ring_mask(width)).collect()
        })
    }

    /// `right` of the pairs of each of `batch` inputs.
    pub(super) fn rights(&self, list: &[u64], width: u32, batch: usize) -> Vec<u64> {
        for_each_input(list, batch, |list| gather(list, &self.right, ring_mask(width)))
    }
}

/// Reduces groups of positions to one value each, pairing neighbours level by level.
fn reduce(mut groups: Vec<Vec<u32>>) -> Vec<Level> {
    let mut levels = Vec::new();
    while groups.iter().any(|g| g.len() > 1) {
        let pairs: usize = groups.iter().map(|g| g.len() / 2).sum();
        let mut level = Level { left: Vec::with_capacity(pairs), right: Vec::with_capacity(pairs), next: Vec::new() };
        for group in &mut groups {
            let mut next_group = Vec::with_capacity(group.len().div_ceil(2));
            for pair in group.chunks(2) {
                next_group.push(level.next.len() as u32);
                match pair {
                    [a, b] => {
                        level.next.push(level.left.len() as u32);
                        level.left.push(*a);
                        level.right.push(*b);
                    }
                    _ => level.next.push(pairs as u32 + pair[0]),
                }
            }
            *group = next_group;
        }
        levels.push(level);
    }
    levels
}

/// The comparisons of a max pool from `[c, h, w]` to `[c, oh, ow]`: rows of each window first, then columns.
/// The last level's list is the result in row-major order.
pub(super) fn max_pool(shape: &[usize], w: &Window, out_shape: &[usize]) -> Vec<Level> {
    let ([channels, h, width], [_, oh, ow]) = (shape, out_shape) else { unreachable!("the graph pools images only") };
    let mut rows = Vec::with_capacity(channels * oh * width);
    for c in 0..*channels {
        for y in 0..*oh {
            let range = window_range(y, w.stride[0], w.kernel[0], w.pads[0], *h);
            rows.extend((0..*width).map(|x| range.clone().map(|r| ((c * h + r) * width + x) as u32).collect()));
        }
    }
    let mut columns = Vec::with_capacity(channels * oh * ow);
    for row in 0..channels * oh {
        columns.extend((0..*ow).map(|x| {
            let range = window_range(x, w.stride[1], w.kernel[1], w.pads[1], *width);
            range.map(|column| (row * width + column) as u32).collect()
        }));
    }
    let mut levels = pick_or_reduce(rows);
    levels.extend(pick_or_reduce(columns));
    levels
}

/// A level that only picks if there is nothing to compare.
fn pick_or_reduce(groups: Vec<Vec<u32>>) -> Vec<Level> {
    if groups.iter().all(|g| g.len() == 1) {
        return vec![Level { left: Vec::new(), right: Vec::new(), next: groups.into_iter().flatten().collect() }];
    }
    reduce(groups)
}

/// The tournament over `n` values: lower positions are left operands and win ties.
pub(super) fn tournament(n: usize) -> Vec<Level> {
    reduce(vec![(0..n as u32).collect()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(levels: &[Level], mut values: Vec<u64>) -> Vec<u64> {
        for level in levels {
            let pairs = level.left.iter().zip(&level.right);
            let results: Vec<u64> = pairs.map(|(&a, &b)| values[a as usize].max(values[b as usize])).collect();
            values = level.advance(&results, &values, 1);
        }
        values
    }

    proptest! {
        #[test]
        fn pooling_equals_the_naive_maximum(c in 1usize..3, h in 3usize..9, w in 3usize..9, k in 1usize..4, s in 1usize..4,
                                            before in 0usize..2, after in 0usize..2, seed in any::<u64>()) {
            let (before, after) = (before.min(k - 1), after.min(k - 1));
            let window = Window { kernel: [k, k], stride: [s, s], pads: [before, before, after, after] };
            let out = |len: usize| (len + before + after - k) / s + 1;
            let values: Vec<u64> = (0..c * h * w).map(|i| (i as u64).wrapping_mul(seed | 1) >> 40).collect();
            let result = run(&max_pool(&[c, h, w], &window, &[c, out(h), out(w)]), values.clone());
            let mut expected = Vec::new();
            for ch in 0..c {
                for y in 0..out(h) {
                    for x in 0..out(w) {
                        let rows = window_range(y, s, k, before, h);
                        let best = rows.flat_map(|r| window_range(x, s, k, before, w).map(move |q| (r, q)));
                        expected.push(best.map(|(r, q)| values[(ch * h + r) * w + q]).max().expect("windows are not empty"));
                    }
                }
            }
            prop_assert_eq!(result, expected);
        }
    }

    #[test]
    fn separable_pooling_of_squeezenet_takes_two_million_comparisons() {
        let window = Window { kernel: [3, 3], stride: [2, 2], pads: [0; 4] };
        let count = |c: usize, input_len: usize, output_len: usize| -> usize {
            max_pool(&[c, input_len, input_len], &window, &[c, output_len, output_len])
                .iter()
                .map(|l| l.left.len())
                .sum()
        };
        assert_eq!(count(64, 111, 55) + count(128, 55, 27) + count(256, 27, 13), 2_001_664);
    }

    #[test]
    fn tournament_has_n_minus_one_comparisons() {
        for n in [1usize, 2, 3, 10, 1000] {
            let levels = tournament(n);
            assert_eq!(levels.iter().map(|l| l.left.len()).sum::<usize>(), n - 1);
        }
    }
}
