//! ConvTranspose, Resize, Upsample, DepthToSpace and SpaceToDepth, made of convolutions and moved
//! elements.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Reader, attribute, axes_of, fail, int, ints, string_bytes, unsupported};
use crate::GraphError;
use crate::float::FloatOp;
use crate::geometry::ConvGeometry;

/// One axis of a transposed convolution, with output `o = i * stride + t * dilation - before` for
/// input `i` and tap `t`. Output `m * stride + r` of the uncut result depends only on taps
/// `r + stride * j` and inputs `m - j`: one convolution for each phase `r`.
struct TransposedAxis {
    stride: usize,
    /// Number of taps, with the gaps of a dilation.
    taps: usize,
    dilation: usize,
    /// Taps of one phase.
    per_phase: usize,
    /// Padding behind the input, for the convolution of the phases.
    pad_after: usize,
    /// Number of outputs cut from the front of the uncut result.
    front_crop: usize,
    /// Length of the cropped result.
    output_len: usize,
}

impl Reader<'_> {
    pub(super) fn conv_transpose(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let w = self.constant_input(n, 1)?;
        let (image, flat) = self.as_image(n, &x)?;
        let input = self.node_shape(image).to_vec();
        let spatial = if flat { 1 } else { 2 };
        let groups = usize::try_from(int(n, "group", 1))
            .ok()
            .filter(|g| *g > 0)
            .ok_or_else(|| fail(n, "`group` is not positive"))?;
        if w.shape.len() != 2 + spatial || w.shape[0] != input[0] || !input[0].is_multiple_of(groups) {
            return Err(fail(n, format!("weights of shape {:?} on an input of shape {:?}", w.shape, x.shape)));
        }
        let kernel = if flat { [1, w.shape[2]] } else { [w.shape[2], w.shape[3]] };
        let rows = read_transposed_axis(n, 0, &input, kernel, flat)?;
        let axes = [rows, read_transposed_axis(n, 1, &input, kernel, flat)?];
        let (per_group, ins) = (w.shape[1], input[0] / groups);
        let out = per_group * groups;
        let bias = self.constant(n, 2)?.map_or_else(|| vec![0.0; out], |b| b.to_floats());
        if bias.len() != out {
            return Err(fail(n, format!("{} biases for {out} outputs", bias.len())));
        }
        let [sh, sw] = [axes[0].stride, axes[1].stride];
        let [jh, jw] = [axes[0].per_phase, axes[1].per_phase];
        let weights = phase_weights(n, &w.to_floats(), groups, per_group, ins, kernel, &axes)?;
        let geometry = ConvGeometry {
            kernel: [jh, jw],
            pads: [jh - 1, jw - 1, axes[0].pad_after, axes[1].pad_after],
            groups,
            ..ConvGeometry::pointwise(out * sh * sw)
        };
        let bias = bias.iter().flat_map(|b| vec![*b; sh * sw]).collect();
        let id = self.push(n, FloatOp::Conv { geometry, weights, bias }, &[image], &[])?;
        let phase = self.node_shape(id).to_vec();
        // [O, sh, sw, H, W] -> [O, H, sh, W, sw]
        let split = Tensor::new(id, vec![1, out, sh, sw, phase[1], phase[2]], x.batch).transposed(&[0, 1, 4, 2, 5, 3]);
        let mut joined = self.view_as(n, &split, vec![1, out, phase[1] * sh, phase[2] * sw])?;
        for (axis, a) in axes.iter().enumerate() {
            joined =
                self.select(n, &joined, axis + 2, &(a.front_crop..a.front_crop + a.output_len).collect::<Vec<_>>())?;
        }
        Ok(if flat { joined.without(&[2]) } else { joined })
    }

    /// Turns blocks of channels into blocks of pixels, or the reverse.
    pub(super) fn depth_and_space(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, 0)?;
        let b = usize::try_from(int(n, "blocksize", 0))
            .ok()
            .filter(|b| *b > 0)
            .ok_or_else(|| fail(n, "`blocksize` is not positive"))?;
        let [batch, c, h, w] = x.shape[..] else {
            return Err(fail(n, format!("needs [N, C, H, W], got {:?}", x.shape)));
        };
        let fits = if n.op_type == "DepthToSpace" {
            c.is_multiple_of(b * b)
        } else {
            h.is_multiple_of(b) && w.is_multiple_of(b)
        };
        if !fits {
            return Err(fail(n, format!("{:?} cannot be cut into blocks of {b}", x.shape)));
        }
        if n.op_type == "SpaceToDepth" {
            // Blocks precede channels, or (CRD) follow them.
            let perm = if string_bytes(n, "mode", b"") == b"CRD" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
            let parts = self.view_as(n, &x, vec![batch, c, h / b, b, w / b, b])?.transposed(&perm);
            return self.view_as(n, &parts, vec![batch, c * b * b, h / b, w / b]);
        }
        let mode = string_bytes(n, "mode", b"DCR");
        let parts = if mode == b"CRD" {
            self.view_as(n, &x, vec![batch, c / (b * b), b, b, h, w])?.transposed(&[0, 1, 4, 2, 5, 3])
        } else {
            self.view_as(n, &x, vec![batch, b, b, c / (b * b), h, w])?.transposed(&[0, 3, 4, 1, 5, 2])
        };
        self.view_as(n, &parts, vec![batch, c / (b * b), h * b, w * b])
    }

    /// Resizes each axis that changes its length: `nearest` picks elements, `linear` is a fixed
    /// matrix.
    pub(super) fn resize(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let targets = self.resize_targets(n, &x)?;
        let mode = string_bytes(n, "mode", b"nearest").to_vec();
        if int(n, "antialias", 0) != 0 {
            return Err(unsupported(n, "antialias = 1: export it without, or use AveragePool"));
        }
        let mut result = x.clone();
        for (axis, target) in targets.iter().enumerate() {
            let len = x.shape[axis];
            if target.length == len && target.scale == 1.0 {
                continue;
            }
            self.keeps_batch(n, &x, axis)?;
            let coordinate = coordinates(n, len, target, self.opset)?;
            result = match mode.as_slice() {
                b"nearest" => self.nearest(n, &result, axis, target, &coordinate)?,
                b"linear" | b"bilinear" => {
                    let weights = linear_matrix(len, target, &coordinate);
                    self.dense(n, &result, axis, weights, vec![0.0; target.length])?
                }
                other => {
                    let name = String::from_utf8_lossy(other).into_owned();
                    return Err(unsupported(
                        n,
                        format!("mode `{name}`: nearest and linear are supported; export it with one of these"),
                    ));
                }
            };
        }
        Ok(result)
    }

    fn nearest(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        axis: usize,
        target: &Target,
        coordinate: &dyn Fn(usize) -> f64,
    ) -> Result<Tensor, GraphError> {
        let len = x.shape[axis];
        let mode = string_bytes(n, "nearest_mode", b"round_prefer_floor");
        let mode = if self.opset < 11 { &b"floor"[..] } else { mode };
        let indices: Vec<usize> =
            (0..target.length).map(|o| nearest_to(mode, coordinate(o)).clamp(0.0, (len - 1) as f64) as usize).collect();
        let times = target.length / len;
        if times * len == target.length && indices.iter().enumerate().all(|(o, &i)| i == o / times) {
            let mut axis_scales = vec![1; x.shape.len()];
            axis_scales[axis] = times;
            return self.repeat_axes(n, x, &axis_scales, true);
        }
        self.select(n, x, axis, &indices)
    }

    fn resize_targets(&self, n: &NodeProto, x: &Tensor) -> Result<Vec<Target>, GraphError> {
        let rank = x.shape.len();
        let upsample = n.op_type == "Upsample";
        let (scales, sizes) = match (upsample, self.opset) {
            (true, ..9) => (super::floats(n, "scales")?, None),
            (true, _) | (false, ..11) => (self.float_input(n, 1)?, None),
            _ => (self.float_input(n, 2)?, self.float_input(n, 3)?),
        };
        if attribute(n, "keep_aspect_ratio_policy").is_some_and(|a| a.s != b"stretch") {
            return Err(unsupported(n, "a kept aspect ratio is not supported; state the sizes"));
        }
        let axes = match ints(n, "axes") {
            Some(axes) => axes_of(n, axes, rank)?,
            None => (0..rank).collect(),
        };
        let mut targets: Vec<Target> = x.shape.iter().map(|&length| Target { length, scale: 1.0 }).collect();
        let values = sizes.as_ref().or(scales.as_ref()).filter(|v| v.len() == axes.len());
        let values = values.ok_or_else(|| fail(n, "states no scale or size for each axis"))?;
        for (&axis, &v) in axes.iter().zip(values) {
            let len = x.shape[axis];
            // The file may state a batch other than one.
            if sizes.is_some() && Some(axis) == x.batch && len == 1 {
                continue;
            }
            let length = if sizes.is_some() { f64::from(v) } else { (len as f64 * f64::from(v)).floor() };
            if !(v.is_finite() && v > 0.0 && (1.0..=crate::MAX_ELEMENTS as f64).contains(&length)) {
                return Err(fail(n, format!("resizes an axis of {len} by {v}")));
            }
            let scale = if sizes.is_some() { length / len as f64 } else { f64::from(v) };
            targets[axis] = Target { length: length as usize, scale };
        }
        Ok(targets)
    }

    fn float_input(&self, n: &NodeProto, k: usize) -> Result<Option<Vec<f32>>, GraphError> {
        Ok(self.constant(n, k)?.map(|c| c.to_floats()).filter(|v| !v.is_empty()))
    }
}

