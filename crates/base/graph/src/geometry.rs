//! Geometry of tensors and windows for every level of graph: convolutions, pools, slices, and the
//! shapes of their results. Shapes have no batch: `[C, H, W]`, `[C, L]` or `[F]`. If shapes do not
//! fit, a rule returns a sentence as its error.

use serde::{Deserialize, Serialize};

use crate::{MAX_ELEMENTS, MAX_TOTAL_ELEMENTS, MAX_WINDOW_SIDE};

/// The geometry of a two-dimensional convolution with weights
/// `[out_channels, in_channels / groups, kh, kw]` and a bias `[out_channels]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvGeometry {
    /// Output channels.
    pub out_channels: usize,
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Vertical and horizontal dilation.
    pub dilation: [usize; 2],
    /// Zero padding: top, left, bottom, right.
    pub pads: [usize; 4],
    /// Channel groups; divides both channel counts.
    pub groups: usize,
}

impl ConvGeometry {
    /// A 1 x 1 convolution.
    #[must_use]
    pub fn pointwise(out_channels: usize) -> Self {
        Self { out_channels, kernel: [1, 1], stride: [1, 1], dilation: [1, 1], pads: [0; 4], groups: 1 }
    }

    /// Returns the number of weights of one output channel on an input of `channels` channels;
    /// `None` on overflow or without groups.
    pub fn row_len(&self, channels: usize) -> Option<usize> {
        checked_elements(&[channels.checked_div(self.groups)?, self.kernel[0], self.kernel[1]])
    }

    /// Refuses sizes that could overflow later arithmetic on positions.
    ///
    /// # Errors
    /// If kernel, stride, dilation or padding exceeds [`MAX_ELEMENTS`].
    pub fn check(&self) -> Result<(), String> {
        if self.kernel.iter().chain(&self.stride).chain(&self.dilation).chain(&self.pads).any(|&v| v > MAX_ELEMENTS) {
            return Err("kernel, stride, dilation or padding is too large".into());
        }
        Ok(())
    }
}

/// Returns output positions `lo..hi` for which `position * stride + offset - pad` lies in `0..len`.
pub(crate) fn valid_span(out_len: usize, len: usize, stride: usize, offset: usize, pad: usize) -> (usize, usize) {
    let lo = pad.saturating_sub(offset).div_ceil(stride);
    let hi = if len + pad > offset { (len + pad - offset).div_ceil(stride) } else { 0 };
    (lo.min(out_len), hi.min(out_len))
}

/// Geometry of one convolution on tensors of known shapes.
pub struct ConvPlan<'a> {
    pub(crate) conv: &'a ConvGeometry,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) out_height: usize,
    pub(crate) out_width: usize,
    /// Input channels of one group.
    pub(crate) group_channels: usize,
}

impl<'a> ConvPlan<'a> {
    pub(crate) fn new(conv: &'a ConvGeometry, in_shape: &[usize], out_shape: &[usize]) -> Self {
        Self {
            conv,
            height: in_shape[1],
            width: in_shape[2],
            out_height: out_shape[1],
            out_width: out_shape[2],
            group_channels: in_shape[0] / conv.groups,
        }
    }
}

/// A pooling window. Padded positions never win a maximum and add zero to a sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Window height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Padding: top, left, bottom, right (each smaller than the kernel; bottom and right may stand
    /// for `ceil_mode`).
    pub pads: [usize; 4],
}

/// A strided slice of a `[C, H, W]` or `[F]` tensor: `start + step * i` for `i < len`, for each
/// axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// First index of each axis.
    pub start: Vec<usize>,
    /// Step of each axis (positive).
    pub step: Vec<usize>,
    /// Number of elements on each axis of the result.
    pub len: Vec<usize>,
}

/// Returns the output length of a sliding window along one axis, or `None` if the window does not
/// fit.
pub fn window_len(
    len: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    after: usize,
) -> Option<usize> {
    let span = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
    let padded = len.checked_add(before)?.checked_add(after)?;
    Some(padded.checked_sub(span)?.checked_div(stride)? + 1)
}

