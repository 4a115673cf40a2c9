//! NumPy `.npz` files: zip archives of `.npy` files (`numpy.savez`, `savez_compressed`).

use std::io::{Cursor, Read};

use tacit_foreign::plain;
use zip::ZipArchive;

use crate::GraphError;
use crate::npy::{self, Npy};

/// Largest number of unpacked bytes of an array per byte of its archive, in addition to [`FREE_BYTES`].
/// Zeros compress a thousandfold, measured data about tenfold.
const MAX_RATIO: u64 = 100;
/// Size that an array may have in any archive, in bytes.
const FREE_BYTES: u64 = 64 << 20;

/// Whether a file begins like an archive.
pub fn is_npz(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Reads the array `array_name`; without a name, the only array.
///
/// # Errors
/// Names the archive's fault, or the arrays to choose from. Also the errors of [`npy::read`], and
/// an array that would be much larger than its archive.
pub fn read(bytes: &[u8], array_name: Option<&str>) -> Result<Npy, GraphError> {
    read_if(bytes, array_name, |_| Ok(()))
}

/// Reads an array as [`read`] does, if `accepted` accepts its shape. `accepted` is called before
/// the elements are unpacked.
///
/// # Errors
/// As [`read`], and the errors of `accepted`.
pub fn read_if(
    bytes: &[u8],
    array_name: Option<&str>,
    accepted: impl Fn(&[usize]) -> Result<(), String>,
) -> Result<Npy, GraphError> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| fail(e.to_string()))?;
    let files: Result<Vec<String>, _> = archive.file_names().map(|name| name.map(|n| n.into_owned())).collect();
    let files = files.map_err(|e| fail(e.to_string()))?;
    let names: Vec<&str> = files.iter().filter_map(|n| n.strip_suffix(".npy")).collect();
    let name_list = names.join(", ");
    let name = match (array_name, names.as_slice()) {
        (Some(name), all) if all.contains(&name) => name,
        (Some(name), _) => return Err(fail(format!("it holds no array `{name}`; there are: {name_list}"))),
        (None, &[only]) => only,
        (None, []) => return Err(fail("it holds no array".into())),
        (None, _) => {
            return Err(fail(format!("it holds several arrays, name one as FILE.npz:NAME; there are: {name_list}")));
        }
    };
    let mut member = archive.by_name(&format!("{name}.npy")).map_err(|e| fail(format!("array `{name}`: {e}")))?;
    // The archive's stated sizes are not trusted. The array's own header counts, and the number of
    // elements must match it.
    let mut unpacked = Vec::new();
    unpack(&mut member, name, npy::MAX_HEADER as u64, &mut unpacked)?;
    let layout = npy::Layout::read(&unpacked)?;
    accepted(&layout.shape).map_err(|what| fail(format!("array `{name}`: {what}")))?;
    let (size, max_bytes) = (layout.file_bytes(), FREE_BYTES + MAX_RATIO * bytes.len() as u64);
    if size > max_bytes {
        let packed = bytes.len();
        return Err(fail(format!(
            "array `{name}` would have {size} bytes in an archive of {packed}, the limit is {max_bytes}: save it unpacked (.npy)"
        )));
    }
    // One further byte shows whether there are too many.
    let missing = (size + 1).saturating_sub(unpacked.len() as u64);
    unpack(&mut member, name, missing, &mut unpacked)?;
    npy::read(&unpacked)
}

/// Appends at most `max_bytes` further bytes of array `name` to `unpacked`.
fn unpack(member: &mut impl Read, name: &str, max_bytes: u64, unpacked: &mut Vec<u8>) -> Result<usize, GraphError> {
    let outcome = member.by_ref().take(max_bytes).read_to_end(unpacked);
    outcome.map_err(|e| fail(format!("array `{name}` cannot be unpacked: {e}")))
}

/// Returns the error for an archive, with its names escaped.
fn fail(what: String) -> GraphError {
    GraphError::Npz { what: plain(&what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::CompressionMethod;
    use zip::write::{SimpleFileOptions, ZipWriter};

    fn archive(arrays: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in arrays {
            zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn reads_the_only_array_or_the_named_one() {
        let (a, b) = (npy::write(&[2], &[1.0, 2.0]), npy::write(&[1, 3], &[3.0, 4.0, 5.0]));
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let single = archive(&[("arr_0.npy", &a)], method);
            assert!(is_npz(&single) && !is_npz(&a));
            assert_eq!(read(&single, None).unwrap().data, [1.0, 2.0]);
            let two = archive(&[("x.npy", &a), ("y.npy", &b)], method);
            assert_eq!(read(&two, Some("y")).unwrap().shape, [1, 3]);
            let message = read(&two, None).unwrap_err().to_string();
            assert!(message.contains("x, y") && message.contains("FILE.npz:NAME"), "{message}");
            assert!(read(&two, Some("z")).unwrap_err().to_string().contains("there are: x, y"));
        }
        let none = archive(&[("readme.txt", b"nothing")], CompressionMethod::Stored);
        assert!(read(&none, None).unwrap_err().to_string().contains("no array"));
    }

    #[test]
    fn the_shape_is_checked_before_an_array_is_unpacked() {
        // Only the header of a 1 GiB array.
        let mut promise = npy::write(&[4_194_304, 64], &[]);
        promise.extend(vec![0; 1 << 20]);
        let bomb = archive(&[("x.npy", &promise)], CompressionMethod::Deflated);
        assert!(bomb.len() < 4000, "{}", bomb.len());
        let error = read(&bomb, None).unwrap_err().to_string();
        assert!(error.contains("1073741952 bytes in an archive of"), "{error}");
        let refused = |shape: &[usize]| Err(format!("{shape:?} does not fit"));
        let small = archive(&[("x.npy", &npy::write(&[2], &[1.0, 2.0]))], CompressionMethod::Deflated);
        let error = read_if(&small, None, refused).unwrap_err().to_string();
        assert!(error.contains("array `x`: [2] does not fit"), "{error}");
        // More elements than the header states, and a name with terminal control characters.
        let mut long = npy::write(&[2], &[1.0, 2.0]);
        long.extend(vec![0; 1 << 24]);
        let long = archive(&[("x\u{1b}[2J.npy", &long)], CompressionMethod::Deflated);
        assert!(read(&long, None).unwrap_err().to_string().contains("do not fit"));
        let error = read(&long, Some("y")).unwrap_err().to_string();
        assert!(error.contains("there are: x\u{fffd}[2J"), "{error}");
    }

    #[test]
    fn a_damaged_archive_is_an_error() {
        let file = archive(&[("x.npy", &npy::write(&[64], &[0.5; 64]))], CompressionMethod::Deflated);
        for position in 0..file.len() {
            assert!(read(&file[..position], None).is_err(), "cut at {position}");
            let mut changed = file.clone();
            changed[position] ^= 0x55;
            // Many bytes do not affect the content; the content must not change without an error.
            if let Ok(array) = read(&changed, None) {
                assert_eq!(array.data, [0.5; 64], "byte {position}");
            }
        }
    }
}
