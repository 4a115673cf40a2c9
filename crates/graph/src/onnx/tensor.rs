//! Constant tensors of an ONNX file.

use crate::geometry::checked_elements;
use crate::onnx::proto::TensorProto;
use crate::{GraphError, MAX_STORED_ELEMENTS};

/// A constant: shape as in the file (with any batch axis) and elements, row major.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// Lengths of the axes; empty for a scalar.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Data,
}

/// Elements of a constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Real numbers, all finite.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
}

impl Constant {
    /// A list of integers.
    pub fn ints(values: Vec<i64>) -> Self {
        Self { shape: vec![values.len()], data: Data::Ints(values) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Floats(v) => v.len(),
            Data::Ints(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as real numbers.
    pub fn to_floats(&self) -> Vec<f32> {
        match &self.data {
            Data::Floats(v) => v.clone(),
            Data::Ints(v) => v.iter().map(|&i| i as f32).collect(),
        }
    }

    /// The elements as integers, if they are.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Ints(v) => Some(v),
            Data::Floats(_) => None,
        }
    }
}

/// Decodes a tensor, checking its type, shape, length and that all real numbers are finite.
///
/// # Errors
/// Says what is wrong with which tensor.
pub fn decode(t: &TensorProto) -> Result<Constant, GraphError> {
    let fail = |what: String| GraphError::OnnxFile { what: format!("tensor `{}`: {what}", t.name) };
    if t.data_location == 1 {
        return Err(fail(
            "its data lies in another file (external data); save the model as one file \
             (onnx.save_model(..., save_as_external_data=False))"
                .into(),
        ));
    }
    let shape: Vec<usize> = t
        .dims
        .iter()
        .map(|&d| usize::try_from(d).map_err(|_| fail(format!("shape {:?}", t.dims))))
        .collect::<Result<_, _>>()?;
    let n = checked_elements(&shape)
        .filter(|&n| n <= MAX_STORED_ELEMENTS)
        .ok_or_else(|| fail(format!("shape {shape:?} has more than {MAX_STORED_ELEMENTS} elements")))?;
    let data = match t.data_type {
        1 => Data::Floats(pick(t, n, &t.float_data, f32::from_le_bytes).map_err(fail)?),
        11 => {
            let wide = pick(t, n, &t.double_data, f64::from_le_bytes).map_err(fail)?;
            Data::Floats(wide.into_iter().map(|x| x as f32).collect())
        }
        6 => {
            let narrow = pick(t, n, &t.int32_data, i32::from_le_bytes).map_err(fail)?;
            Data::Ints(narrow.into_iter().map(i64::from).collect())
        }
        7 => Data::Ints(pick(t, n, &t.int64_data, i64::from_le_bytes).map_err(fail)?),
        other => {
            return Err(fail(format!(
                "element type {other} is not supported (float, double, int32 and int64 are); convert the model to float32"
            )));
        }
    };
    if let Data::Floats(v) = &data
        && let Some(bad) = v.iter().position(|x| !x.is_finite())
    {
        return Err(fail(format!("element {bad} is {}", v[bad])));
    }
    Ok(Constant { shape, data })
}

/// The elements from the typed field or from `raw_data`; exactly `n` of them.
fn pick<T: Copy, const B: usize>(
    t: &TensorProto,
    n: usize,
    typed: &[T],
    from: impl Fn([u8; B]) -> T,
) -> Result<Vec<T>, String> {
    if typed.len() == n && t.raw_data.is_empty() {
        return Ok(typed.to_vec());
    }
    let (whole, rest) = t.raw_data.as_chunks::<B>();
    if !typed.is_empty() || whole.len() != n || !rest.is_empty() {
        return Err(format!(
            "shape {:?} needs {n} elements, the file holds {} typed ones and {} raw bytes",
            t.dims,
            typed.len(),
            t.raw_data.len()
        ));
    }
    Ok(whole.iter().map(|b| from(*b)).collect())
}
