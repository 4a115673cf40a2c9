//! Operators that pick, join and repeat parts of tensors: Slice, Split, Gather, Concat, Expand,
//! Tile, Pad.

use super::proto::NodeProto;
use super::tensor::{Constant, Data};
use super::view::{Tensor, agree_but_at};
use super::{Batch, Reader, axes_of, axis, fail, float, int, ints, string_bytes, unsupported};
use crate::GraphError;
use crate::float::FloatOp;

/// The error for a Where with a constant condition.
pub(super) const CONSTANT_MASK: &str = "a choice by a constant mask is not read as Where; write it as `x * mask + value * (1 - mask)`, \
                                        which costs nothing (masked_fill becomes such a Where), or as Slice and Concat";

impl Reader<'_> {
    pub(super) fn concat(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        if (0..n.input.len()).any(|k| self.is_constant(n, k)) {
            return self.concat_with_constants(n);
        }
        let parts = (0..n.input.len()).map(|k| self.tensor(n, k)).collect::<Result<Vec<_>, _>>()?;
        let head = parts.first().ok_or_else(|| fail(n, "has no inputs"))?;
        let axis_index = axis(n, int(n, "axis", 1), head.shape.len())?;
        if !parts.iter().all(|x| agree_but_at(axis_index, &x.shape, &head.shape)) {
            return Err(fail(
                n,
                format!(
                    "shapes {:?} differ outside axis {axis_index}",
                    parts.iter().map(|x| &x.shape).collect::<Vec<_>>()
                ),
            ));
        }
        if parts.len() > 1 {
            self.keeps_batch(n, head, axis_index)?;
        }
        let (_, other_axes) = head.order_from(&[axis_index]);
        let order = [&[axis_index][..], &other_axes].concat();
        // Parts stored as images remain images, so that their readers need no reshape.
        let shared = self
            .image(head, &order, axis_index)
            .filter(|inner| parts.iter().all(|x| self.image(x, &order, axis_index).as_ref() == Some(inner)));
        let mut nodes = Vec::with_capacity(parts.len());
        for x in &parts {
            nodes.push(if shared.is_some() { x.node } else { self.arrange(n, x, &[&[axis_index], &other_axes])? });
        }
        let mut shape = head.shape.clone();
        shape[axis_index] = parts.iter().map(|x| x.shape[axis_index]).sum();
        let id = if let [part] = nodes[..] { part } else { self.push(n, FloatOp::Concat, &nodes, &[])? };
        let order = if shape[axis_index] == 1 { other_axes } else { order };
        Ok(Tensor { node: id, shape, order, ..head.clone() })
    }

    /// Returns the lengths behind axis `axis_index` of an image `x` in `order`; `None` for another tensor.
    fn image(&self, x: &Tensor, order: &[usize], axis_index: usize) -> Option<Vec<usize>> {
        let stored = self.node_shape(x.node);
        (x.order == order && stored[0] == x.shape[axis_index]).then(|| stored[1..].to_vec())
    }

    /// Joins tensors and constants: pads each tensor with zeros where the others are, adds them up,
    /// and adds the constants.
    fn concat_with_constants(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let (mut tensors, mut constants) = (Vec::new(), Vec::new());
        let (mut shape, mut start): (Option<Vec<usize>>, usize) = (None, 0);
        for k in 0..n.input.len() {
            let part = match self.constant(n, k) {
                Ok(Some(c)) => {
                    constants.push((start, c.clone()));
                    c.shape.clone()
                }
                _ => {
                    let x = self.real(n, k)?;
                    tensors.push((start, x.clone()));
                    x.shape
                }
            };
            let axis_index = axis(n, int(n, "axis", 1), part.len())?;
            if shape.as_deref().is_some_and(|s| !agree_but_at(axis_index, s, &part)) {
                return Err(fail(n, format!("shapes {shape:?} and {part:?} differ outside axis {axis_index}")));
            }
            start += part[axis_index];
            shape = Some(part);
        }
        let mut shape = shape.ok_or_else(|| fail(n, "has no inputs"))?;
        let axis_index = axis(n, int(n, "axis", 1), shape.len())?;
        shape[axis_index] = start;
        let mut sum: Option<Tensor> = None;
        for (start_row, x) in tensors {
            self.keeps_batch(n, &x, axis_index)?;
            let (mut before, mut after) = (vec![0; shape.len()], vec![0; shape.len()]);
            (before[axis_index], after[axis_index]) =
                (start_row as i64, (start - start_row - x.shape[axis_index]) as i64);
            let wide = self.pad_with_zeros(n, &x, &before, &after)?;
            sum = Some(match sum {
                None => wide,
                Some(s) => self.pair(n, FloatOp::Add, &s, &wide)?,
            });
        }
        let sum = sum.ok_or_else(|| fail(n, "joins no tensor"))?;
        let elements = crate::geometry::checked_elements(&shape).filter(|e| *e <= crate::MAX_ELEMENTS);
        let mut addends = vec![0.0; elements.ok_or_else(|| fail(n, "its result is too large"))?];
        let inner: usize = shape[axis_index + 1..].iter().product();
        for (start_row, c) in constants {
            let (len, values) = (c.shape[axis_index] * inner, c.to_floats());
            for (row, part) in values.chunks(len.max(1)).enumerate() {
                let target = (row * start + start_row) * inner;
                addends[target..target + part.len()].copy_from_slice(part);
            }
        }
        self.affine_by(n, &sum, &Constant { shape, data: Data::Floats(addends) }, |v| (1.0, v))
    }

    pub(super) fn slice(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let mut x = self.tensor(n, 0)?;
        let mut shape = x.shape.clone();
        if let (Batch::Many(size), Some(b)) = (self.batch, x.batch) {
            shape[b] *= size;
        }
        for (axis_index, indices) in self.selected_indices(n, &shape)? {
            if x.batch == Some(axis_index) && indices.iter().copied().eq(0..shape[axis_index]) {
                continue;
            }
            x = self.select(n, &x, axis_index, &indices)?;
        }
        Ok(x)
    }

    /// Returns the indices that a Slice selects, for each axis that it names.
    pub(super) fn selected_indices(
        &self,
        n: &NodeProto,
        shape: &[usize],
    ) -> Result<Vec<(usize, Vec<usize>)>, GraphError> {
        let starts = self.integer_list(n, 1, "starts")?.ok_or_else(|| fail(n, "has no starts"))?;
        let ends = self.integer_list(n, 2, "ends")?.ok_or_else(|| fail(n, "has no ends"))?;
        let axes = self.integer_list(n, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.integer_list(n, 4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
            return Err(fail(n, "its starts, ends, axes and steps differ in length"));
        }
        (0..starts.len())
            .map(|i| {
                let axis_index = axis(n, axes[i], shape.len())?;
                slice_indices(n, shape[axis_index] as i64, starts[i], ends[i], steps[i])
                    .map(|indices| (axis_index, indices))
            })
            .collect()
    }

    pub(super) fn split(&mut self, n: &NodeProto) -> Result<Vec<Tensor>, GraphError> {
        let x = self.tensor(n, 0)?;
        let (axis_index, sizes) = self.split_sizes(n, &x.shape)?;
        let mut start = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(self.select(n, &x, axis_index, &(start..start + size).collect::<Vec<_>>())?);
            start += size;
        }
        Ok(parts)
    }

    /// Returns the axis that a Split cuts, and the lengths of its parts.
    pub(super) fn split_sizes(&self, n: &NodeProto, shape: &[usize]) -> Result<(usize, Vec<usize>), GraphError> {
        let axis_index = axis(n, int(n, "axis", 0), shape.len())?;
        let (len, count) = (shape[axis_index], n.output.len());
        let sizes: Vec<usize> = match self.integer_list(n, 1, "split")? {
            Some(v) => v
                .iter()
                .map(|&s| usize::try_from(s))
                .collect::<Result<_, _>>()
                .map_err(|_| fail(n, "a part of negative length"))?,
            None => {
                let part = len.div_ceil(count.max(1));
                (0..count).map(|i| part.min(len.saturating_sub(i * part))).collect()
            }
        };
        if sizes.iter().try_fold(0usize, |s, &v| s.checked_add(v)) != Some(len)
            || sizes.len() != count
            || sizes.contains(&0)
        {
            return Err(fail(n, format!("{len} elements along axis {axis_index} cannot be split into {sizes:?}")));
        }
        Ok((axis_index, sizes))
    }

    pub(super) fn gather(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        if self.is_constant(n, 0) {
            return Err(unsupported(
                n,
                "it looks a secret index up in a table (an embedding); give the network the embedded values",
            ));
        }
        let x = self.tensor(n, 0)?;
        let axis_index = axis(n, int(n, "axis", 0), x.shape.len())?;
        let index_tensor = self.constant_input(n, 1)?;
        let list = index_tensor.as_ints().ok_or_else(|| fail(n, "its indices are not integers"))?;
        let indices = axes_of(n, list, x.shape[axis_index])?;
        let selection = self.select(n, &x, axis_index, &indices)?;
        match index_tensor.shape[..] {
            [] => Ok(selection.without(&[axis_index])),
            [_] => Ok(selection),
            _ => {
                let shape = [&x.shape[..axis_index], &index_tensor.shape, &x.shape[axis_index + 1..]].concat();
                self.view_as(n, &selection, shape)
            }
        }
    }

    pub(super) fn expand_to(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, 0)?;
        let target = self.integer_list(n, 1, "shape")?.ok_or_else(|| fail(n, "has no shape"))?;
        let rank = x.shape.len().max(target.len());
        let x = x.with_rank(rank);
        let mut shape = x.shape.clone();
        for (d, &w) in shape[rank - target.len()..].iter_mut().zip(&target) {
            let w = usize::try_from(w).map_err(|_| fail(n, "a negative length"))?;
            *d = if w == 1 { *d } else { w };
        }
        self.expand(n, &x, &shape)
    }

    /// Repeats each axis: an axis of length 1 is inserted in front of it and expanded.
    pub(super) fn tile(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, 0)?;
        let repeats = self.integer_list(n, 1, "repeats")?.ok_or_else(|| fail(n, "has no repeats"))?;
        if repeats.len() != x.shape.len() {
            return Err(fail(n, format!("{} repeats for {} axes", repeats.len(), x.shape.len())));
        }
        let times = repeats.iter().map(|&r| usize::try_from(r).ok().filter(|r| *r > 0));
        let times: Vec<usize> = times.collect::<Option<_>>().ok_or_else(|| fail(n, format!("repeats {repeats:?}")))?;
        self.repeat_axes(n, &x, &times, false)
    }

    /// Repeats axis `i` `times[i]` times: as a whole, or (`by_element`) element by element.
    pub(super) fn repeat_axes(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        times: &[usize],
        by_element: bool,
    ) -> Result<Tensor, GraphError> {
        let rank = x.shape.len();
        let (new, old) = if by_element { (1, 0) } else { (0, 1) };
        let wide = x.with_ones(&(0..rank).map(|i| 2 * i + new).collect::<Vec<_>>());
        let mut shape = vec![1; 2 * rank];
        let mut joined_shape = vec![1; rank];
        for i in 0..rank {
            (shape[2 * i + new], shape[2 * i + old]) = (times[i], x.shape[i]);
            joined_shape[i] = times[i].checked_mul(x.shape[i]).ok_or_else(|| fail(n, "repeats too often"))?;
            if times[i] != 1 {
                self.keeps_batch(n, x, i)?;
            }
        }
        let expanded = self.expand(n, &wide, &shape)?;
        let result = self.view_as(n, &expanded, joined_shape)?;
        Ok(Tensor { batch: x.batch, ..result })
    }

    pub(super) fn pad(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let mode = string_bytes(n, "mode", b"constant");
        let rank = x.shape.len();
        let (pads, value) = if self.opset < 11 {
            (ints(n, "pads").map(<[i64]>::to_vec), float(n, "value", 0.0)?)
        } else {
            let value = self.constant(n, 2)?.and_then(|c| c.to_floats().first().copied());
            (self.integer_list(n, 1, "pads")?, value.unwrap_or(0.0))
        };
        let axes = match self.integer_list(n, 3, "")? {
            Some(axes) => axes_of(n, &axes, rank)?,
            None => (0..rank).collect(),
        };
        let pads = pads
            .filter(|p| p.len() == 2 * axes.len())
            .ok_or_else(|| fail(n, format!("needs {} pads", 2 * axes.len())))?;
        let (mut before, mut after) = (vec![0i64; rank], vec![0i64; rank]);
        for (i, &a) in axes.iter().enumerate() {
            (before[a], after[a]) = (pads[i], pads[axes.len() + i]);
        }
        let mut x = x;
        for a in 0..rank {
            if (before[a], after[a]) != (0, 0) {
                self.keeps_batch(n, &x, a)?;
                x = self.pad_axis(n, &x, a, before[a], after[a], mode)?;
                (before[a], after[a]) = (before[a].max(0), after[a].max(0));
            }
        }
        if mode != b"constant" || before.iter().chain(&after).all(|p| *p == 0) {
            return Ok(x);
        }
        // Padding with a value equals padding with zero after the value is subtracted.
        let x = self.affine(n, &x, 1.0, -value)?;
        let padded = self.pad_with_zeros(n, &x, &before, &after)?;
        self.affine(n, &padded, 1.0, value)
    }

    /// Applies to one axis all padding except zeros: negative padding cuts; the modes `edge`,
    /// `reflect` and `wrap` repeat elements.
    fn pad_axis(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        axis_index: usize,
        before: i64,
        after: i64,
        mode: &[u8],
    ) -> Result<Tensor, GraphError> {
        let len = x.shape[axis_index] as i64;
        let limit = crate::MAX_WINDOW_SIDE as i64 * 16;
        if before.max(after) > limit || before.min(after) < -len {
            return Err(fail(n, format!("padding of {before} and {after} on an axis of {len}")));
        }
        let (first_index, last_index) = match mode {
            b"constant" => ((-before).max(0), len + after.min(0)),
            _ => (-before, len + after),
        };
        let indices: Option<Vec<usize>> =
            (first_index..last_index).map(|i| pad_source(mode, len, i).map(|v| v as usize)).collect();
        let indices =
            indices.ok_or_else(|| unsupported(n, format!("padding mode `{}` here", String::from_utf8_lossy(mode))))?;
        self.select(n, x, axis_index, &indices)
    }

    pub(super) fn pad_with_zeros(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        before: &[i64],
        after: &[i64],
    ) -> Result<Tensor, GraphError> {
        let grown: Vec<usize> = (0..x.shape.len()).filter(|&a| before[a] + after[a] > 0).collect();
        // Images remain images if possible: convolutions can take over their input's padding.
        // Otherwise every padded axis gets its own axis of the node, even if its length is 1.
        let short: Vec<usize> = grown.iter().copied().filter(|&a| x.shape[a] == 1).collect();
        let order = [short.clone(), x.order.clone()].concat();
        let mut axes: Vec<Option<usize>> = order.iter().copied().map(Some).collect();
        let long: Vec<usize> = x.order.iter().map(|&a| x.shape[a]).collect();
        let node_axes = self.node_shape(x.node).to_vec();
        let mut node = x.node;
        if short.is_empty() && node_axes.iter().copied().filter(|d| *d != 1).eq(long.iter().copied()) {
            let mut axes_in_order = order.iter();
            axes = node_axes.iter().map(|&d| if d == 1 { None } else { axes_in_order.next().copied() }).collect();
        } else {
            node = self.push_reshape(n, node, &order.iter().map(|&a| x.shape[a]).collect::<Vec<_>>())?;
        }
        let [leading, trailing]: [Vec<usize>; 2] =
            [before, after].map(|pads| axes.iter().map(|a| a.map_or(0, |a| pads[a] as usize)).collect());
        let node = self.push(n, FloatOp::Pad { before: leading, after: trailing }, &[node], &[])?;
        let mut shape = x.shape.clone();
        grown.iter().for_each(|&a| shape[a] += (before[a] + after[a]) as usize);
        Ok(Tensor { node, shape, order, ..x.clone() })
    }
}

