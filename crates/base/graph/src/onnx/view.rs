//! Tensors of the file as views of nodes: a node stores elements in some order of the file's axes.
//! Operators that only move axes (Transpose, Squeeze, channels last) change the view. Elements are
//! moved when an operation needs another order.

use super::proto::NodeProto;
use super::{Batch, Reader, fail, unsupported};
use crate::GraphError;
use crate::float::FloatOp;

/// Largest number of copies of a tensor that are joined.
const MAX_COPIES: usize = 1 << 18;

/// A tensor of the file.
#[derive(Debug, Clone)]
pub(super) struct Tensor {
    /// The node that holds the elements.
    pub node: usize,
    /// Shape in the file for one input, with a batch axis of length 1.
    pub shape: Vec<usize>,
    /// Axes longer than 1, in the order in which the node stores them.
    pub order: Vec<usize>,
    /// The axis whose outer part is the batch.
    pub batch: Option<usize>,
    /// Whether the elements are integers in the file: arithmetic on them would wrap and round.
    pub integer: bool,
}

impl Tensor {
    /// A view of a node whose elements are in the order of the axes.
    pub fn new(node: usize, shape: Vec<usize>, batch: Option<usize>) -> Self {
        let order = long_axes(&shape);
        Self { node, shape, order, batch, integer: false }
    }

    /// Returns the same view of another node, after an element-wise operation.
    pub fn with_node(&self, node: usize) -> Self {
        Self { node, ..self.clone() }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reorders the axes: axis `i` of the result is axis `perm[i]`.
    pub fn transposed(&self, perm: &[usize]) -> Self {
        Self {
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            order: self.order.iter().map(|&a| place_in(perm, a)).collect(),
            batch: self.batch.map(|b| place_in(perm, b)),
            ..self.clone()
        }
    }

    /// Returns the view without `axes`, which have length 1.
    pub fn without(&self, axes: &[usize]) -> Self {
        Self {
            shape: (0..self.shape.len()).filter(|i| !axes.contains(i)).map(|i| self.shape[i]).collect(),
            order: self.order.iter().map(|&a| place_without(axes, a)).collect(),
            batch: self.batch.filter(|b| !axes.contains(b)).map(|b| place_without(axes, b)),
            ..self.clone()
        }
    }

    /// Inserts axes of length 1, which become `axes` (sorted) of the result.
    pub fn with_ones(&self, axes: &[usize]) -> Self {
        let rank = self.shape.len() + axes.len();
        let old: Vec<usize> = (0..rank).filter(|i| !axes.contains(i)).collect();
        let mut shape = vec![1; rank];
        old.iter().zip(&self.shape).for_each(|(&at, &d)| shape[at] = d);
        Self {
            shape,
            order: self.order.iter().map(|&a| old[a]).collect(),
            batch: self.batch.map(|b| old[b]),
            ..self.clone()
        }
    }

    /// Inserts axes of length 1 in front of the others, so that there are `rank` axes.
    pub fn with_rank(&self, rank: usize) -> Self {
        self.with_ones(&(0..rank - self.shape.len()).collect::<Vec<_>>())
    }

    /// Returns whether the other view shows the same elements at the same places.
    pub fn is_same(&self, other: &Self) -> bool {
        self.node == other.node && self.shape == other.shape && self.order == other.order
    }

    /// Returns the axes that the node stores, split into those of `leading_axes` and the others.
    pub fn order_from(&self, leading_axes: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let (leading, trailing) = self.order.iter().partition(|a| leading_axes.contains(a));
        (leading, trailing)
    }

    fn sizes(&self, axes: &[usize]) -> usize {
        axes.iter().map(|&a| self.shape[a]).product()
    }
}

fn place_in(perm: &[usize], axis: usize) -> usize {
    perm.iter().position(|&p| p == axis).expect("every axis is in a permutation")
}

/// Returns the place of an axis in a tensor without the other `axes`.
fn place_without(axes: &[usize], axis: usize) -> usize {
    axis - axes.iter().filter(|&&a| a < axis).count()
}

/// Returns whether two shapes differ at most in the length of axis `axis`.
pub(super) fn agree_but_at(axis: usize, a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && (0..a.len()).all(|i| i == axis || a[i] == b[i])
}

pub(super) fn long_axes(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).filter(|&i| shape[i] != 1).collect()
}

