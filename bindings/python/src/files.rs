//! Reads and writes the owner's files, sealed or not.

use std::path::Path;

use pyo3::prelude::*;
use tacit_store::SealKey;
use tacit_store::seal::{self, Kind};
use zeroize::Zeroizing;

use crate::error::to_python;

/// Returns the seal key that a text names: a file, `env:VARIABLE` or `cmd:COMMAND`.
pub fn key(text: Option<&str>) -> PyResult<Option<SealKey>> {
    text.map(SealKey::from_text).transpose().map_err(to_python)
}

pub fn read(path: &Path, kind: Kind, key_text: Option<&str>, limit: u64) -> PyResult<Zeroizing<Vec<u8>>> {
    seal::read_file(path, kind, key(key_text)?.as_ref(), limit).map_err(to_python)
}

/// Writes a file that only its owner may read.
pub fn write(path: &Path, kind: Kind, key_text: Option<&str>, content: &[u8]) -> PyResult<()> {
    seal::write_file(path, kind, key(key_text)?.as_ref(), content).map_err(to_python)
}
