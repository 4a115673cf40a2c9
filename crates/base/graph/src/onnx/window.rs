//! Convolution, matrix products and pooling.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Reader, fail, float, int, ints, string_bytes, unsupported};
use crate::GraphError;
use crate::float::FloatOp;
use crate::geometry::{ConvGeometry, Window};

/// Largest accepted kernel, stride, dilation or padding.
const MAX_EXTENT: i64 = 1 << 20;

/// A sliding window with two axes, from the node's attributes.
struct Extent {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    pads: [usize; 4],
    /// Padding that averages with `count_include_pad` count: without the padding that `ceil_mode`
    /// adds.
    counted: [usize; 4],
}

impl Reader<'_> {
    pub(super) fn conv(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let w = self.constant_input(n, 1)?;
        let (image, flat) = self.as_image(n, &x)?;
        let spatial = if flat { 1 } else { 2 };
        if w.shape.len() != 2 + spatial {
            return Err(fail(n, format!("weights of shape {:?} on an input with {spatial} spatial axes", w.shape)));
        }
        let kernel: Vec<i64> = w.shape[2..].iter().map(|&k| k as i64).collect();
        if ints(n, "kernel_shape").is_some_and(|k| k != kernel) {
            return Err(fail(n, "`kernel_shape` differs from the weights' shape"));
        }
        let e = extent(n, self.node_shape(image), flat, &kernel)?;
        let groups = usize::try_from(int(n, "group", 1)).map_err(|_| fail(n, "`group` is negative"))?;
        let out = w.shape[0];
        let bias = self.constant(n, 2)?.map_or_else(|| vec![0.0; out], |b| b.to_floats());
        let Extent { kernel, stride, dilation, pads, .. } = e;
        let geometry = ConvGeometry { out_channels: out, kernel, stride, dilation, pads, groups };
        let op = FloatOp::Conv { geometry, weights: w.to_floats(), bias };
        let id = self.push(n, op, &[image], &[])?;
        Ok(self.image_tensor(id, flat, &x))
    }

    /// `alpha * op(A) op(B) + beta * C`.
    pub(super) fn gemm(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let b = self.constant_input(n, 1)?;
        let [_, _] = x.shape[..] else {
            return Err(unsupported(
                n,
                format!(
                    "its first input has shape {:?}, not two axes; use MatMul, or Reshape it to [N, features]",
                    x.shape
                ),
            ));
        };
        let x = if int(n, "transA", 0) != 0 { x.transposed(&[1, 0]) } else { x };
        let transposed = int(n, "transB", 0) != 0;
        let alpha = float(n, "alpha", 1.0)?;
        let beta = float(n, "beta", 1.0)?;
        let mut weights = out_by_in(n, &b.shape, &b.to_floats(), transposed)?;
        weights.iter_mut().for_each(|w| *w *= alpha);
        let out = if transposed { b.shape[0] } else { b.shape[1] };
        let c = self.constant(n, 2)?;
        let by_output = c.as_ref().is_none_or(|c| c.len() == 1 || c.shape.last() == Some(&c.len()) && c.len() == out);
        let bias = match &c {
            Some(c) if by_output => {
                let c = c.to_floats();
                if let [scalar] = c[..] { vec![scalar * beta; out] } else { c.iter().map(|v| v * beta).collect() }
            }
            _ => vec![0.0; out],
        };
        let result = self.dense(n, &x, 1, weights, bias)?;
        match c {
            Some(c) if !by_output => self.affine_by(n, &result, &c, |v| (1.0, v * beta)),
            _ => Ok(result),
        }
    }

    /// Reads the product of a tensor and a constant matrix, on either side.
    pub(super) fn matmul(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        match (self.is_constant(n, 0), self.is_constant(n, 1)) {
            (false, true) => {
                let (x, b) = (self.real(n, 0)?, self.constant_input(n, 1)?);
                let axis = x.shape.len().checked_sub(1).ok_or_else(|| fail(n, "its first factor has no axes"))?;
                // A vector is a matrix with one column, whose axis is removed.
                let vector = b.shape.len() == 1;
                let shape = if vector { vec![b.shape[0], 1] } else { matrix(n, &b.shape)?.to_vec() };
                let weights = out_by_in(n, &shape, &b.to_floats(), false)?;
                let result = self.dense(n, &x, axis, weights, vec![0.0; shape[1]])?;
                Ok(if vector { result.without(&[axis]) } else { result })
            }
            (true, false) => {
                let (x, a) = (self.real(n, 1)?, self.constant_input(n, 0)?);
                let vector = x.shape.len() == 1;
                let x = if vector { x.with_ones(&[1]) } else { x };
                let axis = x.shape.len().checked_sub(2).ok_or_else(|| fail(n, "its second factor has no axes"))?;
                let shape = if a.shape.len() == 1 { vec![1, a.shape[0]] } else { matrix(n, &a.shape)?.to_vec() };
                let weights = out_by_in(n, &shape, &a.to_floats(), true)?;
                let result = self.dense(n, &x, axis, weights, vec![0.0; shape[0]])?;
                let result = if vector { result.without(&[axis + 1]) } else { result };
                Ok(if a.shape.len() == 1 { result.without(&[axis]) } else { result })
            }
            _ => Err(unsupported(
                n,
                "the product of two secret tensors (as in attention) is not supported; choose a network without",
            )),
        }
    }

    /// Adds a fully connected layer along one axis: weights `[out, in]` for each position of the
    /// other axes.
    pub(super) fn dense(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        axis: usize,
        weights: Vec<f32>,
        bias: Vec<f32>,
    ) -> Result<Tensor, GraphError> {
        self.keeps_batch(n, x, axis)?;
        let (out, features) = (bias.len(), x.shape[axis]);
        if Some(weights.len()) != out.checked_mul(features) {
            return Err(fail(n, format!("{} weights for {features} inputs and {out} outputs", weights.len())));
        }
        let mut shape = x.shape.clone();
        shape[axis] = out;
        let (_, other_axes) = x.order_from(&[axis]);
        let node = if other_axes.is_empty() {
            let flat = self.push_reshape(n, x.node, &[features])?;
            self.push(n, FloatOp::Dense { weights, bias }, &[flat], &[])?
        } else {
            // A 1 x 1 convolution over the other axes. The image is as square as they allow, since
            // a single row gains nothing.
            let (leading, others) = other_axes.split_at(1);
            let image = self.arrange(n, x, &[&[axis], leading, others])?;
            let geometry = ConvGeometry::pointwise(out);
            self.push(n, FloatOp::Conv { geometry, weights, bias }, &[image], &[])?
        };
        let output_axis = if out == 1 { vec![] } else { vec![axis] };
        Ok(Tensor { node, shape, order: [output_axis, other_axes].concat(), ..x.clone() })
    }

    pub(super) fn max_pool(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let (x, image, flat, e) = self.pool_extent(n, "max")?;
        let window = Window { kernel: e.kernel, stride: e.stride, pads: e.pads };
        let id = self.push(n, FloatOp::MaxPool(window), &[image], &[])?;
        Ok(self.image_tensor(id, flat, &x))
    }

    pub(super) fn average_pool(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let (x, image, flat, e) = self.pool_extent(n, "average")?;
        let include = int(n, "count_include_pad", 0) != 0;
        let input = self.node_shape(image).to_vec();
        let window = Window { kernel: e.kernel, stride: e.stride, pads: e.pads };
        let sum = self.push(n, FloatOp::SumPool(window), &[image], &[])?;
        let shape = self.node_shape(sum).to_vec();
        let [rows, columns] = [0, 1].map(|i| e.counts(i, input[i + 1], shape[i + 1], include));
        if rows.iter().all(|r| *r == rows[0]) && columns.iter().all(|c| *c == columns[0]) {
            let sum = self.image_tensor(sum, flat, &x);
            return self.scale(n, &sum, 1.0 / (rows[0] * columns[0]) as f32);
        }
        let factors = rows.iter().flat_map(|r| columns.iter().map(move |c| 1.0 / (r * c) as f32)).collect();
        let id = self.push(n, FloatOp::PositionScale(factors), &[sum], &[])?;
        Ok(self.image_tensor(id, flat, &x))
    }

    fn pool_extent(&mut self, n: &NodeProto, kind: &str) -> Result<(Tensor, usize, bool, Extent), GraphError> {
        let x = self.real(n, 0)?;
        let (image, flat) = self.as_image(n, &x)?;
        let kernel = ints(n, "kernel_shape").ok_or_else(|| fail(n, "has no `kernel_shape`"))?;
        let mut e = extent(n, self.node_shape(image), flat, kernel)?;
        if int(n, "ceil_mode", 0) != 0 {
            for i in 0..2 {
                e.pads[i + 2] = ceil_padding(self.node_shape(image)[i + 1], &e, i);
            }
        }
        if e.kernel.iter().zip(&e.pads).any(|(k, p)| p >= k) || e.pads[2] >= e.kernel[0] || e.pads[3] >= e.kernel[1] {
            return Err(fail(n, "its padding is not smaller than its window"));
        }
        if e.dilation != [1, 1] {
            let what = format!("a dilated {kind} pool is not supported; use stride or a larger window");
            return Err(unsupported(n, what));
        }
        Ok((x, image, flat, e))
    }

    /// Returns a node `[C, H, W]` for a tensor `[N, C, H, W]`. Signals `[N, C, L]` become
    /// `[C, 1, L]`, and the second value is true.
    pub(super) fn as_image(&mut self, n: &NodeProto, x: &Tensor) -> Result<(usize, bool), GraphError> {
        let rank = x.shape.len();
        match x.shape[..] {
            [1, _, _, _] => Ok((self.arrange(n, x, &[&[1], &[2], &[3]])?, false)),
            [1, _, _] => Ok((self.arrange(n, x, &[&[1], &[], &[2]])?, true)),
            [_, _, _, _, _] => Err(unsupported(n, "three spatial axes (video, volumes) are not supported; use two")),
            _ => Err(fail(
                n,
                format!(
                    "needs an input [N, C, H, W] or [N, C, L] with one input in the batch, got {rank} axes {:?}",
                    x.shape
                ),
            )),
        }
    }

    /// Returns the tensor of a node that was made from an image of `x`.
    pub(super) fn image_tensor(&self, id: usize, flat: bool, x: &Tensor) -> Tensor {
        let shape = match self.node_shape(id) {
            &[c, _, l] if flat => vec![1, c, l],
            stored => [&[1], stored].concat(),
        };
        Tensor::new(id, shape, x.batch)
    }
}

