//! Exact truncation of revealed values: `floor(x / 2^bits)` of a shared `x`, without the error of one unit
//! that local shifts may make.
//!
//! With `x = c + s mod 2^w` the result in the ring of `w - bits` bits is `(c >> bits) + (s >> bits) + carry`,
//! where `carry` says whether the low parts sum to `2^bits` or more; a wrap of `c + s` vanishes in the
//! narrower ring. As shares in a ring of `bits + 1` bits, the low parts sum to a `y` whose top bit is the
//! carry. A sign test gives its complement: the gate computes `base + [y >= 0] X` with `X = -1` (the server's
//! share) and one more in the base. As in every gate, the client chooses its share of the result.

use tacit_mpc::Role;

use crate::{Op, RingGraph};

/// The truncations that must be exact, by node: those with a path to the output without a linear layer (or an
/// arg max, whose index shows no carry). The carry would show in the result, also through a ReLU, a maximum
/// or a sum: repeated queries of one input would narrow down the dropped bits.
pub fn exact(graph: &RingGraph) -> Vec<bool> {
    all_truncations(graph)
        .into_iter()
        .zip(revealed_nodes(graph))
        .map(|(drops, is_revealed)| is_revealed && drops)
        .collect()
}

/// Nodes with a path to the output without a linear layer (or an arg max).
pub(super) fn revealed_nodes(graph: &RingGraph) -> Vec<bool> {
    let mut is_revealed = vec![false; graph.nodes().len()];
    is_revealed[graph.spec().output] = true;
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let mixes = matches!(node.op, Op::Conv2d(_) | Op::Linear(_) | Op::ArgMax);
        if is_revealed[id] && !mixes {
            node.inputs.iter().for_each(|&i| is_revealed[i] = true);
        }
    }
    is_revealed
}

/// Nodes whose values reach a table's index by local steps alone. ReLUs among them clip the index. One that
/// leaves bits out of its test would let it wrap to the table's other end.
pub(super) fn into_tables(graph: &RingGraph) -> Vec<bool> {
    let mut read = vec![false; graph.nodes().len()];
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let stops = matches!(node.op, Op::Conv2d(_) | Op::Linear(_) | Op::Relu | Op::MaxPool(_) | Op::ArgMax);
        if matches!(node.op, Op::LookUp(_)) || (read[id] && !stops) {
            node.inputs.iter().for_each(|&i| read[i] = true);
        }
    }
    read
}

/// All truncations that drop any bits, by node.
pub(super) fn all_truncations(graph: &RingGraph) -> Vec<bool> {
    graph.nodes().iter().map(|node| matches!(node.op, Op::Truncate { bits: 1.. })).collect()
}

/// A party's inputs to the gates.
pub(super) struct Parts {
    /// Low parts, in the ring of `bits + 1` bits.
    pub tested: Vec<u64>,
    /// Shares of `X = -1`.
    pub value: Vec<u64>,
    /// Shares of the base.
    pub base: Vec<u64>,
}

/// A party's parts from its share of the tensor (`[n]`, each below `2^(width + bits)`).
pub(super) fn parts(role: Role, share: &[u64], bits: u32) -> Parts {
    let low = (1u64 << bits) - 1;
    let (value, base_addend) = match role {
        Role::Client => (0, 0),
        Role::Server => (u64::MAX, 1),
    };
    Parts {
        tested: share.iter().map(|v| v & low).collect(),
        value: vec![value; share.len()],
        base: share.iter().map(|v| (v >> bits) + base_addend).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::spec;
    use crate::{FixedPoint, Linear, Node, WeightFacts};

    /// A chain of operations on two values from a ring of 40 bits; each node reads the one before
    /// it.
    fn chain(ops: &[Op]) -> RingGraph {
        let mut nodes: Vec<Node> = Vec::new();
        for (id, op) in [Op::Input].iter().chain(ops).enumerate() {
            let previous = nodes.last().map_or(FixedPoint { width: 40, frac_bits: 20 }, |n| n.fixed);
            let (shape, fixed) = match op {
                Op::Truncate { bits } => {
                    (vec![2], FixedPoint { width: previous.width - bits, frac_bits: previous.frac_bits - bits })
                }
                Op::ArgMax => (vec![1], FixedPoint { width: 8, frac_bits: 0 }),
                Op::Linear(_) => (vec![2], FixedPoint { frac_bits: previous.frac_bits + 4, ..previous }),
                _ => (vec![2], previous),
            };
            let inputs = if id == 0 { vec![] } else { vec![id - 1] };
            nodes.push(Node { name: format!("n{id}"), op: op.clone(), inputs, shape, fixed });
        }
        RingGraph::new(spec(nodes)).expect("a valid graph")
    }

    #[test]
    fn exact_truncations_reach_output() {
        let facts = WeightFacts { frac_bits: 4, magnitude_bits: 4, norm_bits: 8 };
        let (cut, relu, add) = (Op::Truncate { bits: 3 }, Op::Relu, Op::AddConst { value: 5 });
        let linear = Op::Linear(Linear { out_features: 2, weights: facts });
        let exact_of = |ops: &[&Op]| -> Vec<usize> {
            let graph = chain(&ops.iter().map(|&op| op.clone()).collect::<Vec<_>>());
            exact(&graph).iter().enumerate().filter(|(_, e)| **e).map(|(id, _)| id).collect()
        };
        assert_eq!(exact_of(&[&cut]), [1]);
        assert_eq!(exact_of(&[&cut, &add, &cut, &add]), [1, 3]);
        assert_eq!(exact_of(&[&cut, &Op::Widen]), [1]);
        assert_eq!(exact_of(&[&cut, &relu]), [1]);
        assert_eq!(exact_of(&[&cut, &relu, &add, &cut]), [1, 4]);
        assert_eq!(exact_of(&[&cut, &relu, &linear, &cut]), [4]);
        assert_eq!(exact_of(&[&cut, &linear]), [] as [usize; 0]);
        assert_eq!(exact_of(&[&cut, &Op::ArgMax]), [] as [usize; 0]);
        assert_eq!(exact_of(&[&Op::Truncate { bits: 0 }]), [] as [usize; 0]);
    }

    #[test]
    fn parts_sum_to_floor() {
        let (width, bits, low) = (9, 4, 0x1ff);
        for x in 0..1u64 << width {
            for c in [0, 1, 15, 16, 17, 255, 256, 511] {
                let s = x.wrapping_sub(c) & low;
                let (client, server) = (parts(Role::Client, &[c], bits), parts(Role::Server, &[s], bits));
                let sum = |a: &[u64], b: &[u64]| a[0].wrapping_add(b[0]);
                let positive = sum(&client.tested, &server.tested) & 0x1f < 16;
                let product = if positive { sum(&client.value, &server.value) } else { 0 };
                assert_eq!(sum(&client.base, &server.base).wrapping_add(product) & 0x1f, x >> bits, "{x} with {c}");
            }
        }
    }
}
