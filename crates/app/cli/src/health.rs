//! `tacit health`: asks a server whether it takes requests.
use crate::operator::Operator;
use crate::print;
use tacit_foreign::plain;

/// Ask a server whether it takes requests, for probes: the exit code is 0 if it does, 1 if not
///
/// Warnings for the operator, such as a certificate that needs renewal soon, go to standard error.
///
/// Example: tacit health --server 127.0.0.1:7878 --keys keys --client probe
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
    /// Ask only whether the process answers
    #[arg(long, help_heading = "Server")]
    live: bool,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let path = if args.live { "/v1/health/live" } else { "/v1/health/ready" };
    let answer = args.operator.interface()?.get(path)?;
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    for warning in warnings.filter_map(|warning| warning.as_str()) {
        print::note(&format!("warning: {}", plain(warning)));
    }
    print::json_or_line(as_json, &answer, &plain(answer["status"].as_str().unwrap_or("?")))
}
