//! `tacit lab report`: runs `python -m tacit.report`.
use anyhow::bail;
use std::path::PathBuf;
use tacit_cli::report::page;

/// Make a page of plots and tables from a campaign's folder
///
/// Example: tacit lab report sweep -o sweep.html
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the campaign: campaign.json, runs.jsonl, records/
    dir: PathBuf,
    /// Page to write [default: DIR/report.html]; the plots go to DIR/plots as PNG and SVG
    #[arg(short, long, help_heading = "Output")]
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
