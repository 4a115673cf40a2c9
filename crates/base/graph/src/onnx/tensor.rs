//! Constant tensors of an ONNX file.

use tacit_foreign::plain;

use super::budget::MAX_AXES;
use crate::geometry::checked_elements;
use crate::onnx::proto::TensorProto;
use crate::{GraphError, MAX_STORED_ELEMENTS};

/// A constant: the shape in the file (with any batch axis) and the elements, row major.
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

    /// The elements as integers, if they are integers.
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
/// Names the tensor and its fault.
pub fn decode(t: &TensorProto) -> Result<Constant, GraphError> {
    decode_tensor(t).map_err(|what| GraphError::OnnxFile { what: plain(&format!("tensor `{}`: {what}", t.name)) })
}

/// Decodes a tensor; an error does not name it.
fn decode_tensor(t: &TensorProto) -> Result<Constant, String> {
    if t.data_location == 1 {
        return Err(
            "its data lies in another file (external data), which only a model that is read from a folder can have; save it as one \
             file (onnx.save_model(..., save_as_external_data=False))"
                .into(),
        );
    }
    if t.dims.len() > MAX_AXES {
        return Err(format!("{} axes, the limit is {MAX_AXES}", t.dims.len()));
    }
    let shape: Vec<usize> = t
        .dims
        .iter()
        .map(|&d| usize::try_from(d).map_err(|_| format!("shape {:?}", t.dims)))
        .collect::<Result<_, _>>()?;
    let n = checked_elements(&shape)
        .filter(|&n| n <= MAX_STORED_ELEMENTS)
        .ok_or_else(|| format!("shape {shape:?} has more than {MAX_STORED_ELEMENTS} elements"))?;
    let data = match t.data_type {
        1 => Data::Floats(pick(t, n, &t.float_data, f32::from_le_bytes)?),
        11 => {
            let wide = pick(t, n, &t.double_data, f64::from_le_bytes)?;
            Data::Floats(wide.into_iter().map(|x| x as f32).collect())
        }
        10 => Data::Floats(halves(t, n)?.into_iter().map(half_to_float).collect()),
        16 => Data::Floats(halves(t, n)?.into_iter().map(|b| f32::from_bits(u32::from(b) << 16)).collect()),
        6 => {
            let narrow = pick(t, n, &t.int32_data, i32::from_le_bytes)?;
            Data::Ints(narrow.into_iter().map(i64::from).collect())
        }
        2 | 9 => Data::Ints(small(t, n, |[b]: [u8; 1]| i64::from(b))?),
        3 => Data::Ints(small(t, n, |b| i64::from(i8::from_le_bytes(b)))?),
        4 => Data::Ints(small(t, n, |b| i64::from(u16::from_le_bytes(b)))?),
        5 => Data::Ints(small(t, n, |b| i64::from(i16::from_le_bytes(b)))?),
        7 => Data::Ints(pick(t, n, &t.int64_data, i64::from_le_bytes)?),
        other => {
            return Err(format!(
                "element type {other} is not supported (floats of 16, 32 and 64 bits and integers are); convert the model to float32"
            ));
        }
    };
    if let Data::Floats(v) = &data
        && let Some(bad) = v.iter().position(|x| !x.is_finite())
    {
        return Err(format!("element {bad} is {}", v[bad]));
    }
    Ok(Constant { shape, data })
}

/// Returns exactly `n` elements from the typed field or from `raw_data`.
fn pick<T: Copy, const B: usize>(
    t: &TensorProto,
    n: usize,
    typed: &[T],
    convert: impl Fn([u8; B]) -> T,
) -> Result<Vec<T>, String> {
    if typed.len() == n && t.raw_data.is_empty() {
        return Ok(typed.to_vec());
    }
    let (elements, remainder) = t.raw_data.as_chunks::<B>();
    if !typed.is_empty() || elements.len() != n || !remainder.is_empty() {
        return Err(format!(
            "shape {:?} needs {n} elements, the file holds {} typed ones and {} raw bytes",
            t.dims,
            typed.len(),
            t.raw_data.len()
        ));
    }
    Ok(elements.iter().map(|b| convert(*b)).collect())
}

/// Returns integers of at most 16 bits, from raw bytes or from one element of `int32_data` each.
fn small<const B: usize>(t: &TensorProto, n: usize, convert: impl Fn([u8; B]) -> i64) -> Result<Vec<i64>, String> {
    if t.raw_data.is_empty() {
        return Ok(pick(t, n, &t.int32_data, i32::from_le_bytes)?.into_iter().map(i64::from).collect());
    }
    pick(t, n, &[], convert)
}

fn halves(t: &TensorProto, n: usize) -> Result<Vec<u16>, String> {
    let wide = small(t, n, |b| i64::from(u16::from_le_bytes(b)))?;
    wide.into_iter().map(|v| u16::try_from(v).map_err(|_| format!("{v} are not the bits of a 16-bit float"))).collect()
}

/// Returns the value of an IEEE 754 16-bit float.
fn half_to_float(bits: u16) -> f32 {
    let (sign, exponent, mantissa) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 1023) / 1024.0);
    let size = match exponent {
        0 => mantissa * (-14f32).exp2(),
        31 if mantissa == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + mantissa) * ((exponent - 15) as f32).exp2(),
    };
    if sign == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_follow_ieee_754() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
        ] {
            assert_eq!(half_to_float(bits), value, "{bits:04x}");
        }
        assert_eq!(half_to_float(0x7c00), f32::INFINITY);
        assert!(half_to_float(0x7c01).is_nan());
    }

    #[test]
    fn narrow_types_come_from_bytes_and_from_integers() {
        let t = |data_type, raw_data: &[u8], int32_data: &[i32]| TensorProto {
            dims: vec![2],
            data_type,
            raw_data: raw_data.to_vec(),
            int32_data: int32_data.to_vec(),
            ..TensorProto::default()
        };
        let floats = |t: &TensorProto| decode(t).unwrap().to_floats();
        assert_eq!(floats(&t(10, &[0, 0x3c, 0, 0xc0], &[])), [1.0, -2.0]);
        assert_eq!(floats(&t(10, &[], &[0x3c00, 0xc000])), [1.0, -2.0]);
        assert_eq!(floats(&t(16, &[0x80, 0x3f, 0, 0xc0], &[])), [1.0, -2.0]);
        assert_eq!(floats(&t(2, &[7, 255], &[])), [7.0, 255.0]);
        assert_eq!(floats(&t(3, &[7, 255], &[])), [7.0, -1.0]);
        assert_eq!(floats(&t(3, &[], &[7, -1])), [7.0, -1.0]);
        assert!(decode(&t(10, &[0, 0x3c, 0], &[])).is_err());
        assert!(decode(&t(10, &[], &[70_000, 0])).is_err());
    }
}
