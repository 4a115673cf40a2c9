//! What a truncation behind a linear layer makes needless: bits of ciphertexts that it would drop anyway, and
//! low bits of the client's share.

use crate::ring::{Node, Op, RingGraph};

/// A layer's error stays below a unit of the truncated result by at least this many bits.
const MARGIN: u32 = 6;

/// Low bits of each node's tensor that all its readers drop by inexact truncations, those behind an operation
/// that `passes` them on included; none for a tensor that nothing reads.
fn dropped(graph: &RingGraph, exact: &[bool], passes: impl Fn(&Op) -> bool) -> Vec<Option<u32>> {
    let nodes = graph.nodes();
    let mut dropped = vec![None; nodes.len()];
    dropped[graph.spec().output] = Some(0);
    for (id, node) in nodes.iter().enumerate().rev() {
        let bits = match &node.op {
            Op::Truncate { bits } if !exact[id] => *bits,
            op if passes(op) => dropped[id].unwrap_or(0),
            _ => 0,
        };
        for &input in &node.inputs {
            let least = dropped[input].map_or(bits, |known: u32| known.min(bits));
            dropped[input] = Some(least);
        }
    }
    dropped
}

/// For each node, the error that its tensor may have where all that reads it shifts `f` of its bits out:
/// `2^(f - MARGIN)` units, from 1 to `most` (which is 1 and more). It is 1 where a truncation is exact, since
/// the result would show the error, and where something else than a truncation reads the tensor.
pub(super) fn errors(graph: &RingGraph, exact: &[bool], most: u32) -> Vec<u32> {
    // Two operands may both be off, which the margin has room for.
    let passes = |op: &Op| {
        matches!(op, Op::Add | Op::Sub | Op::AddConst { .. } | Op::Concat | Op::Slice(_) | Op::Pad { .. } | Op::Reshape)
    };
    let units = |bits: Option<u32>| 1u64 << bits.unwrap_or(0).saturating_sub(MARGIN).min(31);
    dropped(graph, exact, passes).into_iter().map(|bits| units(bits).min(u64::from(most)) as u32).collect()
}

/// For each node, how many low bits of the client's share of its tensor nothing reads: where all that reads
/// the tensor is local truncations, which shift that share.
pub(super) fn unread(graph: &RingGraph, exact: &[bool]) -> Vec<u32> {
    let of = |(node, least): (&Node, Option<u32>)| if node.op.facts().is_some() { least.unwrap_or(0) } else { 0 };
    graph.nodes().iter().zip(dropped(graph, exact, |_| false)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::reference::tests::spec;
    use crate::ring::{FixedPoint, Linear, WeightFacts};

    #[test]
    fn errors_stay_far_below_what_is_truncated() {
        let facts = WeightFacts { frac_bits: 0, magnitude_bits: 4, norm_bits: 8 };
        let mut nodes: Vec<Node> = Vec::new();
        let mut push = |op: Op, inputs: Vec<usize>, width| {
            let before = inputs.first().map_or(40, |&i| nodes[i].fixed.frac_bits);
            let frac_bits = match op {
                Op::Truncate { bits } => before - bits,
                Op::ShiftLeft { bits } => before + bits,
                _ => before,
            };
            let fixed = FixedPoint { width, frac_bits };
            nodes.push(Node { name: "n".into(), op, inputs, shape: vec![2], fixed });
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
        let joined = push(Op::Add, vec![aligned, e], 14);
        let last = push(Op::Truncate { bits: 8 }, vec![joined], 6);
        let graph = RingGraph::new(spec(nodes)).expect("a valid graph");
        let mut exact = vec![false; last + 1];
        exact[last] = true;
        let of = |most| [a, b, read_twice, c, d, e].map(|id| errors(&graph, &exact, most)[id]);
        assert_eq!(of(1 << 10), [64, 64, 4, 1, 1, 1]);
        assert_eq!(of(16), [16, 16, 4, 1, 1, 1]);
        assert_eq!(of(0), [0; 6]);
        let unread = unread(&graph, &exact);
        assert_eq!([a, b, read_twice, cut, c, d, e].map(|id| unread[id]), [0, 0, 8, 0, 0, 0, 0]);
    }
}
