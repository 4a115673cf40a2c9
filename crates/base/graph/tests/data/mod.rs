//! The shared data folder: real models, data sets and networks that went wrong once. Tests that need it are
//! skipped, with a line on the terminal, where it is missing. Other crates include this file by its path.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use tacit_graph::npy::{self, Npy};

/// Finds the folder `shared/data` above this crate; prints a note and returns `None` if it is missing.
pub fn folder() -> Option<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data_dir = manifest_dir.ancestors().map(|a| a.join("shared/data")).find(|p| p.is_dir());
    if data_dir.is_none() {
        eprintln!("SKIP: no shared/data above {}", manifest_dir.display());
    }
    data_dir
}

/// Reads a file of that folder; prints a note and returns `None` if the file is missing.
pub fn file(path: &str) -> Option<Vec<u8>> {
    let path = folder()?.join(path);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            eprintln!("SKIP: {}: {e}", path.display());
            None
        }
    }
}

/// Reads a model of the folder `models`.
pub fn model(name: &str) -> Option<Vec<u8>> {
    file(&format!("models/{name}"))
}

/// Reads a network or an array that once caused a failure.
pub fn regression(name: &str) -> Option<Vec<u8>> {
    file(&format!("regressions/{name}"))
}

/// Reads an array of the folder `regressions`.
pub fn array(name: &str) -> Option<Npy> {
    regression(name).map(|bytes| npy::read(&bytes).expect("the shared arrays are whole"))
}
