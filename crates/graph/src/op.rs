//! The operations of the typed graph, with shape inference. Shapes never contain the batch: `[C, H, W]` or `[F]`.

use serde::{Deserialize, Serialize};

/// A two-dimensional convolution with private weights `[out_channels, in_channels / groups, kh, kw]` and a private bias
/// `[out_channels]` at the output's scale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv2d {
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
    /// Public facts about the quantised weights.
    pub weights: WeightFacts,
}

/// A fully connected layer with private weights `[out_features, in_features]` and bias `[out_features]`. Input `[F]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Public facts about the quantised weights.
    pub weights: WeightFacts,
}

/// What the public part of a model says about the integers of a weight tensor: the lattice parameters depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFacts {
    /// Bits behind the binary point of the weights.
    pub frac_bits: u32,
    /// Every weight satisfies `|w| < 2^magnitude_bits`.
    pub magnitude_bits: u32,
    /// Every output's weight row has Euclidean norm below `2^norm_bits`.
    pub norm_bits: u32,
}

/// A pooling window. Padded positions never win a maximum and add zero to a sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Window height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Padding: top, left, bottom, right (each smaller than the kernel; bottom and right may stand for `ceil_mode`).
    pub pads: [usize; 4],
}

/// A strided slice of a `[C, H, W]` or `[F]` tensor: `start + step * i` for `i < len`, for each axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// First index of each axis.
    pub start: Vec<usize>,
    /// Step of each axis (positive).
    pub step: Vec<usize>,
    /// Elements kept on each axis.
    pub len: Vec<usize>,
}

/// One operation. Values are integers; the real number behind them follows from the node's `FixedPoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// The client's private input.
    Input,
    /// Convolution with private weights; exact in the ring of the output.
    Conv2d(Conv2d),
    /// Fully connected layer with private weights; exact in the ring of the output.
    Linear(Linear),
    /// `max(x, 0)`. The output ring may be wider than the input ring (the sign is known, so widening is cheap here).
    Relu,
    /// Maximum over windows.
    MaxPool(Window),
    /// Sum over windows. An average pool is a sum pool whose division is folded into a later scale.
    SumPool(Window),
    /// Element-wise sum of two tensors of one shape and scale.
    Add,
    /// Element-wise difference (first minus second) of two tensors of one shape and scale.
    Sub,
    /// Adds a public integer to every element.
    AddConst {
        /// The integer added, at the scale of the tensor.
        value: i64,
    },
    /// Multiplies by public integers: one for all elements, or one per spatial position (`H * W`, the same for every channel).
    MulConst {
        /// The factors, 1 or `H * W` of them.
        factors: Vec<i64>,
        /// Bits behind the binary point of the factors (added to the scale).
        frac_bits: u32,
    },
    /// `floor(x / 2^bits)`. The ring narrows by `bits` as well. The importer adds `2^(bits-1)` in front (round to nearest). A
    /// back end that shifts both parties' shares should let one party add `2^(bits-1)` once more: see `reference::Truncation`.
    Truncate {
        /// Bits dropped.
        bits: u32,
    },
    /// `x * 2^bits` in the same ring: aligns scales before an addition.
    ShiftLeft {
        /// Bits of the shift.
        bits: u32,
    },
    /// The same value in a wider ring (a protocol of its own where the sign is not known).
    Widen,
    /// Joins `[C, H, W]` tensors along the channels, or `[F]` tensors along the features.
    Concat,
    /// Strided slice.
    Slice(Slice),
    /// Zero padding: elements before and after each axis.
    Pad {
        /// Elements added in front of each axis.
        before: Vec<usize>,
        /// Elements added behind each axis.
        after: Vec<usize>,
    },
    /// The same elements in row-major order under another shape (the node's `shape`).
    Reshape,
    /// Index of the largest element of an `[F]` tensor; the lowest index wins ties. Output shape `[1]`, scale 0.
    ArgMax,
}

impl Op {
    /// Name used in errors and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input => "Input",
            Op::Conv2d(_) => "Conv2d",
            Op::Linear(_) => "Linear",
            Op::Relu => "Relu",
            Op::MaxPool(_) => "MaxPool",
            Op::SumPool(_) => "SumPool",
            Op::Add => "Add",
            Op::Sub => "Sub",
            Op::AddConst { .. } => "AddConst",
            Op::MulConst { .. } => "MulConst",
            Op::Truncate { .. } => "Truncate",
            Op::ShiftLeft { .. } => "ShiftLeft",
            Op::Widen => "Widen",
            Op::Concat => "Concat",
            Op::Slice(_) => "Slice",
            Op::Pad { .. } => "Pad",
            Op::Reshape => "Reshape",
            Op::ArgMax => "ArgMax",
        }
    }

    /// Number of inputs: lowest and highest.
    pub fn arity(&self) -> (usize, usize) {
        match self {
            Op::Input => (0, 0),
            Op::Add | Op::Sub => (2, 2),
            Op::Concat => (1, usize::MAX),
            _ => (1, 1),
        }
    }
}

/// Output length of a sliding window along one axis, or `None` where the window does not fit.
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