struct Target {
    length: usize,
    scale: f64,
}

/// Returns the position in the input of each output.
fn coordinates(
    n: &NodeProto,
    len: usize,
    target: &Target,
    opset: i64,
) -> Result<Box<dyn Fn(usize) -> f64>, GraphError> {
    let mode_name = string_bytes(n, "coordinate_transformation_mode", b"half_pixel");
    let mode = if opset < 11 || n.op_type == "Upsample" { &b"asymmetric"[..] } else { mode_name };
    let (scale, inputs, outputs) = (target.scale, len as f64, target.length as f64);
    Ok(match mode {
        b"half_pixel" => Box::new(move |o| (o as f64 + 0.5) / scale - 0.5),
        b"pytorch_half_pixel" if target.length == 1 => Box::new(|_| 0.0),
        b"pytorch_half_pixel" => Box::new(move |o| (o as f64 + 0.5) / scale - 0.5),
        b"asymmetric" => Box::new(move |o| o as f64 / scale),
        b"align_corners" if target.length == 1 => Box::new(|_| 0.0),
        b"align_corners" => Box::new(move |o| o as f64 * (inputs - 1.0) / (outputs - 1.0)),
        b"half_pixel_symmetric" => {
            let offset = inputs / 2.0 * (1.0 - outputs / (scale * inputs));
            Box::new(move |o| offset + (o as f64 + 0.5) / scale - 0.5)
        }
        other => {
            let name = String::from_utf8_lossy(other).into_owned();
            return Err(unsupported(
                n,
                format!("coordinates `{name}`: half_pixel, asymmetric and align_corners are supported"),
            ));
        }
    })
}

