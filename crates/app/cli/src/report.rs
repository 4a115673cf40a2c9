//! Runs `python -m tacit.report`, which draws pages.
use crate::python;
use anyhow::{Context, bail};
use std::path::Path;

/// Runs Python to make the page of a campaign's folder or of a file of simulated runs.
///
/// # Errors
/// There is no Python with the package, or the report failed.
pub fn page(source: &Path, output: Option<&Path>) -> anyhow::Result<()> {
    let python = python::find(&["tacit", "matplotlib"], ".[report]")?;
    let mut command = python::isolated(&python);
    command.args(["-m", "tacit.report"]).arg(source);
    if let Some(output) = output {
        command.arg("-o").arg(output);
    }
    let status = command.status().with_context(|| format!("cannot start {}", python.display()))?;
    if !status.success() {
        // Python's own message is on standard error already.
        bail!("the report was not made ({} -m tacit.report: {status})", python.display());
    }
    Ok(())
}