/// Shape of the result of `op` on inputs of the given shapes, or a sentence saying why there is none. `declared` is the shape
/// that the node states (needed by `Input` and `Reshape`).
pub fn infer_shape(op: &Op, inputs: &[&[usize]], declared: &[usize]) -> Result<Vec<usize>, String> {
    let first = inputs.first().copied().unwrap_or(&[]);
    match op {
        Op::Input => Ok(declared.to_vec()),
        Op::Conv2d(c) => conv_shape(c, first),
        Op::Linear(l) => match first {
            [_] => Ok(vec![l.out_features]),
            _ => Err(format!("a fully connected layer needs a flat input, got {first:?}")),
        },
        Op::MaxPool(w) | Op::SumPool(w) => pool_shape(w, first),
        Op::Relu | Op::AddConst { .. } | Op::Truncate { .. } | Op::ShiftLeft { .. } | Op::Widen => Ok(first.to_vec()),
        Op::MulConst { factors, .. } => {
            let spatial: usize = first.get(1..).unwrap_or(&[]).iter().product();
            if factors.len() != 1 && factors.len() != spatial {
                return Err(format!("{} factors for {spatial} positions", factors.len()));
            }
            Ok(first.to_vec())
        }
        Op::Add | Op::Sub => match inputs {
            [a, b] if a == b => Ok(a.to_vec()),
            _ => Err(format!("shapes differ: {inputs:?}")),
        },
        Op::Concat => concat_shape(inputs),
        Op::Slice(s) => slice_shape(s, first),
        Op::Pad { before, after } => {
            if before.len() != first.len() || after.len() != first.len() {
                return Err(format!("padding of {} axes on a tensor of {}", before.len(), first.len()));
            }
            (0..first.len())
                .map(|i| first[i].checked_add(before[i])?.checked_add(after[i]))
                .collect::<Option<_>>()
                .ok_or("padding overflows".into())
        }
        Op::Reshape => {
            if checked_elements(declared) != checked_elements(first) {
                return Err(format!("{first:?} cannot become {declared:?}"));
            }
            Ok(declared.to_vec())
        }
        Op::ArgMax => match first {
            [n] if *n > 0 => Ok(vec![1]),
            _ => Err(format!("arg max needs a flat, non-empty input, got {first:?}")),
        },
    }
}

/// Number of elements of a shape, `None` on overflow.
pub fn checked_elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

fn conv_shape(c: &Conv2d, input: &[usize]) -> Result<Vec<usize>, String> {
    let [ch, h, w] = input else {
        return Err(format!("a convolution needs [C, H, W], got {input:?}"));
    };
    if c.groups == 0 || !ch.is_multiple_of(c.groups) || !c.out_channels.is_multiple_of(c.groups) || c.out_channels == 0
    {
        return Err(format!("{} groups do not divide {ch} input and {} output channels", c.groups, c.out_channels));
    }
    let out = |len, i: usize| {
        if c.stride[i] == 0 || c.dilation[i] == 0 || c.kernel[i] == 0 {
            return None;
        }
        window_len(len, c.kernel[i], c.stride[i], c.dilation[i], c.pads[i], c.pads[i + 2])
    };
    match (out(*h, 0), out(*w, 1)) {
        (Some(oh), Some(ow)) => Ok(vec![c.out_channels, oh, ow]),
        _ => Err(format!("kernel {:?} does not fit into {input:?} with padding {:?}", c.kernel, c.pads)),
    }
}

fn pool_shape(w: &Window, input: &[usize]) -> Result<Vec<usize>, String> {
    let [ch, h, wd] = input else {
        return Err(format!("a pool needs [C, H, W], got {input:?}"));
    };
    let out = |len, i: usize| {
        if w.stride[i] == 0 || w.pads[i] >= w.kernel[i] || w.pads[i + 2] >= w.kernel[i] {
            return None;
        }
        window_len(len, w.kernel[i], w.stride[i], 1, w.pads[i], w.pads[i + 2])
    };
    match (out(*h, 0), out(*wd, 1)) {
        (Some(oh), Some(ow)) => Ok(vec![*ch, oh, ow]),
        _ => Err(format!("window {:?} does not fit into {input:?} with padding {:?}", w.kernel, w.pads)),
    }
}

fn concat_shape(inputs: &[&[usize]]) -> Result<Vec<usize>, String> {
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

fn slice_shape(s: &Slice, input: &[usize]) -> Result<Vec<usize>, String> {
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

/// Two-argument maxima of a max pool done along rows first and then along columns (a window of `k` real elements needs
/// `k - 1`; padded positions need none). Shapes `[C, H, W]` before and after.
pub fn max_comparisons(window: &Window, input: &[usize], output: &[usize]) -> u64 {
    let along = |axis: usize| -> u64 {
        (0..output[axis + 1])
            .map(|o| {
                let start = o * window.stride[axis];
                let low = start.max(window.pads[axis]);
                let high = (start + window.kernel[axis]).min(window.pads[axis] + input[axis + 1]);
                high.saturating_sub(low).saturating_sub(1) as u64
            })
            .sum()
    };
    input[0] as u64 * (input[1] as u64 * along(1) + output[2] as u64 * along(0))
}
