//! `tacit lab transport`: measures plain TCP, TLS 1.3 and WireGuard.
use super::conduct::{carry_out, show_plan, stopping};
use super::evaluate::{become_python, find};
use anyhow::Context;
use serde_json::json;
use std::path::PathBuf;
use tacit_cli::print;
use tacit_experiments::campaign;
use tacit_experiments::experiment::plan;
use tacit_experiments::transport::TransportKind;
use tacit_experiments::vpn24::{self, Paper, Request};

/// Measure the costs of plain TCP, TLS 1.3, WireGuard and TLS inside WireGuard, as section III of
/// [VPN24] does
///
/// Random data goes from memory to memory, sent and received apart: 1 GiB, or the bytes that the
/// link carries in 60 s. The command prints a verdict as ratios to plain TCP, and the figures
/// behind the verdict.
///
/// The same command continues an interrupted campaign, and only prints a finished one; `tacit lab
/// report DIR` plots the campaign. Links need root. The paper moves 10 GB at 1 Gbit/s; --paper
/// prints the paper's tables beside ours.
///
/// Examples: sudo tacit lab transport -o transports
///           sudo tacit lab transport --rates 941mbit,20mbit,unlimited --seconds 10 --repetitions 5 -o quick
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the campaign, to make or to continue
    #[arg(short, long, value_name = "DIR", required_unless_present = "dry_run", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Links: rates, presets of `tacit lab link`, or unlimited [default: 941, 95.6 and 19.2 Mbit/s of [PM24]]
    #[arg(long, value_name = "RATE", value_delimiter = ',', help_heading = "Link")]
    rates: Vec<String>,
    /// Transports to compare [default: plain, tls, wireguard, tls+wireguard]
    #[arg(long, value_name = "KIND", value_delimiter = ',', help_heading = "Link")]
    transports: Vec<TransportKind>,
    /// Number of runs of each cell [default: 3]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    repetitions: Option<u32>,
    /// Most bytes of a transfer [default: 1 GiB]
    #[arg(long, help_heading = "Limits")]
    bytes: Option<u64>,
    /// Longest transfer, in seconds; 4 MiB are sent in any case [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = "Limits")]
    seconds: Option<u64>,
    /// File with the paper's tables, to print beside ours; docs/lab.md explains the format
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    paper: Option<PathBuf>,
    /// Print JSON: an object per run, then one with the verdict
    #[arg(long)]
    json: bool,
    /// Print the plan with its duration, and end
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    // Check the file before an hour of measuring.
    let paper = args.paper.as_deref().map(Paper::load).transpose()?;
    let request = Request {
        links: args.rates.clone(),
        transports: args.transports.clone(),
        repetitions: args.repetitions,
        bytes: args.bytes,
        seconds: args.seconds,
    };
    let experiment = vpn24::experiment(&request)?;
    if args.dry_run {
        return show_plan(&experiment, &plan::remaining(&experiment, &[]), args.json);
    }
    let dir = args.output.as_deref().context("give the campaign's folder with -o DIR")?;
    // Without Python the measurements stay on disk; the same command evaluates them later.
    let python = find();
    if let Err(error) = &python {
        print::note(&format!("nothing can evaluate the runs: {error}"));
    }
    carry_out(&experiment, dir, &[], args.json, &stopping("runs")?)?;
    let input = json!({ "runs": campaign::load(dir)?.runs, "paper": paper, "json": args.json });
    become_python(&python?, "transport", &input)
}