fn nearest_to(mode: &[u8], c: f64) -> f64 {
    // Coordinates that differ from a whole number only by rounding count as whole.
    let c = if (c - c.round()).abs() < 1e-6 { c.round() } else { c };
    match mode {
        b"floor" => c.floor(),
        b"ceil" => c.ceil(),
        b"round_prefer_ceil" => (c + 0.5).floor(),
        _ => (c - 0.5).ceil(),
    }
}

/// Returns the matrix `[out, in]` of a linear interpolation; positions outside take the edge.
fn linear_matrix(len: usize, target: &Target, coordinate: &dyn Fn(usize) -> f64) -> Vec<f32> {
    let mut matrix = vec![0.0; len * target.length];
    for o in 0..target.length {
        let position = coordinate(o).clamp(0.0, (len - 1) as f64);
        let low = (position.floor() as usize).min(len - 1);
        let part = (position - low as f64) as f32;
        matrix[o * len + low] += 1.0 - part;
        if part > 0.0 {
            matrix[o * len + (low + 1).min(len - 1)] += part;
        }
    }
    matrix
}

/// Returns the weights `[out * sh * sw, ins, jh, jw]` of the convolution of all phases, made from
/// the file's weights `[groups * ins, out / groups, kh, kw]`.
fn phase_weights(
    n: &NodeProto,
    source: &[f32],
    groups: usize,
    per_group: usize,
    ins: usize,
    kernel: [usize; 2],
    axes: &[TransposedAxis; 2],
) -> Result<Vec<f32>, GraphError> {
    let [sh, sw] = [axes[0].stride, axes[1].stride];
    let [jh, jw] = [axes[0].per_phase, axes[1].per_phase];
    let size = [groups, per_group, sh, sw, ins, jh, jw].iter().try_fold(1usize, |p, v| p.checked_mul(*v));
    let size = size
        .filter(|s| *s <= source.len().saturating_mul(16).max(1 << 22))
        .ok_or_else(|| fail(n, "has too many weights"))?;
    let mut weights = Vec::with_capacity(size);
    for o in 0..groups * per_group {
        let (g, within) = (o / per_group, o % per_group);
        for (rh, rw) in (0..sh).flat_map(|r| (0..sw).map(move |c| (r, c))) {
            for i in 0..ins {
                let plane = ((g * ins + i) * per_group + within) * kernel[0] * kernel[1];
                for (a, b) in (0..jh).flat_map(|a| (0..jw).map(move |b| (a, b))) {
                    // A convolution's window runs forwards, the taps of a phase backwards.
                    let taps = axes[0].tap(rh, jh - 1 - a).zip(axes[1].tap(rw, jw - 1 - b));
                    weights.push(taps.map_or(0.0, |(th, tw)| source[plane + th * kernel[1] + tw]));
                }
            }
        }
    }
    Ok(weights)
}