impl Extent {
    /// Returns how many elements each of `windows` on axis `i`, of length `len`, averages over.
    fn counts(&self, i: usize, len: usize, windows: usize, include: bool) -> Vec<usize> {
        let (low, high) =
            if include { (0, self.pads[i] + len + self.counted[i + 2]) } else { (self.pads[i], self.pads[i] + len) };
        (0..windows)
            .map(|o| {
                let start = o * self.stride[i];
                (start + self.kernel[i]).min(high).saturating_sub(start.max(low)).max(1)
            })
            .collect()
    }
}

/// Returns the two axes of a constant matrix; further axes in front must have length 1.
fn matrix<'a>(n: &NodeProto, shape: &'a [usize]) -> Result<&'a [usize], GraphError> {
    match shape.split_last_chunk::<2>() {
        Some((front, last)) if front.iter().all(|d| *d == 1) => Ok(last),
        _ => Err(unsupported(
            n,
            format!("a constant factor of shape {shape:?}: one matrix for all positions is supported"),
        )),
    }
}

/// Returns the padding behind an axis that includes the last, partly filled window. No window
/// starts in the padding behind.
fn ceil_padding(len: usize, e: &Extent, i: usize) -> usize {
    let (k, s, before, after) = (e.kernel[i], e.stride[i], e.pads[i], e.pads[i + 2]);
    let room = (len + before + after).saturating_sub(k);
    let mut windows = room.div_ceil(s) + 1;
    if (windows - 1) * s >= len + before {
        windows -= 1;
    }
    ((windows - 1) * s + k).saturating_sub(len + before).max(if windows == room / s + 1 { after } else { 0 })
}