/// Returns the indices that a Slice selects on one axis; `start` and `end` may count from the end.
fn slice_indices(n: &NodeProto, len: i64, start: i64, end: i64, step: i64) -> Result<Vec<usize>, GraphError> {
    if step == 0 {
        return Err(fail(n, "steps of 0"));
    }
    let [start, end] = [start, end].map(|v| if v < 0 { v.saturating_add(len) } else { v });
    Ok(if step > 0 {
        let (start, end) = (start.clamp(0, len), end.clamp(0, len));
        (start..end.max(start)).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(|v| v as usize).collect()
    } else {
        let (start, end) = (start.clamp(-1, len - 1), end.clamp(-1, len - 1));
        let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        (end + 1..start + 1).rev().step_by(stride).map(|v| v as usize).collect()
    })
}

/// Returns the index that padding shows at `i`, on an axis of length `len`.
fn pad_source(mode: &[u8], len: i64, i: i64) -> Option<i64> {
    match mode {
        b"edge" => Some(i.clamp(0, len - 1)),
        b"wrap" => Some(i.rem_euclid(len)),
        b"reflect" if len > 1 => {
            let period = 2 * (len - 1);
            let i = i.rem_euclid(period);
            Some(if i < len { i } else { period - i })
        }
        b"constant" => Some(i),
        _ => None,
    }
}
