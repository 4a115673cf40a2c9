//! Tensors of both protocols: a name, a datatype, a shape, values in row-major order.
use crate::ApiError;

/// Most axes of a tensor.
pub(crate) const MAX_AXES: usize = 8;

/// Values of a tensor, by datatype.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// `FP32`.
    F32(Vec<f32>),
    /// `FP64`.
    F64(Vec<f64>),
    /// `UINT8`.
    U8(Vec<u8>),
    /// `INT64`.
    I64(Vec<i64>),
    /// `BYTES`.
    Text(Vec<String>),
}

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Name of the tensor.
    pub name: String,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Values in row-major order.
    pub values: Values,
}

impl Values {
    /// Name of the datatype.
    #[must_use]
    pub fn datatype(&self) -> &'static str {
        match self {
            Self::F32(_) => "FP32",
            Self::F64(_) => "FP64",
            Self::U8(_) => "UINT8",
            Self::I64(_) => "INT64",
            Self::Text(_) => "BYTES",
        }
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::U8(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::Text(v) => v.len(),
        }
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts input values from numbers of a text.
    ///
    /// # Errors
    /// Inputs cannot have the datatype, or a number does not fit it.
    pub fn from_numbers(datatype: &str, numbers: Vec<f64>) -> Result<Self, ApiError> {
        let values = match datatype {
            "FP32" => Self::F32(numbers.iter().map(|&v| v as f32).collect()),
            "FP64" => Self::F64(numbers),
            "UINT8" => {
                let bytes = numbers.iter().enumerate().map(|(i, &v)| pixel(v).ok_or_else(|| no_pixel(i)));
                Self::U8(bytes.collect::<Result<_, _>>()?)
            }
            datatype => return Err(unsupported_datatype(datatype)),
        };
        values.check_finite()
    }

    /// Converts pixels from whole numbers.
    ///
    /// # Errors
    /// A number is larger than 255.
    pub(crate) fn from_whole(numbers: &[u32]) -> Result<Self, ApiError> {
        let bytes = numbers.iter().enumerate().map(|(i, &v)| u8::try_from(v).map_err(|_| no_pixel(i)));
        Ok(Self::U8(bytes.collect::<Result<_, _>>()?))
    }

    /// Converts input values from bytes, little endian.
    ///
    /// # Errors
    /// Inputs cannot have the datatype, the last value is incomplete, or a value is not a number.
    pub fn from_bytes(datatype: &str, bytes: &[u8]) -> Result<Self, ApiError> {
        let size = match datatype {
            "FP32" => 4,
            "FP64" => 8,
            "UINT8" => 1,
            datatype => return Err(unsupported_datatype(datatype)),
        };
        if !bytes.len().is_multiple_of(size) {
            return Err(ApiError::Bad(format!("{} bytes are no whole number of {datatype}", bytes.len())));
        }
        let values = match size {
            4 => Self::F32(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
            8 => Self::F64(bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect()),
            _ => Self::U8(bytes.to_vec()),
        };
        values.check_finite()
    }

    /// Converts all values to a model's input.
    ///
    /// # Errors
    /// Inputs cannot have this datatype, or a value is too large for `FP32`.
    pub fn into_f32(self) -> Result<Vec<f32>, ApiError> {
        let narrowed = match self {
            Self::F32(values) => Self::F32(values),
            Self::F64(values) => Self::F32(values.into_iter().map(|v| v as f32).collect()),
            Self::U8(values) => Self::F32(values.into_iter().map(f32::from).collect()),
            unsupported => return Err(unsupported_datatype(unsupported.datatype())),
        };
        match narrowed.check_finite()? {
            Self::F32(values) => Ok(values),
            _ => unreachable!("narrowed above"),
        }
    }

    /// Encodes the values: little endian, each text after its length in four bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::F64(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::U8(v) => v.clone(),
            Self::I64(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::Text(v) => v.iter().flat_map(|t| [&(t.len() as u32).to_le_bytes(), t.as_bytes()].concat()).collect(),
        }
    }

    /// Returns the values if all are finite.
    pub(crate) fn check_finite(self) -> Result<Self, ApiError> {
        let index = match &self {
            Self::F32(v) => v.iter().position(|v| !v.is_finite()),
            Self::F64(v) => v.iter().position(|v| !v.is_finite()),
            _ => None,
        };
        match index {
            Some(i) => Err(ApiError::Bad(format!("value {i} is not finite (NaN, infinite, or too large for FP32)"))),
            None => Ok(self),
        }
    }
}

pub(crate) fn unsupported_datatype(datatype: &str) -> ApiError {
    ApiError::Bad(format!("datatype `{}` is not taken: FP32, FP64 and UINT8 (pixels) are", short(datatype)))
}

/// Shortens a name from a peer, so that a message may quote it.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}

/// Number of elements of a tensor, from a peer's shape.
///
/// # Errors
/// A tensor here cannot have this shape.
pub(crate) fn elements(shape: &[usize]) -> Result<usize, ApiError> {
    let count = shape.iter().try_fold(1usize, |n, &axis| n.checked_mul(axis));
    match count.filter(|_| shape.len() <= MAX_AXES) {
        Some(count) => Ok(count),
        None => Err(ApiError::Bad("the shape has too many axes or values".into())),
    }
}

fn pixel(v: f64) -> Option<u8> {
    (v.fract() == 0.0 && (0.0..=255.0).contains(&v)).then_some(v as u8)
}

fn no_pixel(i: usize) -> ApiError {
    ApiError::Bad(format!("value {i} is no number of datatype UINT8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_agree() {
        let numbers = Values::from_numbers("FP32", vec![1.5, -2.0]).unwrap();
        assert_eq!(Values::from_bytes("FP32", &numbers.to_bytes()).unwrap(), numbers);
        let wide = Values::from_numbers("FP64", vec![1.5, -2.0]).unwrap();
        assert_eq!(Values::from_bytes("FP64", &wide.to_bytes()).unwrap(), wide);
        assert_eq!(wide.into_f32().unwrap(), [1.5, -2.0]);
        let pixels = Values::from_numbers("UINT8", vec![0.0, 255.0]).unwrap();
        assert_eq!(pixels.to_bytes(), [0, 255]);
        assert_eq!(pixels.into_f32().unwrap(), [0.0, 255.0]);
        assert_eq!(Values::Text(vec!["ab".into()]).to_bytes(), [2, 0, 0, 0, b'a', b'b']);
    }

    #[test]
    fn rejects_values_outside_datatype() {
        for numbers in [vec![256.0], vec![-1.0], vec![0.5], vec![f64::NAN]] {
            assert!(Values::from_numbers("UINT8", numbers).is_err());
        }
        assert!(Values::from_numbers("FP32", vec![1e39]).is_err(), "infinite as FP32");
        assert!(Values::from_numbers("FP64", vec![1e39]).unwrap().into_f32().is_err());
        assert!(Values::from_bytes("FP32", &f32::NAN.to_le_bytes()).is_err());
        assert!(Values::from_bytes("FP64", &f64::INFINITY.to_le_bytes()).is_err());
        assert!(Values::from_bytes("FP32", &[0; 5]).is_err());
        for datatype in ["INT8", "BYTES", "FP16", ""] {
            assert!(Values::from_numbers(datatype, vec![1.0]).is_err());
            assert!(Values::from_bytes(datatype, &[1]).is_err());
        }
        assert!(elements(&[usize::MAX, 2]).is_err());
        assert!(elements(&[1; 9]).is_err());
        assert_eq!(elements(&[2, 3]), Ok(6));
    }
}
