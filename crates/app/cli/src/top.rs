//! `tacit top`: shows a server's status repeatedly.
use crate::operator::{Operator, Status};
use crate::print;
use crate::status::format_status;
use std::thread;
use std::time::Duration;

const MAX_ROWS: usize = 8;
/// Control codes: moves the cursor to the upper left corner and clears everything below.
const HOME: &str = "\x1b[H";
const CLEAR_REST: &str = "\x1b[J";
/// Control codes: clears the rest of a line and ends it.
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR: &str = "\x1b[2J";

/// Watch the state of a server until interrupted
///
/// Example: tacit top --server server.example:7878 --keys keys --client ops
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    #[arg(help_heading = "Output")]
    every: u64,
    /// Print the state once, without control codes
    #[arg(long, help_heading = "Output")]
    once: bool,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let interface = args.operator.interface()?;
    let mut clear = CLEAR;
    loop {
        let answer = interface.get("/v1/status")?;
        if as_json {
            // Print one line for each refresh.
            print::line(&answer.to_string())?;
        } else {
            let text = format_status(&serde_json::from_value::<Status>(answer)?, MAX_ROWS);
            match args.once {
                true => print::text(&text)?,
                false => print::screen(&format!("{clear}{HOME}{}{CLEAR_REST}\n", text.replace('\n', CLEAR_LINE)))?,
            }
        }
        if args.once {
            return Ok(());
        }
        clear = "";
        thread::sleep(Duration::from_secs(args.every));
    }
}