/// Returns the number of elements of a shape, `None` on overflow.
pub fn checked_elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Refuses a tensor that is empty or larger than [`MAX_ELEMENTS`].
///
/// # Errors
/// If the tensor is empty or too large.
pub fn check_size(shape: &[usize]) -> Result<(), String> {
    match checked_elements(shape) {
        Some(n) if (1..=MAX_ELEMENTS).contains(&n) => Ok(()),
        _ => Err(format!("shape {shape:?} is empty or has more than {MAX_ELEMENTS} elements")),
    }
}

/// Bounds what a plan allocates per window, since an unauthenticated peer's graph may state any
/// window. `elements` is the number of elements of the result.
///
/// # Errors
/// If a window or padding exceeds [`MAX_WINDOW_SIDE`], or there are too many window positions.
pub fn check_window(kernel: [usize; 2], pads: [usize; 4], elements: usize) -> Result<(), String> {
    if kernel.into_iter().chain(pads).any(|x| x > MAX_WINDOW_SIDE)
        || elements.saturating_mul(kernel[0] + kernel[1]) > MAX_TOTAL_ELEMENTS
    {
        return Err(format!(
            "a window of {kernel:?} with padding {pads:?} is larger than is supported ({MAX_WINDOW_SIDE} a side)"
        ));
    }
    Ok(())
}

/// Returns the shape of a convolution's result.
///
/// # Errors
/// A sentence that says what does not fit.
pub fn conv_shape(c: &ConvGeometry, input: &[usize]) -> Result<Vec<usize>, String> {
    let [ch, h, w] = input else {
        return Err(format!("a convolution needs [C, H, W], got {input:?}"));
    };
    if c.groups == 0 || !ch.is_multiple_of(c.groups) || !c.out_channels.is_multiple_of(c.groups) || c.out_channels == 0
    {
        return Err(format!("{} groups do not divide {ch} input and {} output channels", c.groups, c.out_channels));
    }
    match (conv_len(c, *h, 0), conv_len(c, *w, 1)) {
        (Some(oh), Some(ow)) => Ok(vec![c.out_channels, oh, ow]),
        _ => Err(format!("kernel {:?} does not fit into {input:?} with padding {:?}", c.kernel, c.pads)),
    }
}

/// Returns the length of axis `i` of a convolution's result; `None` if the kernel does not fit.
fn conv_len(c: &ConvGeometry, len: usize, i: usize) -> Option<usize> {
    if c.stride[i] == 0 || c.dilation[i] == 0 || c.kernel[i] == 0 {
        return None;
    }
    window_len(len, c.kernel[i], c.stride[i], c.dilation[i], c.pads[i], c.pads[i + 2])
}

/// Returns the shape of a pool's result.
///
/// # Errors
/// A sentence that says what does not fit.
pub fn pool_shape(w: &Window, input: &[usize]) -> Result<Vec<usize>, String> {
    let [ch, h, wd] = input else {
        return Err(format!("a pool needs [C, H, W], got {input:?}"));
    };
    match (pool_len(w, *h, 0), pool_len(w, *wd, 1)) {
        (Some(oh), Some(ow)) => Ok(vec![*ch, oh, ow]),
        _ => Err(format!("window {:?} does not fit into {input:?} with padding {:?}", w.kernel, w.pads)),
    }
}

/// Returns the length of axis `i` of a pool's result; `None` if the window does not fit.
fn pool_len(w: &Window, len: usize, i: usize) -> Option<usize> {
    if w.stride[i] == 0 || w.pads[i] >= w.kernel[i] || w.pads[i + 2] >= w.kernel[i] {
        return None;
    }
    window_len(len, w.kernel[i], w.stride[i], 1, w.pads[i], w.pads[i + 2])
}

