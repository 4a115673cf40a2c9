//! Reads files that the user names: regular files, up to a size limit.
use anyhow::Context;
use std::path::Path;
use tacit_foreign::file;

/// Most bytes of a text file: results of this program, experiments, recordings.
const MAX_TEXT: u64 = 1 << 30;

/// Reads a whole file of at most `max_bytes` bytes.
pub fn read(path: &Path, max_bytes: u64) -> anyhow::Result<Vec<u8>> {
    file::read(path, max_bytes).with_context(|| format!("reading {}", path.display()))
}

/// Reads a whole ONNX file.
pub fn read_onnx(path: &Path) -> anyhow::Result<Vec<u8>> {
    read(path, tacit_graph::onnx::MAX_FILE_BYTES as u64)
}

/// Reads a whole text file.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    file::read_text(path, MAX_TEXT).with_context(|| format!("reading {}", path.display()))
}
