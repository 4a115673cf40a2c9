//! Files that the user names: regular ones, of a size that is read.
use anyhow::Context;
use std::path::Path;
use tacit_foreign::file;

/// Most bytes of a text file: results of this program's, experiments, recordings.
const MAX_TEXT: u64 = 1 << 30;

/// All of a file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    file::read(path, most).with_context(|| format!("reading {}", path.display()))
}

/// All of an ONNX file.
pub fn read_onnx(path: &Path) -> anyhow::Result<Vec<u8>> {
    read(path, tacit_graph::onnx::MAX_FILE_BYTES as u64)
}

/// All of a text file.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    file::read_text(path, MAX_TEXT).with_context(|| format!("reading {}", path.display()))
}
