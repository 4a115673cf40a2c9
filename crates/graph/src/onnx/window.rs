//! Convolution, matrix products and pooling.

use super::proto::NodeProto;
use super::{Reader, Value, attribute, axis, fail, float, int, ints, unsupported};
use crate::GraphError;
use crate::float::FloatOp;
use crate::geometry::{ConvGeometry, Window};

/// Longest kernel, stride, dilation or padding that is accepted.
const MAX_EXTENT: i64 = 1 << 20;

/// A sliding window with two axes, as the attributes state it.
struct Extent {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    pads: [usize; 4],
    /// Padding as far as averages with `count_include_pad` count it: without what `ceil_mode` adds.
    counted: [usize; 4],
}

impl Reader {
    pub(super) fn conv(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let w = self.needed(n, 1)?;
        let (image, flat) = self.as_image(n, x)?;
        let spatial = if flat { 1 } else { 2 };
        if w.shape.len() != 2 + spatial {
            return Err(fail(n, &format!("weights of shape {:?} on an input with {spatial} spatial axes", w.shape)));
        }
        let kernel: Vec<i64> = w.shape[2..].iter().map(|&k| k as i64).collect();
        if ints(n, "kernel_shape").is_some_and(|k| k != kernel) {
            return Err(fail(n, "`kernel_shape` differs from the weights' shape"));
        }
        let e = extent(n, self.shape(image), flat, &kernel)?;
        let groups = usize::try_from(int(n, "group", 1)).map_err(|_| fail(n, "`group` is negative"))?;
        let out = w.shape[0];
        let bias = match self.constant(n, 2)? {
            Some(b) => b.to_floats(),
            None => vec![0.0; out],
        };
        let geometry = ConvGeometry {
            out_channels: out,
            kernel: e.kernel,
            stride: e.stride,
            dilation: e.dilation,
            pads: e.pads,
            groups,
        };
        let op = FloatOp::Conv { geometry, weights: w.to_floats(), bias };
        let made = self.push(n, op, &[image], &[])?;
        self.back_from_image(n, made, flat)
    }

    pub(super) fn gemm(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let b = self.needed(n, 1)?;
        if int(n, "transA", 0) != 0 {
            return Err(unsupported(n, "transA = 1 would mix the batch".into()));
        }
        let transposed = int(n, "transB", 0) != 0;
        let alpha = float(n, "alpha", 1.0)?;
        let beta = float(n, "beta", 1.0)?;
        let mut weights = out_by_in(n, &b.shape, &b.to_floats(), transposed)?;
        weights.iter_mut().for_each(|w| *w *= alpha);
        let out = if transposed { b.shape[0] } else { b.shape[1] };
        let bias = match self.constant(n, 2)? {
            None => vec![0.0; out],
            Some(c) => {
                let c = c.to_floats();
                match c.len() {
                    1 => vec![c[0] * beta; out],
                    len if len == out => c.iter().map(|v| v * beta).collect(),
                    len => return Err(fail(n, &format!("{len} biases for {out} outputs"))),
                }
            }
        };
        self.dense(n, x, weights, bias)
    }

    pub(super) fn matmul(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let b = self.needed(n, 1)?;
        let weights = out_by_in(n, &b.shape, &b.to_floats(), false)?;
        let out = b.shape[1];
        self.dense(n, x, weights, vec![0.0; out])
    }

    fn dense(&mut self, n: &NodeProto, x: usize, weights: Vec<f32>, bias: Vec<f32>) -> Result<Value, GraphError> {
        if self.shape(x).len() != 1 {
            return Err(unsupported(
                n,
                format!("its input has shape {:?}; a Flatten in front would help", self.shape(x)),
            ));
        }
        Ok(Value::Wire(self.push(n, FloatOp::Dense { weights, bias }, &[x], &[])?))
    }

    pub(super) fn max_pool(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        if n.output.get(1).is_some_and(|o| !o.is_empty()) {
            return Err(unsupported(n, "the indices of a max pool are not supported".into()));
        }
        let (image, flat, e) = self.pool_extent(n)?;
        if e.dilation != [1, 1] {
            return Err(unsupported(n, "a dilated max pool is not supported; use stride or a larger window".into()));
        }
        let window = Window { kernel: e.kernel, stride: e.stride, pads: e.pads };
        let made = self.push(n, FloatOp::MaxPool(window), &[image], &[])?;
        self.back_from_image(n, made, flat)
    }

