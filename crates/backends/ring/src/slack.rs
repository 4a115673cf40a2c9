//! Bits that a truncation behind a linear layer makes unnecessary: bits of ciphertexts that it would drop
//! anyway, and low bits of the client's share.

use super::share::exact_truncations;
use super::{Op, RingGraph};

/// A layer's error is below a unit of the truncated result by this many bits: at most half a unit, plus an
/// eighth if the server rounds its share ([`rounded_bits`]). The error's deviation is a tenth of a unit,
/// besides two fifths from the truncation itself.
const MARGIN_BITS: u32 = 1;
/// Largest error of a layer in units, independent of its readers: wide rings need some.
const MIN_ERROR_UNITS: u32 = 64;

/// Low bits of each node's tensor that all its readers drop by inexact truncations; `None` for a tensor that
/// nothing reads. `passes` names operations before a truncation, and the bits that they cost.
fn dropped_bits(graph: &RingGraph, exact: &[bool], passes: impl Fn(&Op) -> Option<u32>) -> Vec<Option<u32>> {
    let nodes = graph.nodes();
    let mut dropped: Vec<Option<u32>> = vec![None; nodes.len()];
    dropped[graph.spec().output] = Some(0);
    for (id, node) in nodes.iter().enumerate().rev() {
        let bits = match &node.op {
            Op::Truncate { bits } if !exact[id] => *bits,
            op => passes(op).map_or(0, |less| dropped[id].unwrap_or(0).saturating_sub(less)),
        };
        for &input in &node.inputs {
            let fewest = dropped[input].map_or(bits, |bits_before: u32| bits_before.min(bits));
            dropped[input] = Some(fewest);
        }
    }
    dropped
}

/// The error that each node's tensor may have. If all readers shift `f` of its bits out, the error is
/// `2^(f - MARGIN_BITS)` units, from 1 to `max_error` (at least 1). It is 1 before an exact truncation, whose
/// result would show the error, and before other operations.
pub fn allowed_errors(graph: &RingGraph, exact: &[bool], max_error: u32) -> Vec<u32> {
    let errors = dropped_bits(graph, exact, passes).into_iter().map(|bits| {
        let units = 1u64 << bits.unwrap_or(0).saturating_sub(MARGIN_BITS).min(31);
        units.min(u64::from(max_error)) as u32
    });
    errors.collect()
}

/// The bits that an operation before a truncation costs, if it may be there.
fn passes(op: &Op) -> Option<u32> {
    match op {
        // Both operands may have an error.
        Op::Add | Op::Sub => Some(1),
        Op::AddConst { .. } | Op::Concat | Op::Slice(_) | Op::Pad { .. } | Op::Reshape => Some(0),
        _ => None,
    }
}

/// Low bits that the server rounds away from its share of a layer whose error may be `error` units. That adds
/// at most a quarter of this error.
pub fn rounded_bits(error: u32) -> u32 {
    error.checked_ilog2().map_or(0, |bits| bits.saturating_sub(1))
}

/// Largest error, in units, of rounding `bits` low bits away.
pub fn rounding_error(bits: u32) -> u32 {
    (1 << bits) >> 1
}

/// Largest error of each node in units, if it is a linear layer and `max_error` is the largest of any.
pub(super) fn layer_errors(graph: &RingGraph, max_error: u32) -> Vec<f64> {
    let errors = allowed_errors(graph, &exact_truncations(graph), max_error);
    let layer_errors = errors
        .into_iter()
        .map(|error| (error + rounding_error(rounded_bits(error))).max(max_error.min(MIN_ERROR_UNITS)));
    layer_errors.map(f64::from).collect()
}

/// Low bits of the client's share of each node's tensor that nothing reads: those that all readers shift out
/// by local truncations.
pub fn unread_bits(graph: &RingGraph, exact: &[bool]) -> Vec<u32> {
    let nodes = graph.nodes().iter().zip(dropped_bits(graph, exact, |_| None));
    nodes.map(|(node, fewest)| if node.op.facts().is_some() { fewest.unwrap_or(0) } else { 0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, spec};
    use crate::{Linear, Node, WeightFacts};

    #[test]
    fn errors_stay_below_truncated_bits() {
        let facts = WeightFacts { frac_bits: 0, magnitude_bits: 4, norm_bits: 8 };
        let mut nodes: Vec<Node> = Vec::new();
        let mut push = |op: Op, inputs: Vec<usize>, width| {
            let before = inputs.first().map_or(40, |&i| nodes[i].fixed.frac_bits);
            let frac_bits = match op {
                Op::Truncate { bits } => before - bits,
                Op::ShiftLeft { bits } => before + bits,
                _ => before,
            };
            nodes.push(node(op, &inputs, &[2], width, frac_bits));
            nodes.len() - 1
        };
        let linear = || Op::Linear(Linear { out_features: 2, weights: facts });
        let x = push(Op::Input, vec![], 36);
        let (a, b) = (push(linear(), vec![x], 36), push(linear(), vec![x], 36));
        let sum = push(Op::Add, vec![a, b], 36);
        let cut = push(Op::Truncate { bits: 12 }, vec![sum], 24);
        let read_twice = push(linear(), vec![cut], 24);
        let short = push(Op::Truncate { bits: 8 }, vec![read_twice], 16);
        let long = push(Op::Truncate { bits: 10 }, vec![read_twice], 14);
        let (c, d) = (push(linear(), vec![short], 16), push(linear(), vec![long], 14));
        let tested = push(Op::Relu, vec![c], 16);
        let e = push(linear(), vec![tested], 16);
        let aligned = push(Op::ShiftLeft { bits: 2 }, vec![d], 14);
        let sum_of_two = push(Op::Add, vec![aligned, e], 14);
        let last_cut = push(Op::Truncate { bits: 8 }, vec![sum_of_two], 6);
        let graph = RingGraph::new(spec(nodes)).expect("a valid graph");
        let mut exact = vec![false; last_cut + 1];
        exact[last_cut] = true;
        let errors_with =
            |max_error| [a, b, read_twice, c, d, e].map(|id| allowed_errors(&graph, &exact, max_error)[id]);
        assert_eq!(errors_with(1 << 12), [1024, 1024, 128, 1, 1, 1]);
        assert_eq!(errors_with(16), [16, 16, 16, 1, 1, 1]);
        assert_eq!(errors_with(0), [0; 6]);
        assert_eq!([a, read_twice, c, e].map(|id| layer_errors(&graph, 1 << 12)[id]), [1280.0, 160.0, 64.0, 64.0]);
        assert_eq!([0, 1, 2, 3, 4, 1024].map(rounded_bits), [0, 0, 0, 0, 1, 9]);
        assert_eq!([0, 1, 9].map(rounding_error), [0, 1, 256]);
        let unread = unread_bits(&graph, &exact);
        assert_eq!([a, b, read_twice, cut, c, d, e].map(|id| unread[id]), [0, 0, 8, 0, 0, 0, 0]);
    }
}
