//! `tacit lab papers`: claims of the papers, with the commands that reproduce them.
use super::evaluate::{become_python, find};
use anyhow::Context;
use serde_json::json;
use std::path::PathBuf;
use tacit_cli::program::find_program;
use tacit_experiments::{CLAIMS, FIGURES};

/// List tables, figures and numbered claims of the papers that tacit builds on, with our results
///
/// Each entry has the figure that came out here, and the command that reproduces the figure.
/// docs/reproduction.md is the same list.
///
/// With --run, the command runs the quick entries (seconds, without root), and compares their
/// output with the list. Without a named paper, it also checks figures in the documents of a clone
/// (README.md, docs/) that follow from no clock: bytes, keys, rounds, counts. For a wrong figure it
/// shows the value of the document and the value of the figure's command. --heavy also runs
/// commands that take minutes, --update writes the figures anew.
///
/// Examples: tacit lab papers
///           tacit lab papers KDS25 --json
///           tacit lab papers --run --data ../shared/data
///           tacit lab papers --run --heavy --update
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Paper to list: PM24, SS26, KDS25 or VPN24 [default: all]
    paper: Option<String>,
    /// Run the quick commands; the run fails if an output differs from the list
    #[arg(long, help_heading = "Input")]
    run: bool,
    /// Folder of the shared data, which some commands read
    #[arg(long, value_name = "DIR", default_value = "../shared/data", help_heading = "Input")]
    data: PathBuf,
    /// Folder of the clone whose documents are checked
    #[arg(long, value_name = "DIR", default_value = ".", requires = "run", help_heading = "Input")]
    clone: PathBuf,
    /// Run also commands that take minutes, for figures of the documents
    #[arg(long, requires = "run", conflicts_with = "paper", help_heading = "Input")]
    heavy: bool,
    /// Write the figures of the commands into the documents
    #[arg(long, requires = "run", conflicts_with = "paper", help_heading = "Output")]
    update: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let data = args.data.to_str().context("the name of the folder of --data is not UTF-8")?;
    let tacit = if args.run { Some(find_program("tacit")?) } else { None };
    let input = json!({
        "papers": CLAIMS, "figures": FIGURES, "tacit": tacit, "data": data, "clone": args.clone,
        "paper": args.paper, "run": args.run, "heavy": args.heavy, "update": args.update, "json": args.json,
    });
    become_python(&find()?, "papers", &input)
}
