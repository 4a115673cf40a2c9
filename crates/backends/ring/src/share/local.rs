//! Operations that each party computes on its own share: linear over the ring (`Truncate` is one unit in the
//! last place away from linear).

use rayon::prelude::*;
use tacit_graph::geometry::{Slice, Window};
use tacit_graph::kernel::transpose_index;
use tacit_mpc::Role;

use crate::fixed::ring_mask;
use crate::{Node, Op};

/// Fewest elements per thread.
pub(super) const MIN_PART_LEN: usize = 1 << 15;

/// The share of the tensor of a local `node` for a batch of concatenated inputs. Inputs may be in wider rings
/// than the result. The server adds public constants.
pub(super) fn apply(role: Role, node: &Node, inputs: &[&Vec<u64>], shapes: &[&[usize]], batch: usize) -> Vec<u64> {
    concat_batch(batch, |index| {
        let inputs: Vec<&[u64]> = inputs.iter().map(|tensor| part(tensor, index, batch)).collect();
        apply_one(role, node, &inputs, shapes)
    })
}

/// Concatenates the results of `f` for each input of a batch, without a copy of the first: most batches have
/// only one input.
pub(super) fn concat_batch(batch: usize, mut f: impl FnMut(usize) -> Vec<u64>) -> Vec<u64> {
    let mut results = f(0);
    (1..batch).for_each(|index| results.extend(f(index)));
    results
}

/// The part of a batch's tensor that belongs to input `index`.
fn part(tensor: &[u64], index: usize, batch: usize) -> &[u64] {
    let len = tensor.len() / batch;
    &tensor[index * len..][..len]
}

pub(super) fn for_each_input(tensor: &[u64], batch: usize, mut f: impl FnMut(&[u64]) -> Vec<u64>) -> Vec<u64> {
    concat_batch(batch, |index| f(part(tensor, index, batch)))
}

fn apply_one(role: Role, node: &Node, inputs: &[&[u64]], shapes: &[&[usize]]) -> Vec<u64> {
    let mask = ring_mask(node.fixed.width);
    let (values, shape): (&[u64], &[usize]) = (inputs[0], shapes[0]);
    let map =
        |f: &(dyn Fn(u64) -> u64 + Sync)| values.par_iter().with_min_len(MIN_PART_LEN).map(|&v| f(v) & mask).collect();
    match &node.op {
        Op::Add => zip(inputs[0], inputs[1], mask, u64::wrapping_add),
        Op::Sub => zip(inputs[0], inputs[1], mask, u64::wrapping_sub),
        Op::AddConst { value } if role == Role::Server => map(&|v| v.wrapping_add(*value as u64)),
        // A local `Widen` has nothing to widen.
        Op::AddConst { .. } | Op::Reshape | Op::Widen => map(&|v| v),
        Op::MulConst { factors, .. } => {
            let n = factors.len();
            values.iter().enumerate().map(|(i, v)| v.wrapping_mul(factors[i % n] as u64) & mask).collect()
        }
        // The input's ring is `bits` wider, so the shifted share fits the result's ring. The server adds half
        // a unit: dropping the low bits of both shares loses half a unit on average, which would add up over
        // the layers.
        Op::Truncate { bits } => {
            let half = if role == Role::Server { (1u64 << bits) >> 1 } else { 0 };
            map(&|v| (v.wrapping_add(half) & ring_mask(node.fixed.width + bits)) >> bits)
        }
        Op::ShiftLeft { bits } => map(&|v| v << bits),
        Op::Concat => inputs.concat().into_iter().map(|v| v & mask).collect(),
        Op::Slice(s) => gather(values, &slice_index(s, shape), mask),
        Op::Transpose { perm } => transpose_index(perm, shape).into_iter().map(|i| values[i] & mask).collect(),
        Op::Pad { before, .. } => pad(values, shape, before, &node.shape, mask),
        Op::SumPool(w) => sum_pool(values, shape, w, &node.shape, mask),
        Op::Input | Op::Conv2d(_) | Op::Linear(_) | Op::Relu | Op::MaxPool(_) | Op::LookUp(_) | Op::ArgMax => {
            unreachable!("the plan has a step of its own for {}", node.op.name())
        }
    }
}

fn zip(a: &[u64], b: &[u64], mask: u64, f: fn(u64, u64) -> u64) -> Vec<u64> {
    a.par_iter().zip(b).with_min_len(MIN_PART_LEN).map(|(&x, &y)| f(x, y) & mask).collect()
}