/// Returns the shape of tensors joined along the first axis.
///
/// # Errors
/// A sentence that says what does not fit.
pub fn concat_shape(inputs: &[&[usize]]) -> Result<Vec<usize>, String> {
    let mut shape = inputs.first().ok_or("nothing to join")?.to_vec();
    if shape.is_empty() {
        return Err("cannot join scalars".into());
    }
    for next in &inputs[1..] {
        if next.len() != shape.len() || next[1..] != shape[1..] {
            return Err(format!("shapes {shape:?} and {next:?} differ outside the first axis"));
        }
        shape[0] = shape[0].checked_add(next[0]).ok_or("too many channels")?;
    }
    Ok(shape)
}

/// Returns the shape of a strided slice.
///
/// # Errors
/// A sentence that says what does not fit.
pub fn slice_shape(s: &Slice, input: &[usize]) -> Result<Vec<usize>, String> {
    let axes = input.len();
    if s.start.len() != axes || s.step.len() != axes || s.len.len() != axes {
        return Err(format!("slice of {} axes on a tensor of {axes}", s.start.len()));
    }
    for i in 0..axes {
        let last =
            s.len[i].checked_sub(1).and_then(|n| n.checked_mul(s.step[i])).and_then(|n| n.checked_add(s.start[i]));
        if s.step[i] == 0 || last.is_none_or(|l| l >= input[i]) {
            return Err(format!("slice {s:?} leaves {input:?}"));
        }
    }
    Ok(s.len.clone())
}

/// Returns the shape of a fully connected layer's result.
///
/// # Errors
/// If the input is not flat.
pub fn dense_shape(out_features: usize, input: &[usize]) -> Result<Vec<usize>, String> {
    match input {
        [_] => Ok(vec![out_features]),
        _ => Err(format!("a fully connected layer needs a flat input, got {input:?}")),
    }
}

/// Returns the shape of an element-wise operation on two tensors.
///
/// # Errors
/// If there are not two tensors, or their shapes differ.
pub fn pair_shape(inputs: &[&[usize]]) -> Result<Vec<usize>, String> {
    match inputs {
        [a, b] if a == b => Ok(a.to_vec()),
        _ => Err(format!("shapes differ: {inputs:?}")),
    }
}

/// Returns the shape of a zero-padded tensor.
///
/// # Errors
/// If the number of axes differs, or on overflow.
pub fn pad_shape(before: &[usize], after: &[usize], input: &[usize]) -> Result<Vec<usize>, String> {
    if before.len() != input.len() || after.len() != input.len() {
        return Err(format!("padding of {} axes on a tensor of {}", before.len(), input.len()));
    }
    (0..input.len())
        .map(|i| input[i].checked_add(before[i])?.checked_add(after[i]))
        .collect::<Option<_>>()
        .ok_or("padding overflows".into())
}

/// Returns the declared shape of the same elements in row-major order.
///
/// # Errors
/// If the numbers of elements differ.
pub fn reshape_shape(declared: &[usize], input: &[usize]) -> Result<Vec<usize>, String> {
    if checked_elements(declared) != checked_elements(input) {
        return Err(format!("{input:?} cannot become {declared:?}"));
    }
    Ok(declared.to_vec())
}

/// Returns the shape of a tensor whose axis `i` is axis `perm[i]` of the input.
///
/// # Errors
/// If `perm` is no permutation of the input's axes.
pub fn transpose_shape(perm: &[usize], input: &[usize]) -> Result<Vec<usize>, String> {
    let mut is_used = vec![false; input.len()];
    let each_once = perm.iter().all(|&p| is_used.get_mut(p).is_some_and(|s| !std::mem::replace(s, true)));
    if perm.len() != input.len() || !each_once {
        return Err(format!("{perm:?} is not a permutation of the axes of {input:?}"));
    }
    Ok(perm.iter().map(|&p| input[p]).collect())
}

/// Returns the shape of the index of the largest element.
///
/// # Errors
/// If the input is not flat, or is empty.
pub fn arg_max_shape(input: &[usize]) -> Result<Vec<usize>, String> {
    match input {
        [n] if *n > 0 => Ok(vec![1]),
        _ => Err(format!("arg max needs a flat, non-empty input, got {input:?}")),
    }
}