    pub(super) fn average_pool(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let (image, flat, e) = self.pool_extent(n)?;
        if e.dilation != [1, 1] {
            return Err(unsupported(n, "a dilated average pool is not supported".into()));
        }
        let include = int(n, "count_include_pad", 0) != 0;
        let input = self.shape(image).to_vec();
        let window = Window { kernel: e.kernel, stride: e.stride, pads: e.pads };
        let sum = self.push(n, FloatOp::SumPool(window), &[image], &[])?;
        let shape = self.shape(sum).to_vec();
        let counts = |i: usize| -> Vec<usize> {
            let (low, high) = if include {
                (0, e.pads[i] + input[i + 1] + e.counted[i + 2])
            } else {
                (e.pads[i], e.pads[i] + input[i + 1])
            };
            (0..shape[i + 1])
                .map(|o| {
                    let start = o * e.stride[i];
                    (start + e.kernel[i]).min(high).saturating_sub(start.max(low)).max(1)
                })
                .collect()
        };
        let (rows, columns) = (counts(0), counts(1));
        let made = if rows.iter().all(|r| *r == rows[0]) && columns.iter().all(|c| *c == columns[0]) {
            self.scale(n, sum, 1.0 / (rows[0] * columns[0]) as f32)?
        } else {
            let factors = rows.iter().flat_map(|r| columns.iter().map(move |c| 1.0 / (r * c) as f32)).collect();
            self.push(n, FloatOp::PositionScale(factors), &[sum], &[])?
        };
        self.back_from_image(n, made, flat)
    }

    fn pool_extent(&mut self, n: &NodeProto) -> Result<(usize, bool, Extent), GraphError> {
        let x = self.wire(n, 0)?;
        let (image, flat) = self.as_image(n, x)?;
        let kernel = ints(n, "kernel_shape").ok_or_else(|| fail(n, "has no `kernel_shape`"))?;
        let mut e = extent(n, self.shape(image), flat, kernel)?;
        if int(n, "ceil_mode", 0) != 0 {
            for i in 0..2 {
                e.pads[i + 2] = ceil_padding(self.shape(image)[i + 1], &e, i);
            }
        }
        if e.kernel.iter().zip(&e.pads).any(|(k, p)| p >= k) || e.pads[2] >= e.kernel[0] || e.pads[3] >= e.kernel[1] {
            return Err(fail(n, "its padding is not smaller than its window"));
        }
        Ok((image, flat, e))
    }

    pub(super) fn global_average_pool(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        self.global(n, x, true)
    }

    pub(super) fn global_max_pool(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        self.global(n, x, false)
    }

    fn global(&mut self, n: &NodeProto, x: usize, average: bool) -> Result<Value, GraphError> {
        let (image, flat) = self.as_image(n, x)?;
        let shape = self.shape(image).to_vec();
        let window = Window { kernel: [shape[1], shape[2]], stride: [1, 1], pads: [0; 4] };
        let made = if average {
            let sum = self.push(n, FloatOp::SumPool(window), &[image], &[])?;
            self.scale(n, sum, 1.0 / (shape[1] * shape[2]) as f32)?
        } else {
            self.push(n, FloatOp::MaxPool(window), &[image], &[])?
        };
        self.back_from_image(n, made, flat)
    }

