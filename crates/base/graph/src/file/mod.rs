//! The `.tacit` model file: the owner's float model, private as a whole.
//!
//! ```text
//! magic "TACITMDL" | version u32 | three times: length u64, BLAKE3 32
//! structure:   postcard of identity, interface, output factor, notes, and the nodes without their numbers
//! weights:     f32 of all nodes in order: weights, then bias (factors, then addends)
//! calibration: f64 largest magnitudes by node | f64 mean squares by node | f32 samples | f32 results
//! ```
//! Integers and floats are little endian, and floats are raw, so that reading a large model is one
//! pass over its bytes. The structure determines the count of numbers; readers compare it with the
//! section's length before they allocate memory. The digest of a model is that of its header, which
//! holds the digests of all sections.

mod record;

#[cfg(test)]
mod tests;

use std::io::{Read, Write};

use crate::{GraphError, Model};
use record::Structure;

/// First bytes of every model file.
pub const MAGIC: [u8; 8] = *b"TACITMDL";
/// Version written, and the only one read.
pub const VERSION: u32 = 4;
/// Bytes of the header: magic, version, length and digest of each section.
pub const HEADER_BYTES: usize = 8 + 4 + 3 * (8 + 32);
/// Names and largest sizes of the sections, in bytes.
pub const SECTIONS: [(&str, u64); 3] = [("structure", 64 << 20), ("weights", 4 << 30), ("calibration", 1 << 30)];
/// Largest file in bytes.
pub const MAX_BYTES: u64 = HEADER_BYTES as u64 + SECTIONS[0].1 + SECTIONS[1].1 + SECTIONS[2].1;

type Header = [u8; HEADER_BYTES];

/// Encodes a whole model file.
///
/// # Errors
/// If the model is inconsistent, or a section would exceed its limit.
pub fn write(model: &Model) -> Result<Vec<u8>, GraphError> {
    model.check()?;
    let mut out = vec![0; HEADER_BYTES];
    let mut section_ends = [HEADER_BYTES; 3];
    for (index, end) in section_ends.iter_mut().enumerate() {
        put_section(model, index, &mut out);
        *end = out.len();
    }
    let starts = [HEADER_BYTES, section_ends[0], section_ends[1]];
    let parts: [(u64, blake3::Hash); 3] = std::array::from_fn(|i| {
        let section = &out[starts[i]..section_ends[i]];
        (section.len() as u64, blake3::hash(section))
    });
    for ((length, _), (name, limit)) in parts.iter().zip(SECTIONS) {
        check_length(*length, limit, name)?;
    }
    out[..HEADER_BYTES].copy_from_slice(&header(&parts));
    Ok(out)
}

/// Reads a whole model file.
///
/// # Errors
/// Names the section and its fault: not a model file, another version, truncated or damaged, or an
/// inconsistent model.
pub fn read(bytes: &[u8]) -> Result<Model, GraphError> {
    let header = checked_header(bytes)?;
    let mut parts = [(0, [0; 32]); 3];
    for (i, part) in parts.iter_mut().enumerate() {
        let offset = 12 + 40 * i;
        *part = (u64::from_le_bytes(array(&header[offset..offset + 8])), array(&header[offset + 8..offset + 40]));
        check_length(part.0, SECTIONS[i].1, SECTIONS[i].0)?;
    }
    let mut unread = &bytes[HEADER_BYTES..];
    let body_len: u64 = parts.iter().map(|p| p.0).sum();
    if unread.len() as u64 != body_len {
        return Err(bad_header(format!(
            "the file holds {} bytes after the header, its header states {body_len}",
            unread.len()
        )));
    }
    let mut sections = [unread; 3];
    for ((section, (length, hash)), (name, _)) in sections.iter_mut().zip(parts).zip(SECTIONS) {
        (*section, unread) = unread.split_at(length as usize);
        if *blake3::hash(section).as_bytes() != hash {
            return Err(GraphError::File { section: name, what: "its digest is wrong: the file is damaged".into() });
        }
    }
    record::read(sections[0], sections[1], sections[2])
}

/// Reads the digest of the model in a file, from the header alone.
///
/// # Errors
/// If the file is no model file, has another version, or cannot be read.
pub fn digest_of_header(reader: &mut impl Read) -> Result<[u8; 32], GraphError> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    let read = reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|e| bad_header(e.to_string()))?;
    Ok(*blake3::hash(checked_header(&bytes)?).as_bytes())
}

/// Computes the digest of a model's file, without making the file.
pub(crate) fn digest(model: &Model) -> [u8; 32] {
    let parts = std::array::from_fn(|index| {
        let mut sum = Sum { length: 0, hasher: blake3::Hasher::new() };
        put_section(model, index, &mut sum);
        (sum.length, sum.hasher.finalize())
    });
    *blake3::hash(&header(&parts)).as_bytes()
}

struct Sum {
    length: u64,
    hasher: blake3::Hasher,
}

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.length += bytes.len() as u64;
        self.hasher.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn put_section(model: &Model, index: usize, out: &mut impl Write) {
    let written = match index {
        0 => out.write_all(&Structure::for_model(model).to_bytes()),
        1 => record::put_weights(model, out),
        _ => record::put_calibration(model, out),
    };
    written.expect("writing to memory does not fail");
}

fn header(parts: &[(u64, blake3::Hash); 3]) -> Header {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    for (length, hash) in parts {
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(hash.as_bytes());
    }
    array(&out)
}

fn checked_header(bytes: &[u8]) -> Result<&[u8], GraphError> {
    if bytes.len() < MAGIC.len() || bytes[..8] != MAGIC {
        return Err(bad_header("this is not a tacit model file"));
    }
    let version = bytes.get(8..12).ok_or_else(|| bad_header("the file is truncated"))?;
    let version = u32::from_le_bytes(array(version));
    if version != VERSION {
        return Err(GraphError::Version { found: version, supported: VERSION });
    }
    bytes.get(..HEADER_BYTES).ok_or_else(|| bad_header("the file is truncated"))
}

fn bad_header(what: impl Into<String>) -> GraphError {
    GraphError::File { section: "header", what: what.into() }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}

fn check_length(len: u64, limit: u64, section: &'static str) -> Result<(), GraphError> {
    if len > limit {
        return Err(GraphError::File { section, what: format!("{len} bytes, the limit is {limit}") });
    }
    Ok(())
}
