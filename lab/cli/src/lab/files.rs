//! Files in a campaign's folder.
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tacit_experiments::campaign;

/// Names the sources of models and inputs: importing a network twice does not give the same bytes.
/// Written after all other files of its folder: without it, the next run makes them again.
pub const SOURCE: &str = "source.json";

/// Whether the files of `folder` come from `source`; false if they are not complete. Refuses a
/// folder with other files, which `others` describes.
pub fn come_from(source: &Value, folder: &Path, others: &str) -> Result<bool> {
    let Some(saved) = read_if_present(&folder.join(SOURCE))? else { return Ok(false) };
    let is_same = serde_json::from_slice::<Value>(&saved).is_ok_and(|saved| saved == *source);
    ensure!(is_same, "{} has {others} now; choose another folder with -o", folder.display());
    Ok(true)
}

pub fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| format!("reading {}", path.display())),
    }
}

/// Writes a file anew: the existing one may be a link.
pub fn replace(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let result = campaign::remove(path).and_then(|()| fs::write(path, bytes));
    result.with_context(|| format!("writing {}", path.display()))
}