    /// The mean over all spatial axes is a global average pool; other means are not supported.
    pub(super) fn reduce_mean(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let rank = self.shape(x).len() + 1;
        let stated = match self.constant(n, 1)? {
            Some(c) => c.as_ints().map(<[i64]>::to_vec),
            None => ints(n, "axes").map(<[i64]>::to_vec),
        };
        let mut axes =
            stated.unwrap_or_default().iter().map(|&a| axis(n, a, rank)).collect::<Result<Vec<_>, GraphError>>()?;
        axes.sort_unstable();
        if rank < 3 || axes != (2..rank).collect::<Vec<_>>() {
            return Err(unsupported(
                n,
                "only the mean over all spatial axes (a global average pool) is supported".into(),
            ));
        }
        let Value::Wire(mean) = self.global(n, x, true)? else {
            return Err(fail(n, "has no mean"));
        };
        if int(n, "keepdims", 1) != 0 {
            return Ok(Value::Wire(mean));
        }
        let channels = self.shape(mean)[0];
        Ok(Value::Wire(self.push(n, FloatOp::Reshape, &[mean], &[channels])?))
    }

    /// A `[C, H, W]` view: one-dimensional signals `[C, L]` become `[C, 1, L]`.
    fn as_image(&mut self, n: &NodeProto, x: usize) -> Result<(usize, bool), GraphError> {
        match *self.shape(x) {
            [_, _, _] => Ok((x, false)),
            [c, l] => Ok((self.push(n, FloatOp::Reshape, &[x], &[c, 1, l])?, true)),
            _ => Err(fail(n, &format!("needs an input [N, C, H, W] or [N, C, L], got [N] + {:?}", self.shape(x)))),
        }
    }

    fn back_from_image(&mut self, n: &NodeProto, made: usize, flat: bool) -> Result<Value, GraphError> {
        let shape = self.shape(made).to_vec();
        match (flat, shape.as_slice()) {
            (true, [c, 1, l]) => Ok(Value::Wire(self.push(n, FloatOp::Reshape, &[made], &[*c, *l])?)),
            _ => Ok(Value::Wire(made)),
        }
    }
}

/// Padding behind an axis so that the last, partly filled window is kept; it never starts in the padding behind.
fn ceil_padding(len: usize, e: &Extent, i: usize) -> usize {
    let (k, s, before, after) = (e.kernel[i], e.stride[i], e.pads[i], e.pads[i + 2]);
    let room = (len + before + after).saturating_sub(k);
    let mut windows = room.div_ceil(s) + 1;
    if (windows - 1) * s >= len + before {
        windows -= 1;
    }
    ((windows - 1) * s + k).saturating_sub(len + before).max(if windows == room / s + 1 { after } else { 0 })
}

/// A weight matrix as `[out, in]`.
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

/// Reads strides, dilations and padding for a window of `kernel` on `[C, H, W]` (`flat`: on `[C, 1, L]`, one axis stated).
fn extent(n: &NodeProto, input: &[usize], flat: bool, kernel: &[i64]) -> Result<Extent, GraphError> {
    let axes = if flat { 1 } else { 2 };
    let list = |name: &str, stated: Option<&[i64]>, len: usize, default: i64, least: i64| {
        let values = stated.filter(|v| !v.is_empty()).map_or(vec![default; len], <[i64]>::to_vec);
        if values.len() != len || values.iter().any(|v| !(least..=MAX_EXTENT).contains(v)) {
            return Err(fail(
                n,
                &format!("`{name}` is {values:?}: {len} numbers from {least} to {MAX_EXTENT} are expected"),
            ));
        }
        Ok(values.iter().map(|&v| v as usize).collect::<Vec<_>>())
    };
    let two = |v: Vec<usize>| if flat { [1, v[0]] } else { [v[0], v[1]] };
    let kernel = two(list("kernel_shape", Some(kernel), axes, 1, 1)?);
    let stride = two(list("strides", ints(n, "strides"), axes, 1, 1)?);
    let dilation = two(list("dilations", ints(n, "dilations"), axes, 1, 1)?);
    let stated = list("pads", ints(n, "pads"), 2 * axes, 0, 0)?;
    let stated = if flat { [0, stated[0], 0, stated[1]] } else { [stated[0], stated[1], stated[2], stated[3]] };
    let auto = attribute(n, "auto_pad").map_or(&b"NOTSET"[..], |a| &a.s);
    let pads = match auto {
        b"NOTSET" | b"" => stated,
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
        other => return Err(fail(n, &format!("auto_pad `{}`", String::from_utf8_lossy(other)))),
    };
    Ok(Extent { kernel, stride, dilation, pads, counted: pads })
}
