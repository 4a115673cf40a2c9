//! `tacit lab report`: runs `python -m tacit.report`.
use crate::python;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Makes a page of plots and tables from a campaign's folder.
///
/// Example: tacit lab report sweep -o sweep.html
#[derive(clap::Args)]
pub struct Args {
    /// The campaign's folder: campaign.json, runs.jsonl, records/
    dir: PathBuf,
    /// The page to write [default: DIR/report.html]; the plots go to DIR/plots as PNG and SVG
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    // Check before Python starts: a missing campaign is an error without it as well.
    let description = args.dir.join("campaign.json");
    if !description.is_file() {
        bail!("{} is not a campaign's folder: it has no campaign.json", args.dir.display());
    }
    page(&args.dir, args.output.as_deref())
}

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