impl Reader<'_> {
    /// Returns a node that stores `x` by groups of axes, with one axis of the node for each group.
    /// Axes outside the groups have length 1.
    pub(super) fn arrange(&mut self, n: &NodeProto, x: &Tensor, groups: &[&[usize]]) -> Result<usize, GraphError> {
        let target_order: Vec<usize> =
            groups.iter().flat_map(|g| g.iter().copied()).filter(|&a| x.shape[a] != 1).collect();
        let shape: Vec<usize> = groups.iter().map(|g| x.sizes(g)).collect();
        debug_assert_eq!(target_order.len(), x.order.len(), "groups hold every axis that is longer than 1");
        let mut node = x.node;
        if target_order != x.order {
            let stored: Vec<usize> = x.order.iter().map(|&a| x.shape[a]).collect();
            node = self.push_reshape(n, node, &stored)?;
            let perm = target_order.iter().map(|a| x.order.iter().position(|o| o == a).expect("an axis of the tensor"));
            node = self.push(n, FloatOp::Transpose(perm.collect()), &[node], &[])?;
        }
        self.push_reshape(n, node, &shape)
    }

    pub(super) fn push_reshape(&mut self, n: &NodeProto, node: usize, shape: &[usize]) -> Result<usize, GraphError> {
        let shape = if shape.is_empty() { &[1][..] } else { shape };
        if self.node_shape(node) == shape { Ok(node) } else { self.push(n, FloatOp::Reshape, &[node], shape) }
    }

    pub(super) fn arrange_in_axis_order(&mut self, n: &NodeProto, x: &Tensor) -> Result<Tensor, GraphError> {
        if x.order.is_sorted() {
            return Ok(x.clone());
        }
        let axes = long_axes(&x.shape);
        let groups: Vec<&[usize]> = axes.iter().map(std::slice::from_ref).collect();
        let node = self.arrange(n, x, &groups)?;
        Ok(Tensor { node, order: axes, ..x.clone() })
    }

    /// Returns `x` stored with `axes` as the node's first axis, and the others behind in any shape.
    /// Moves nothing if the order is already right.
    pub(super) fn arrange_leading(&mut self, n: &NodeProto, x: &Tensor, axes: &[usize]) -> Result<Tensor, GraphError> {
        let (leading, trailing) = x.order_from(axes);
        let channels = x.sizes(&leading);
        if x.order.starts_with(&leading) && self.node_shape(x.node)[0] == channels {
            return Ok(x.clone());
        }
        let node = self.arrange(n, x, &[&leading, &trailing])?;
        Ok(Tensor { node, order: [leading, trailing].concat(), ..x.clone() })
    }

    /// Returns a node with the elements of `y` in the order of `x`; both have one shape.
    pub(super) fn stored_as(&mut self, n: &NodeProto, y: &Tensor, x: &Tensor) -> Result<usize, GraphError> {
        let groups: Vec<&[usize]> = x.order.iter().map(std::slice::from_ref).collect();
        let node = if y.order == x.order { y.node } else { self.arrange(n, y, &groups)? };
        let shape = self.node_shape(x.node).to_vec();
        self.push_reshape(n, node, &shape)
    }

    pub(super) fn select(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        axis: usize,
        indices: &[usize],
    ) -> Result<Tensor, GraphError> {
        // A fixed batch is read as one input, so a selection of some inputs could look like all.
        if matches!(self.batch, Batch::Many(_)) {
            self.keeps_batch(n, x, axis)?;
        }
        if indices.len() == x.shape[axis] && indices.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x.clone());
        }
        if indices.is_empty() {
            return Err(fail(n, "selects nothing: its result is empty"));
        }
        // With any batch, selecting all of it is allowed.
        self.keeps_batch(n, x, axis)?;
        let (_, others) = x.order_from(&[axis]);
        let node = self.arrange(n, x, &[&[axis], &others])?;
        let inner = x.sizes(&others);
        let mut parts = Vec::new();
        let mut start = 0;
        while start < indices.len() {
            let (len, step) = run_length(&indices[start..]);
            let slice =
                crate::geometry::Slice { start: vec![indices[start], 0], step: vec![step, 1], len: vec![len, inner] };
            parts.push(self.push(n, FloatOp::Slice(slice), &[node], &[])?);
            start += len;
        }
        let id = if let [part] = parts[..] { part } else { self.push(n, FloatOp::Concat, &parts, &[])? };
        let mut shape = x.shape.clone();
        shape[axis] = indices.len();
        let leading = if indices.len() == 1 { vec![] } else { vec![axis] };
        Ok(Tensor { node: id, shape, order: [leading, others].concat(), ..x.clone() })
    }

    /// Repeats `x` along its axes of length 1 until it has `shape`.
    pub(super) fn expand(&mut self, n: &NodeProto, x: &Tensor, shape: &[usize]) -> Result<Tensor, GraphError> {
        let new: Vec<usize> = (0..shape.len()).filter(|&i| x.shape[i] != shape[i]).collect();
        if x.shape.len() != shape.len() || new.iter().any(|&i| x.shape[i] != 1) {
            return Err(fail(n, format!("a tensor of shape {:?} cannot be spread over {shape:?}", x.shape)));
        }
        if new.is_empty() {
            return Ok(x.clone());
        }
        new.iter().try_for_each(|&i| self.keeps_batch(n, x, i))?;
        let copies = new.iter().try_fold(1usize, |c, &i| c.checked_mul(shape[i]));
        let copies = copies.filter(|c| *c <= MAX_COPIES && c.saturating_mul(x.elements()) <= crate::MAX_ELEMENTS);
        let copies = copies.ok_or_else(|| fail(n, format!("spreading it over {shape:?} makes too many elements")))?;
        let node = self.push_reshape(n, x.node, &[1, x.elements()])?;
        let id = self.push(n, FloatOp::Concat, &vec![node; copies], &[])?;
        let order = new.iter().chain(&x.order).copied().collect();
        Ok(Tensor { node: id, shape: shape.to_vec(), order, ..x.clone() })
    }

    /// Refuses operations that would mix the inputs of a batch.
    pub(super) fn keeps_batch(&self, n: &NodeProto, x: &Tensor, axis: usize) -> Result<(), GraphError> {
        match self.batch {
            Batch::One => Ok(()),
            _ if x.batch != Some(axis) => Ok(()),
            _ => Err(unsupported(
                n,
                format!(
                    "it works along axis {axis}, the batch; a private inference has one input: export it with a batch of 1"
                ),
            )),
        }
    }
}

/// Returns length and step of the longest arithmetic progression with a positive step at the front.
fn run_length(indices: &[usize]) -> (usize, usize) {
    let step = match indices {
        [a, b, ..] if b > a => b - a,
        _ => return (1, 1),
    };
    let len = 1 + indices.windows(2).take_while(|w| w[1] > w[0] && w[1] - w[0] == step).count();
    (len, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progressions_are_found() {
        assert_eq!(run_length(&[3]), (1, 1));
        assert_eq!(run_length(&[3, 2, 1]), (1, 1));
        assert_eq!(run_length(&[1, 3, 5, 6]), (3, 2));
        assert_eq!(run_length(&[0, 0, 1]), (1, 1));
    }

    #[test]
    fn views_follow_their_axes() {
        let x = Tensor::new(0, vec![1, 3, 4, 5], Some(0));
        let y = x.transposed(&[0, 2, 3, 1]);
        assert_eq!((y.shape.clone(), y.order.clone(), y.batch), (vec![1, 4, 5, 3], vec![3, 1, 2], Some(0)));
        let z = y.without(&[0]).with_ones(&[1]);
        assert_eq!((z.shape, z.order, z.batch), (vec![4, 1, 5, 3], vec![3, 0, 2], None));
    }
}
