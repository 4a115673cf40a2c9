//! `tacit lab compare`: compares two campaigns, cell by cell.
use super::evaluate::{become_python, find};
use serde_json::json;
use std::path::PathBuf;
use tacit_experiments::campaign;

/// Compare campaign B to campaign A, cell by cell
///
/// For every cell of both campaigns, the command prints the ratio of means (B over A) of latency,
/// goodput, processor time and energy. Each ratio has a 95 % confidence interval (Fieller's, for
/// two independent samples with variances of their own).
///
/// An interval that contains 1 shows no difference. Of many comparisons, one in twenty shows a
/// difference by chance alone.
///
/// Examples: tacit lab compare before after
///           tacit lab compare tls wireguard --ignore transport --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the first campaign, the base of the ratios
    a: PathBuf,
    /// Folder of the second campaign
    b: PathBuf,
    /// Label that may differ in matching cells: link, transport, workload, pace
    #[arg(long, value_name = "LABEL", value_delimiter = ',', help_heading = "Input")]
    ignore: Vec<String>,
    /// Compare all figures that both campaigns have
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let (a, b) = (campaign::load(&args.a)?, campaign::load(&args.b)?);
    let input = json!({ "a": a.runs, "b": b.runs, "ignore": args.ignore, "all": args.all, "json": args.json });
    become_python(&find()?, "compare", &input)
}
