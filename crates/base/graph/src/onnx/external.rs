//! Tensors whose elements are in a file beside the ONNX file (external data).

use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use tacit_foreign::file::open;
use tacit_foreign::plain;

use super::proto::TensorProto;
use super::tensor::{self, Constant};
use crate::{GraphError, MAX_STORED_ELEMENTS};

/// Decodes a tensor; elements in another file are read from `folder`.
///
/// # Errors
/// As [`tensor::decode`], and for a file that is missing, shorter than stated, or not inside the
/// folder.
pub fn decode(t: &TensorProto, folder: Option<&Path>) -> Result<Constant, GraphError> {
    match (t.data_location, folder) {
        (1, Some(folder)) => {
            let raw_data = read(t, folder)
                .map_err(|what| GraphError::OnnxFile { what: plain(&format!("tensor `{}`: {what}", t.name)) })?;
            tensor::decode(&TensorProto { data_location: 0, raw_data, external_data: vec![], ..t.clone() })
        }
        _ => tensor::decode(t),
    }
}

fn read(t: &TensorProto, folder: &Path) -> Result<Vec<u8>, String> {
    let location = entry(t, "location").ok_or("its data lies in another file, which is not named")?;
    let inside = Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(format!("its data lies in `{location}`: only files in the folder of the ONNX file are read"));
    }
    let path = folder.join(location);
    // A link may lead out of the folder.
    let (real, root) = (
        path.canonicalize().map_err(|e| io_message(&path, e))?,
        folder.canonicalize().map_err(|e| io_message(&path, e))?,
    );
    if !real.starts_with(&root) {
        return Err(format!("its data lies in {}, outside of the folder of the ONNX file", real.display()));
    }
    let mut file = open(&real).map_err(|e| io_message(&path, e))?;
    let size = file.metadata().map_err(|e| io_message(&path, e))?;
    let offset = number(t, "offset")?.unwrap_or(0);
    let length = number(t, "length")?.unwrap_or(size.len().saturating_sub(offset));
    if offset.checked_add(length).is_none_or(|end| end > size.len()) {
        return Err(format!(
            "its data is {length} bytes from {offset} of {}, which holds {}",
            path.display(),
            size.len()
        ));
    }
    if length > 8 * MAX_STORED_ELEMENTS as u64 {
        return Err(format!("its data is {length} bytes, the limit is {}", 8 * MAX_STORED_ELEMENTS));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|e| e.to_string())?];
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes)).map_err(|e| io_message(&path, e))?;
    Ok(bytes)
}

fn entry<'a>(t: &'a TensorProto, key: &str) -> Option<&'a str> {
    t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str())
}

fn number(t: &TensorProto, key: &str) -> Result<Option<u64>, String> {
    entry(t, key).map(|v| v.parse::<u64>().map_err(|_| format!("its {key} is `{v}`"))).transpose()
}

fn io_message(path: &Path, e: std::io::Error) -> String {
    format!("its data in {}: {e}; keep that file beside the ONNX file", path.display())
}