/// `values[index]` for every index.
pub(super) fn gather(values: &[u64], index: &[u32], mask: u64) -> Vec<u64> {
    index.par_iter().with_min_len(MIN_PART_LEN).map(|&i| values[i as usize] & mask).collect()
}

/// Row-major positions that a slice keeps.
fn slice_index(s: &Slice, shape: &[usize]) -> Vec<u32> {
    let mut index = vec![0usize];
    for (axis, &size) in shape.iter().enumerate() {
        let positions = (0..s.len[axis]).map(|i| s.start[axis] + i * s.step[axis]);
        let positions: Vec<usize> = positions.collect();
        index = index.iter().flat_map(|&i| positions.iter().map(move |&p| i * size + p)).collect();
    }
    index.into_iter().map(|i| i as u32).collect()
}

fn pad(values: &[u64], shape: &[usize], before: &[usize], out_shape: &[usize], mask: u64) -> Vec<u64> {
    let inside = Slice { start: before.to_vec(), step: vec![1; shape.len()], len: shape.to_vec() };
    let mut out = vec![0; out_shape.iter().product()];
    for (value, position) in values.iter().zip(slice_index(&inside, out_shape)) {
        out[position as usize] = value & mask;
    }
    out
}

/// Input positions along one axis that output `o` of a window sees.
pub(super) fn window_range(
    o: usize,
    stride: usize,
    kernel: usize,
    before: usize,
    len: usize,
) -> std::ops::Range<usize> {
    let start = (o * stride).saturating_sub(before);
    let end = (o * stride + kernel).saturating_sub(before).min(len);
    start..end.max(start)
}

fn sum_pool(values: &[u64], shape: &[usize], w: &Window, out_shape: &[usize], mask: u64) -> Vec<u64> {
    let ([channels, h, width], [_, oh, ow]) = (shape, out_shape) else { unreachable!("the graph pools images only") };
    let mut out = Vec::with_capacity(channels * oh * ow);
    for c in 0..*channels {
        for y in 0..*oh {
            let rows = window_range(y, w.stride[0], w.kernel[0], w.pads[0], *h);
            for x in 0..*ow {
                let columns = window_range(x, w.stride[1], w.kernel[1], w.pads[1], *width);
                let sum = rows.clone().fold(0u64, |sum, r| {
                    let row = &values[(c * h + r) * width..][..*width];
                    row[columns.clone()].iter().fold(sum, |s, v| s.wrapping_add(*v))
                });
                out.push(sum & mask);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::node;

    fn apply_to(role: Role, op: Op, x: &[u64], shape: &[usize], new_shape: &[usize]) -> Vec<u64> {
        apply(role, &node(op, &[0], new_shape, 8, 0), &[&x.to_vec()], &[shape], 1)
    }

    #[test]
    fn slices_pads_and_sums_follow_row_major_order() {
        let x: Vec<u64> = (0..16).collect();
        let shape = [1usize, 4, 4];
        let slice = Op::Slice(Slice { start: vec![0, 1, 0], step: vec![1, 2, 3], len: vec![1, 2, 2] });
        assert_eq!(apply_to(Role::Client, slice, &x, &shape, &[1, 2, 2]), [4, 7, 12, 15]);
        let pad = Op::Pad { before: vec![0, 1, 0], after: vec![0, 0, 1] };
        let padded = apply_to(Role::Client, pad, &x, &shape, &[1, 5, 5]);
        assert_eq!(padded[..12], [0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5]);
        let pool = Op::SumPool(Window { kernel: [3, 3], stride: [2, 2], pads: [1, 1, 0, 0] });
        let sums = apply_to(Role::Client, pool, &x, &shape, &[1, 2, 2]);
        let sum = |rows: std::ops::Range<u64>, columns: std::ops::Range<u64>| -> u64 {
            rows.flat_map(|r| columns.clone().map(move |c| 4 * r + c)).sum()
        };
        assert_eq!(sums, [sum(0..2, 0..2), sum(0..2, 1..4), sum(1..4, 0..2), sum(1..4, 1..4)]);
    }

    #[test]
    fn server_alone_adds_constants() {
        for (role, sum) in [(Role::Client, [1, 2]), (Role::Server, [254, 255])] {
            assert_eq!(apply_to(role, Op::AddConst { value: -3 }, &[1, 2], &[2], &[2]), sum);
        }
    }
}
