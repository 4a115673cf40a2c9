//! Evaluation of what was stored, by `python -m tacit.lab`.
use anyhow::Context;
use serde::Serialize;
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use tacit_cli::python;

pub fn find() -> anyhow::Result<PathBuf> {
    python::find(&["tacit.lab"], ".")
}

/// Replaces this process by `python -m tacit.lab COMMAND`, which reads `input` as JSON, prints, and
/// keeps the process id and signals.
pub fn become_python(python: &Path, command: &str, input: &impl Serialize) -> anyhow::Result<()> {
    let mut file = tempfile::tempfile().context("making a file for Python's input")?;
    file.write_all(&serde_json::to_vec(input)?).context("writing Python's input")?;
    file.rewind()?;
    let error = python::isolated(python).args(["-m", "tacit.lab", command]).stdin(file).exec();
    Err(error).with_context(|| format!("starting {}", python.display()))
}