fn out_by_in(n: &NodeProto, shape: &[usize], values: &[f32], transposed: bool) -> Result<Vec<f32>, GraphError> {
    let [rows, columns] = *shape else {
        return Err(unsupported(n, format!("its second factor has shape {shape:?}; a constant matrix is supported")));
    };
    if transposed {
        return Ok(values.to_vec());
    }
    let mut out = Vec::with_capacity(values.len());
    for c in 0..columns {
        out.extend((0..rows).map(|r| values[r * columns + c]));
    }
    Ok(out)
}

/// Reads strides, dilations and padding for a window of `kernel` on `[C, H, W]` (`flat`: on
/// `[C, 1, L]`, with one axis stated).
fn extent(n: &NodeProto, input: &[usize], flat: bool, kernel: &[i64]) -> Result<Extent, GraphError> {
    let axes = if flat { 1 } else { 2 };
    let kernel = two_axes(&list(n, "kernel_shape", Some(kernel), axes, 1)?, flat);
    let stride = two_axes(&list(n, "strides", ints(n, "strides"), axes, 1)?, flat);
    let dilation = two_axes(&list(n, "dilations", ints(n, "dilations"), axes, 1)?, flat);
    let pad_list = list(n, "pads", ints(n, "pads"), 2 * axes, 0)?;
    let pad_list =
        if flat { [0, pad_list[0], 0, pad_list[1]] } else { [pad_list[0], pad_list[1], pad_list[2], pad_list[3]] };
    let auto = string_bytes(n, "auto_pad", b"NOTSET");
    let pads = match auto {
        b"NOTSET" | b"" => pad_list,
        b"VALID" => [0; 4],
        b"SAME_UPPER" | b"SAME_LOWER" => {
            let mut pads = [0; 4];
            for i in 0..2 {
                let span = dilation[i] * (kernel[i] - 1) + 1;
                let total = ((input[i + 1].div_ceil(stride[i]) - 1) * stride[i] + span).saturating_sub(input[i + 1]);
                let (small, large) = (total / 2, total - total / 2);
                (pads[i], pads[i + 2]) = if auto == b"SAME_UPPER" { (small, large) } else { (large, small) };
            }
            pads
        }
        other => return Err(fail(n, format!("auto_pad `{}`", String::from_utf8_lossy(other)))),
    };
    Ok(Extent { kernel, stride, dilation, pads, counted: pads })
}

/// Returns the `len` numbers of an attribute, which are `min_value` where it is absent.
fn list(
    n: &NodeProto,
    name: &str,
    given_values: Option<&[i64]>,
    len: usize,
    min_value: i64,
) -> Result<Vec<usize>, GraphError> {
    let values = given_values.filter(|v| !v.is_empty()).map_or(vec![min_value; len], <[i64]>::to_vec);
    if values.len() != len || values.iter().any(|v| !(min_value..=MAX_EXTENT).contains(v)) {
        return Err(fail(
            n,
            format!("`{name}` is {values:?}: {len} numbers from {min_value} to {MAX_EXTENT} are expected"),
        ));
    }
    Ok(values.iter().map(|&v| v as usize).collect())
}

/// Returns the numbers for two axes; `flat` means that the second alone is stated.
fn two_axes(v: &[usize], flat: bool) -> [usize; 2] {
    if flat { [1, v[0]] } else { [v[0], v[1]] }
}