impl TransposedAxis {
    /// Returns the tap of the file that phase `r` uses as its `j`-th, if any.
    fn tap(&self, r: usize, j: usize) -> Option<usize> {
        let offset = r + self.stride * j;
        (offset < self.taps && offset.is_multiple_of(self.dilation)).then_some(offset / self.dilation)
    }
}

/// Reads axis 0 or 1 of a transposed convolution on `[C, H, W]`. `flat` means that the file
/// states one axis, the second.
fn read_transposed_axis(
    n: &NodeProto,
    axis: usize,
    input: &[usize],
    kernel: [usize; 2],
    flat: bool,
) -> Result<TransposedAxis, GraphError> {
    let len = input[axis + 1];
    let is_unit_axis = flat && axis == 0;
    let (axis_index, count) = if flat { (0, 1) } else { (axis, 2) };
    let stride = read_parameter(n, "strides", is_unit_axis, axis_index, count, 1)?;
    let dilation = read_parameter(n, "dilations", is_unit_axis, axis_index, count, 1)?;
    let extra = read_parameter(n, "output_padding", is_unit_axis, axis_index, count, 0)?;
    let taps = (kernel[axis] - 1).checked_mul(dilation).and_then(|t| t.checked_add(1)).filter(|t| *t <= 1 << 20);
    let taps = taps.ok_or_else(|| fail(n, "a kernel that is too long"))?;
    let full = (len - 1) * stride + taps + extra;
    let auto = string_bytes(n, "auto_pad", b"NOTSET");
    let output = if is_unit_axis {
        None
    } else {
        ints(n, "output_shape").and_then(|v| v.get(v.len().checked_sub(count)? + axis_index)).copied()
    };
    let (before, output_len) = match (output, auto) {
        (None, b"NOTSET" | b"") => {
            let b = read_parameter(n, "pads", is_unit_axis, axis_index, 2 * count, 0)?;
            let e = read_parameter(n, "pads", is_unit_axis, axis_index + count, 2 * count, 0)?;
            (b, full.checked_sub(b + e))
        }
        (None, b"VALID") => (0, Some(full)),
        (output, auto) => {
            let length = output.map_or(Some(len * stride), |o| usize::try_from(o).ok());
            // An output that extends past the reach of the input ends with zeros.
            let total = full.saturating_sub(length.unwrap_or(full));
            (if auto == b"SAME_UPPER" { total / 2 } else { total - total / 2 }, length)
        }
    };
    let output_len = output_len.filter(|l| *l > 0).ok_or_else(|| fail(n, "its padding leaves nothing"))?;
    let per_phase = taps.div_ceil(stride);
    // The phases extend to the last output that is not cut.
    let pad_after = (before + output_len).div_ceil(stride).saturating_sub(len).max(per_phase - 1);
    Ok(TransposedAxis { stride, taps, dilation, per_phase, pad_after, front_crop: before, output_len })
}

/// Returns element `k` of a list attribute, which must have `list_len` elements. Returns the default
/// if the attribute is absent or the axis is a unit axis. `default` is also the least value allowed.
fn read_parameter(
    n: &NodeProto,
    name: &str,
    is_unit_axis: bool,
    k: usize,
    list_len: usize,
    default: i64,
) -> Result<usize, GraphError> {
    let list = ints(n, name).filter(|v| !v.is_empty() && !is_unit_axis);
    let value = list.map_or(Some(default), |v| if v.len() == list_len { v.get(k).copied() } else { None });
    let value = value.filter(|v| (default..=1 << 16).contains(v));
    value.map(|v| v as usize).ok_or_else(|| fail(n, format!("`{name}` is {:?}", ints(n, name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_share_the_taps() {
        // A kernel of 3 with a dilation of 2: taps at 0, 2 and 4, all in the even phase.
        let axis = TransposedAxis {
            stride: 2,
            taps: 5,
            dilation: 2,
            per_phase: 3,
            pad_after: 2,
            front_crop: 0,
            output_len: 1,
        };
        let taps = |r: usize| (0..3).map(|j| axis.tap(r, j)).collect::<Vec<_>>();
        assert_eq!((taps(0), taps(1)), (vec![Some(0), Some(1), Some(2)], vec![None; 3]));
    }
}
