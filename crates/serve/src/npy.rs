//! NumPy's `.npy` arrays, as far as inputs need them: C order, little endian, `f4 f8 u1 i4 i8`.
use std::path::Path;

use crate::ServeError;

/// Most bytes that an array file may have.
pub const MAX_BYTES: u64 = 4 << 30;

/// An array of real numbers in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Extent of each axis.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Vec<f32>,
}

/// Reads an array.
///
/// # Errors
/// Names what in the file is not supported or does not add up.
pub fn read(path: &Path) -> Result<Array, ServeError> {
    let fail = |what: String| ServeError::Input { path: path.to_owned(), what };
    let size = std::fs::metadata(path).map_err(ServeError::file("reading", path))?.len();
    if size > MAX_BYTES {
        return Err(fail(format!("{size} bytes, the limit is {MAX_BYTES}")));
    }
    parse(&std::fs::read(path).map_err(ServeError::file("reading", path))?).map_err(fail)
}

/// Parses an array file's bytes.
///
/// # Errors
/// Says what is not supported or does not add up.
pub fn parse(bytes: &[u8]) -> Result<Array, String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("this is no .npy file")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("the header is cut short")?;
    let (len, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, r)| (u16::from_le_bytes(*n) as usize, r)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(n, r)| (u32::from_le_bytes(*n) as usize, r)),
        other => return Err(format!(".npy version {other} is not supported (1 to 3 are)")),
    }
    .ok_or("the header is cut short")?;
    let (header, data) = rest.split_at_checked(len).ok_or("the header is cut short")?;
    let header = std::str::from_utf8(header).map_err(|_| "the header is no text")?;
    if !field(header, "fortran_order")?.starts_with("False") {
        return Err("Fortran order is not supported: save np.ascontiguousarray(x)".into());
    }
    let shape = shape(field(header, "shape")?)?;
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or("the shape is too large")?;
    let kind = field(header, "descr")?.trim_start_matches(['\'', '"']);
    let kind = kind.split(['\'', '"']).next().unwrap_or_default();
    Ok(Array { values: elements(kind, data, count)?, shape })
}

fn elements(kind: &str, data: &[u8], count: usize) -> Result<Vec<f32>, String> {
    fn all<const N: usize>(data: &[u8], count: usize, read: impl Fn([u8; N]) -> f32) -> Result<Vec<f32>, String> {
        let (chunks, rest) = data.as_chunks::<N>();
        if chunks.len() != count || !rest.is_empty() {
            return Err(format!("{} bytes of data for {count} elements of {N} bytes", data.len()));
        }
        Ok(chunks.iter().map(|c| read(*c)).collect())
    }
    match kind {
        "<f4" => all(data, count, f32::from_le_bytes),
        "<f8" => all(data, count, |b| f64::from_le_bytes(b) as f32),
        "|u1" => all(data, count, |[b]| f32::from(b)),
        "<i4" => all(data, count, |b| i32::from_le_bytes(b) as f32),
        "<i8" => all(data, count, |b| i64::from_le_bytes(b) as f32),
        other => Err(format!("element type `{other}` is not supported: save x.astype(np.float32)")),
    }
}

/// What follows `'name':` in the header's dictionary.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str, String> {
    let missing = || format!("the header has no `{name}`");
    let (_, after) = header.split_once(&format!("'{name}'")).ok_or_else(missing)?;
    Ok(after.trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start())
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let bad = || "the shape is no tuple of numbers".to_owned();
    let inside = text.strip_prefix('(').and_then(|t| t.split_once(')')).ok_or_else(bad)?.0;
    let numbers = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().map_err(|_| bad())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend_from_slice(&(header.len() as u16).to_le_bytes());
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(data);
        out
    }

    #[test]
    fn arrays_of_all_supported_types_are_read() {
        let header = |k: &str| format!("{{'descr': '{k}', 'fortran_order': False, 'shape': (2, 1), }}   \n");
        let want = Array { shape: vec![2, 1], values: vec![1.0, 200.0] };
        let f4: Vec<u8> = [1f32, 200.].iter().flat_map(|v| v.to_le_bytes()).collect();
        let f8: Vec<u8> = [1f64, 200.].iter().flat_map(|v| v.to_le_bytes()).collect();
        let i8: Vec<u8> = [1i64, 200].iter().flat_map(|v| v.to_le_bytes()).collect();
        for (kind, data) in [("<f4", f4), ("<f8", f8), ("<i8", i8), ("|u1", vec![1, 200])] {
            assert_eq!(parse(&file(&header(kind), &data)).unwrap(), want, "{kind}");
        }
        let scalar = "{'descr': '|u1', 'fortran_order': False, 'shape': ()}";
        assert_eq!(parse(&file(scalar, &[7])).unwrap(), Array { shape: vec![], values: vec![7.0] });
    }

    #[test]
    fn what_does_not_add_up_is_named() {
        let cases = [
            ("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "`>f4`"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", "Fortran"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "3 elements"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (x,)}", "tuple"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "too large"),
            ("{'descr': '<f4', 'shape': (1,)}", "fortran_order"),
        ];
        for (header, part) in cases {
            let error = parse(&file(header, &[0; 4])).unwrap_err();
            assert!(error.contains(part), "{header}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_result(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..100, b in any::<u8>()) {
            let _ = parse(&bytes);
            let mut good = file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", &[0; 4]);
            let at = at % good.len();
            good[at] = b;
            let _ = parse(&good);
        }
    }
}
