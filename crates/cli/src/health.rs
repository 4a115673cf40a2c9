//! `tacit health`
use crate::operator::Operator;
use crate::print;

/// Ask a server whether it takes requests: exit code 0 if it does, 1 if not; for probes
///
/// Example: tacit health --server 127.0.0.1:7878 --keys keys --client probe
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
    /// Only whether the process answers
    #[arg(long)]
    live: bool,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let path = if args.live { "/v1/health/live" } else { "/v1/health/ready" };
    let answer = args.operator.interface()?.get(path)?;
    match as_json {
        true => print::json(&answer),
        false => print::line(answer["status"].as_str().unwrap_or("?")),
    }
}
