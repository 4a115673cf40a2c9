//! The network's input: its shape, its batch and its element type.

use super::{file_error, proto};
use crate::{GraphError, Interval};

/// The first axis of the input in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Batch {
    /// No batch axis, or a batch of 1.
    One,
    /// Any number of inputs.
    Any,
    /// A fixed number of inputs.
    Many(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Element {
    Float,
    Unsigned8,
    Signed8,
}

impl Element {
    pub fn is_integer(self) -> bool {
        self != Self::Float
    }

    /// Range of the element type; `None` for floats.
    pub fn range(self) -> Option<Interval<f32>> {
        match self {
            Self::Float => None,
            Self::Unsigned8 => Some(Interval { low: 0.0, high: 255.0 }),
            Self::Signed8 => Some(Interval { low: -128.0, high: 127.0 }),
        }
    }
}

pub(super) fn input_rank(input: &proto::ValueInfoProto) -> usize {
    let shape = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).and_then(|t| t.shape.as_ref());
    shape.map_or(0, |s| s.dim.len())
}

/// Returns the shape of one input (the batch counts as 1), the meaning of its first axis, and its
/// element type.
pub(super) fn input_type(input: &proto::ValueInfoProto) -> Result<(Vec<usize>, Batch, Element), GraphError> {
    let tensor =
        input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).ok_or_else(|| fault(input, "is not a tensor"))?;
    let element = match tensor.elem_type {
        1 | 10 | 11 | 16 => Element::Float,
        2 => Element::Unsigned8,
        3 => Element::Signed8,
        6 | 7 => {
            return Err(fault(
                input,
                "its elements are integers, as of words or categories: looking secret indices up is not supported; give the network \
             real numbers (one-hot or embedded in front)",
            ));
        }
        _ => {
            return Err(fault(
                input,
                "its elements are not real numbers or 8-bit integers; convert the model to float32",
            ));
        }
    };
    let dims = &tensor.shape.as_ref().ok_or_else(|| fault(input, "states no shape"))?.dim;
    if dims.is_empty() || dims.len() > MAX_RANK {
        return Err(fault(
            input,
            &format!("it has {} axes: 1 to {MAX_RANK} are supported, with the batch first", dims.len()),
        ));
    }
    let batch = match (dims.len(), length(&dims[0])) {
        (1, Some(_)) | (_, Some(1)) => Batch::One,
        (_, Some(n)) => Batch::Many(n),
        // PaddlePaddle's exporter writes -1 for a length without a name.
        (_, None) if matches!(dims[0].dim_value, 0 | -1) => Batch::Any,
        _ => return Err(fault(input, "its first axis has a negative length")),
    };
    let lengths = dims.iter().enumerate().map(|(i, d)| match length(d) {
        Some(_) if i == 0 && dims.len() > 1 => Ok(1),
        None if i == 0 => Ok(1),
        Some(n) => Ok(n),
        None => Err(fault(
            input,
            "only the batch axis may be symbolic: fix the other axes when exporting, or with `python -m \
             onnxruntime.tools.make_dynamic_shape_fixed --input_name NAME --input_shape 1,..`",
        )),
    });
    Ok((lengths.collect::<Result<_, _>>()?, batch, element))
}

fn length(d: &proto::DimensionProto) -> Option<usize> {
    usize::try_from(d.dim_value).ok().filter(|n| *n > 0)
}

fn fault(input: &proto::ValueInfoProto, what: &str) -> GraphError {
    file_error(format!("input `{}`: {what}", input.name))
}

/// Largest number of axes of an input.
const MAX_RANK: usize = 8;
