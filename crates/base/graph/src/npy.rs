//! NumPy `.npy` files: calibration samples and inputs.

use tacit_foreign::text::within;

use crate::geometry::checked_elements;
use crate::{GraphError, MAX_STORED_ELEMENTS};

/// A tensor from a `.npy` file.
#[derive(Debug, Clone, PartialEq)]
pub struct Npy {
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// Elements, row major.
    pub data: Vec<f32>,
    /// Whether the file held unsigned bytes: raw pixels, not yet normalised.
    pub is_bytes: bool,
}

/// Largest header in bytes.
pub const MAX_HEADER: usize = 1 << 16;

/// The layout in a file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// Type of the elements: `<f4`.
    kind: &'static str,
    /// Bytes of an element.
    size: usize,
    /// Offset of the first element.
    start: usize,
    /// Number of elements, at most [`MAX_STORED_ELEMENTS`].
    count: usize,
}

/// Supported element types, and their bytes.
const KINDS: [(&str, usize); 5] = [("<f4", 4), ("<f8", 8), ("|u1", 1), ("<i4", 4), ("<i8", 8)];

impl Layout {
    /// Reads the layout from the start of a file: [`MAX_HEADER`] bytes, or the whole file if it is
    /// shorter.
    ///
    /// # Errors
    /// Names the unsupported property.
    pub fn read(bytes: &[u8]) -> Result<Self, GraphError> {
        layout(bytes)
    }

    /// Length of the whole file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.start as u64 + self.size as u64 * self.count as u64
    }
}

fn layout(bytes: &[u8]) -> Result<Layout, GraphError> {
    if bytes.len() < 10 || &bytes[..6] != b"\x93NUMPY" {
        return Err(fail("this is not a .npy file"));
    }
    let (header_len, start): (usize, usize) = match bytes[6] {
        1 => (usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), 10),
        2 | 3 => match bytes.get(8..12) {
            Some(&[a, b, c, d]) => (u32::from_le_bytes([a, b, c, d]) as usize, 12),
            _ => return Err(fail("the header is truncated")),
        },
        v => return Err(GraphError::Npy { what: format!("version {v} is not supported") }),
    };
    let header = start
        .checked_add(header_len)
        .filter(|end| *end <= MAX_HEADER)
        .and_then(|end| bytes.get(start..end))
        .and_then(|h| std::str::from_utf8(h).ok())
        .ok_or_else(|| fail("the header is truncated"))?;
    if field(header, "fortran_order").is_none_or(|v| !v.starts_with("False")) {
        return Err(fail("only C order is supported (numpy.ascontiguousarray)"));
    }
    let shape = shape(header).ok_or_else(|| fail("the header states no shape"))?;
    let n = checked_elements(&shape).filter(|&n| n <= MAX_STORED_ELEMENTS).ok_or_else(|| GraphError::Npy {
        what: format!("shape {} has more than {MAX_STORED_ELEMENTS} elements", within(&format!("{shape:?}"), 100)),
    })?;
    let element_type = field(header, "descr").unwrap_or_default().trim_matches(['\'', '"']);
    let Some(&(kind, size)) = KINDS.iter().find(|(kind, _)| *kind == element_type) else {
        let what = format!("elements of type {} are not supported; use float32 or uint8", within(element_type, 40));
        return Err(GraphError::Npy { what });
    };
    Ok(Layout { shape, kind, size, start: start + header_len, count: n })
}

fn fail(what: &str) -> GraphError {
    GraphError::Npy { what: what.into() }
}

/// Reads version 1 to 3, C order, element types `<f4`, `<f8`, `|u1`, `<i4`, `<i8`.
///
/// # Errors
/// Names the property that is unsupported or does not fit.
pub fn read(bytes: &[u8]) -> Result<Npy, GraphError> {
    let Layout { shape, kind, start, count: n, .. } = layout(bytes)?;
    let body = &bytes[start..];
    let data = match kind {
        "<f4" => decode(body, n, f32::from_le_bytes),
        "<f8" => decode(body, n, |b| f64::from_le_bytes(b) as f32),
        "|u1" => decode(body, n, |[b]: [u8; 1]| f32::from(b)),
        "<i4" => decode(body, n, |b| i32::from_le_bytes(b) as f32),
        _ => decode(body, n, |b| i64::from_le_bytes(b) as f32),
    };
    let data = data.ok_or_else(|| GraphError::Npy {
        what: format!("shape {shape:?} and {} bytes of data do not fit", body.len()),
    })?;
    Ok(Npy { shape, data, is_bytes: kind == "|u1" })
}

/// Writes float32 elements.
pub fn write(shape: &[usize], data: &[f32]) -> Vec<u8> {
    let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data.iter().flat_map(|v| v.to_le_bytes()));
    out
}

fn decode<const B: usize>(body: &[u8], n: usize, convert: impl Fn([u8; B]) -> f32) -> Option<Vec<f32>> {
    let (elements, remainder) = body.as_chunks::<B>();
    (elements.len() == n && remainder.is_empty()).then(|| elements.iter().map(|b| convert(*b)).collect())
}

/// Returns the text of a header field up to the next comma outside parentheses.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let start = header.find(&format!("'{name}'"))?;
    let value = header[start..].split_once(':')?.1.trim_start();
    let end = if value.starts_with('(') { value.find(')')? + 1 } else { value.find([',', '}'])? };
    Some(value[..end].trim())
}

fn shape(header: &str) -> Option<Vec<usize>> {
    let list = field(header, "shape")?.strip_prefix('(')?.strip_suffix(')')?;
    list.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_array_survives_its_file() {
        let bytes = write(&[2, 3], &[1.0, 2.0, 3.0, -4.0, 5.5, 6.0]);
        let npy = read(&bytes).unwrap();
        assert_eq!((npy.shape, npy.data[3], npy.is_bytes), (vec![2, 3], -4.0, false));
        assert!(read(&bytes[..bytes.len() - 1]).unwrap_err().to_string().contains("do not fit"));
    }

    proptest! {
        #[test]
        fn damage_never_panics(cut in 0usize..200, position in 0usize..200, to in any::<u8>()) {
            let mut bytes = write(&[2, 3], &[0.0; 6]);
            let position = position % bytes.len();
            bytes[position] = to;
            let cut = cut.min(bytes.len());
            let _ = read(&bytes);
            let _ = read(&bytes[..cut]);
        }
    }
}
