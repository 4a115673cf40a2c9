//! The operations of the fixed-point graph, with shape inference. Shapes never contain the batch:
//! `[C, H, W]` or `[F]`.

use serde::{Deserialize, Serialize};
use tacit_graph::geometry::{self, ConvGeometry, Slice, Window};

use super::Table;

/// A two-dimensional convolution with private weights
/// `[out_channels, in_channels / groups, kh, kw]` and a private bias `[out_channels]` at the
/// output's scale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv2d {
    /// Channels, window and groups.
    pub geometry: ConvGeometry,
    /// Public facts about the quantised weights.
    pub weights: WeightFacts,
}

/// A fully connected layer with private weights `[out_features, in_features]` and bias
/// `[out_features]`. Input `[F]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Public facts about the quantised weights.
    pub weights: WeightFacts,
}

/// Largest `magnitude_bits` that weight facts may state.
pub const MAX_MAGNITUDE_BITS: u32 = 31;
/// Largest `norm_bits` that weight facts may state.
pub const MAX_NORM_BITS: u32 = 60;

/// Public facts about the integers of a weight tensor. The lattice parameters depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFacts {
    /// Bits behind the binary point of the weights.
    pub frac_bits: u32,
    /// Every weight satisfies `|w| < 2^magnitude_bits`.
    pub magnitude_bits: u32,
    /// Every output's weight row has Euclidean norm below `2^norm_bits`.
    pub norm_bits: u32,
}

/// One operation on integers. The node's `FixedPoint` says which real numbers they stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// The client's private input.
    Input,
    /// Convolution with private weights; exact in the ring of the output.
    Conv2d(Conv2d),
    /// Fully connected layer with private weights; exact in the ring of the output.
    Linear(Linear),
    /// `max(x, 0)`, whose output ring may be wider than the input ring: with the sign, widening is cheap.
    Relu,
    /// Maximum over windows.
    MaxPool(Window),
    /// Sum over windows. An average pool's division is folded into a later scale.
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
    /// Multiplies by public integers: one for all elements, or one per spatial position (`H * W`
    /// factors, equal for all channels).
    MulConst {
        /// The factors, 1 or `H * W` of them.
        factors: Vec<i64>,
        /// Bits behind the binary point of the factors (added to the scale).
        frac_bits: u32,
    },
    /// `floor(x / 2^bits)`, in a ring that is narrower by `bits`. The lowering adds `2^(bits-1)` in front
    /// (round to nearest). A back end that shifts both parties' shares should let one party add `2^(bits-1)`
    /// once more: see `reference::Truncation`.
    Truncate {
        /// Bits dropped.
        bits: u32,
    },
    /// `x * 2^bits` in the same ring: aligns scales before an addition.
    ShiftLeft {
        /// Bits of the shift.
        bits: u32,
    },
    /// The same value in a wider ring, by a protocol of its own if the sign is unknown.
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
    /// The same elements in row-major order under the node's `shape`.
    Reshape,
    /// Axes in another order: axis `i` of the result is axis `perm[i]` of the input.
    Transpose {
        /// For each axis of the result, the input's axis.
        perm: Vec<usize>,
    },
    /// Index of the largest element of an `[F]` tensor; the lowest index wins ties. Output shape
    /// `[1]`, scale 0.
    ArgMax,
    /// A public function of each element. The input's ring is that of the table's index.
    LookUp(Table),
}

impl Op {
    /// Name used in errors and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::Conv2d(_) => "Conv2d",
            Self::Linear(_) => "Linear",
            Self::Relu => "Relu",
            Self::MaxPool(_) => "MaxPool",
            Self::SumPool(_) => "SumPool",
            Self::Add => "Add",
            Self::Sub => "Sub",
            Self::AddConst { .. } => "AddConst",
            Self::MulConst { .. } => "MulConst",
            Self::Truncate { .. } => "Truncate",
            Self::ShiftLeft { .. } => "ShiftLeft",
            Self::Widen => "Widen",
            Self::Concat => "Concat",
            Self::Slice(_) => "Slice",
            Self::Pad { .. } => "Pad",
            Self::Reshape => "Reshape",
            Self::Transpose { .. } => "Transpose",
            Self::LookUp(table) => table.function.name(),
            Self::ArgMax => "ArgMax",
        }
    }

    /// Public facts about the weights, if the operation has any.
    pub fn facts(&self) -> Option<WeightFacts> {
        match self {
            Self::Conv2d(c) => Some(c.weights),
            Self::Linear(l) => Some(l.weights),
            _ => None,
        }
    }

    /// Number of inputs: lowest and highest.
    pub fn arity(&self) -> (usize, usize) {
        match self {
            Self::Input => (0, 0),
            Self::Add | Self::Sub => (2, 2),
            Self::Concat => (1, usize::MAX),
            _ => (1, 1),
        }
    }
}

/// Shape of the result of `op` on inputs of these shapes. Only `Input` and `Reshape` need `declared`, the
/// shape that the node states.
///
/// # Errors
/// A sentence that says why there is no such shape.
pub fn infer_shape(op: &Op, inputs: &[&[usize]], declared: &[usize]) -> Result<Vec<usize>, String> {
    let shape = inputs.first().copied().unwrap_or(&[]);
    match op {
        Op::Input => Ok(declared.to_vec()),
        Op::Conv2d(c) => geometry::conv_shape(&c.geometry, shape),
        Op::Linear(l) => geometry::dense_shape(l.out_features, shape),
        Op::MaxPool(w) | Op::SumPool(w) => geometry::pool_shape(w, shape),
        Op::LookUp(table) => table.check().map(|()| shape.to_vec()),
        Op::Relu | Op::AddConst { .. } | Op::Truncate { .. } | Op::ShiftLeft { .. } | Op::Widen => Ok(shape.to_vec()),
        Op::MulConst { factors, .. } => {
            let spatial: usize = shape.get(1..).unwrap_or(&[]).iter().product();
            if factors.len() != 1 && factors.len() != spatial {
                return Err(format!("{} factors for {spatial} positions", factors.len()));
            }
            Ok(shape.to_vec())
        }
        Op::Add | Op::Sub => geometry::pair_shape(inputs),
        Op::Concat => geometry::concat_shape(inputs),
        Op::Slice(s) => geometry::slice_shape(s, shape),
        Op::Pad { before, after } => geometry::pad_shape(before, after, shape),
        Op::Reshape => geometry::reshape_shape(declared, shape),
        Op::Transpose { perm } => geometry::transpose_shape(perm, shape),
        Op::ArgMax => geometry::arg_max_shape(shape),
    }
}

/// Two-argument maxima of a max pool along rows first and then along columns. A window of `k` real elements
/// needs `k - 1`; padded positions need none. Shapes are `[C, H, W]`.
pub fn max_comparisons(window: &Window, input: &[usize], output: &[usize]) -> u64 {
    let [rows, columns] = [0, 1].map(|axis| comparisons_along(window, input, output, axis));
    input[0] as u64 * (input[1] as u64 * columns + output[2] as u64 * rows)
}

fn comparisons_along(window: &Window, input: &[usize], output: &[usize], axis: usize) -> u64 {
    let counts = (0..output[axis + 1]).map(|o| {
        let start = o * window.stride[axis];
        let low = start.max(window.pads[axis]);
        let high = (start + window.kernel[axis]).min(window.pads[axis] + input[axis + 1]);
        high.saturating_sub(low).saturating_sub(1) as u64
    });
    counts.sum()
}
