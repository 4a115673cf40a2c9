//! NumPy `.npz` files: zip archives of `.npy` files (`numpy.savez`, `savez_compressed`).

use std::io::{Cursor, Read};

use zip::ZipArchive;

use crate::npy::{self, Npy};
use crate::{GraphError, MAX_STORED_ELEMENTS};

/// Most bytes of one array, unpacked: elements of eight bytes and a header.
const MAX_UNPACKED: u64 = (MAX_STORED_ELEMENTS as u64) * 8 + (1 << 16);

/// Whether a file begins as an archive does.
pub fn is_npz(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Reads the array `wanted`, or the only one.
///
/// # Errors
/// Says what is wrong with the archive, or which arrays there are to choose from; as [`npy::read`].
pub fn read(bytes: &[u8], wanted: Option<&str>) -> Result<Npy, GraphError> {
    let fail = |what: String| GraphError::Npz { what };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| fail(e.to_string()))?;
    let files: Result<Vec<String>, _> = archive.file_names().map(|name| name.map(|n| n.into_owned())).collect();
    let files = files.map_err(|e| fail(e.to_string()))?;
    let names: Vec<&str> = files.iter().filter_map(|n| n.strip_suffix(".npy")).collect();
    let listed = names.join(", ");
    let name = match (wanted, names.as_slice()) {
        (Some(name), all) if all.contains(&name) => name,
        (Some(name), _) => return Err(fail(format!("it holds no array `{name}`; there are: {listed}"))),
        (None, &[only]) => only,
        (None, []) => return Err(fail("it holds no array".into())),
        (None, _) => {
            return Err(fail(format!("it holds several arrays, name one as FILE.npz:NAME; there are: {listed}")));
        }
    };
    let member = archive.by_name(&format!("{name}.npy")).map_err(|e| fail(format!("array `{name}`: {e}")))?;
    // What the archive says of its sizes is not relied on.
    let mut unpacked = Vec::new();
    member
        .take(MAX_UNPACKED + 1)
        .read_to_end(&mut unpacked)
        .map_err(|e| fail(format!("array `{name}` cannot be unpacked: {e}")))?;
    if unpacked.len() as u64 > MAX_UNPACKED {
        return Err(fail(format!("array `{name}` is larger than {MAX_UNPACKED} bytes")));
    }
    npy::read(&unpacked)
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
    fn one_array_is_read_and_of_several_the_named_one() {
        let (a, b) = (npy::write(&[2], &[1.0, 2.0]), npy::write(&[1, 3], &[3.0, 4.0, 5.0]));
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let one = archive(&[("arr_0.npy", &a)], method);
            assert!(is_npz(&one) && !is_npz(&a));
            assert_eq!(read(&one, None).unwrap().data, [1.0, 2.0]);
            let two = archive(&[("x.npy", &a), ("y.npy", &b)], method);
            assert_eq!(read(&two, Some("y")).unwrap().shape, [1, 3]);
            let which = read(&two, None).unwrap_err().to_string();
            assert!(which.contains("x, y") && which.contains("FILE.npz:NAME"), "{which}");
            assert!(read(&two, Some("z")).unwrap_err().to_string().contains("there are: x, y"));
        }
        let none = archive(&[("readme.txt", b"nothing")], CompressionMethod::Stored);
        assert!(read(&none, None).unwrap_err().to_string().contains("no array"));
    }

    #[test]
    fn a_damaged_archive_is_an_error() {
        let whole = archive(&[("x.npy", &npy::write(&[64], &[0.5; 64]))], CompressionMethod::Deflated);
        for at in 0..whole.len() {
            assert!(read(&whole[..at], None).is_err(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            // Many bytes say nothing about the content; it must not change without a word.
            if let Ok(array) = read(&changed, None) {
                assert_eq!(array.data, [0.5; 64], "byte {at}");
            }
        }
    }
}
