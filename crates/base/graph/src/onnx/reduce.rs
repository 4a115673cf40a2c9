//! Sums, means and maxima over axes, as pools over whole planes.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Reader, axes_of, fail, int, unsupported};
use crate::float::FloatOp;
use crate::geometry::Window;
use crate::{GraphError, MAX_WINDOW_SIDE};

impl Reader<'_> {
    pub(super) fn global_pool(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        if x.shape.len() < 3 {
            return Err(fail(n, format!("needs an input [N, C, ...], got {:?}", x.shape)));
        }
        let axes: Vec<usize> = (2..x.shape.len()).collect();
        self.reduce_axes(n, &x, &axes, if n.op_type == "GlobalMaxPool" { "ReduceMax" } else { "ReduceMean" })
    }

    pub(super) fn reduce(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let axes = self.reduced_axes(n, x.shape.len())?;
        if axes.is_empty() {
            return Ok(x);
        }
        let result = self.reduce_axes(n, &x, &axes, n.op_type.as_str())?;
        Ok(if int(n, "keepdims", 1) != 0 { result } else { result.without(&axes) })
    }

    /// Returns the axes that a node reduces, sorted. A node that states none reduces all (or none,
    /// if it says so).
    pub(super) fn reduced_axes(&self, n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
        let axes_input = self.integer_list(n, 1, "axes")?.unwrap_or_default();
        let mut axes = axes_of(n, &axes_input, rank)?;
        axes.sort_unstable();
        axes.dedup();
        if axes.is_empty() && int(n, "noop_with_empty_axes", 0) == 0 {
            axes = (0..rank).collect();
        }
        Ok(axes)
    }

    /// Reduces `x` over `axes`, which then have length 1.
    fn reduce_axes(&mut self, n: &NodeProto, x: &Tensor, axes: &[usize], op: &str) -> Result<Tensor, GraphError> {
        axes.iter().try_for_each(|&a| self.keeps_batch(n, x, a))?;
        let (reduced_axes, kept_axes) = x.order_from(axes);
        if reduced_axes.is_empty() {
            return Ok(x.clone());
        }
        let x = if op == "ReduceMin" { self.scale(n, x, -1.0)? } else { x.clone() };
        let count: usize = reduced_axes.iter().map(|&a| x.shape[a]).product();
        let [height, width] = match reduced_axes[..] {
            [a, b] if x.shape[a].max(x.shape[b]) <= MAX_WINDOW_SIDE => [x.shape[a], x.shape[b]],
            _ => plane(count).ok_or_else(|| {
                unsupported(n, format!("{count} elements are no rectangle of at most {MAX_WINDOW_SIDE} a side; use a pool of windows first"))
            })?,
        };
        let node = self.arrange(n, &x, &[&kept_axes, &reduced_axes])?;
        let channels = self.node_shape(node)[0];
        let image = self.push_reshape(n, node, &[channels, height, width])?;
        let window = Window { kernel: [height, width], stride: [1, 1], pads: [0; 4] };
        let op_made =
            if matches!(op, "ReduceMax" | "ReduceMin") { FloatOp::MaxPool(window) } else { FloatOp::SumPool(window) };
        let node = self.push(n, op_made, &[image], &[])?;
        let mut shape = x.shape.clone();
        axes.iter().for_each(|&a| shape[a] = 1);
        let result = Tensor { node, shape, order: kept_axes, ..x.clone() };
        match op {
            "ReduceMean" => self.scale(n, &result, 1.0 / count as f32),
            "ReduceMin" => self.scale(n, &result, -1.0),
            _ => Ok(result),
        }
    }
}

/// Returns a rectangle of `count` elements, as square as possible.
fn plane(count: usize) -> Option<[usize; 2]> {
    let side = (1..=count.isqrt()).rev().find(|s| count.is_multiple_of(*s))?;
    (count / side <= MAX_WINDOW_SIDE).then_some([side, count / side])
}
