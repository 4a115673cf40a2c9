//! `tacit serve`: runs `tacit-server`, a program in the same folder. This program links no async
//! runtime.
use crate::program::become_program;
use std::ffi::OsString;

/// Serve models to authenticated clients (runs the program tacit-server; `tacit serve --help` shows
/// its options)
///
/// Example: tacit serve digits.tacit squeezenet.tacit --keys keys --listen 0.0.0.0:7878
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    become_program("tacit-server", args.arguments, as_json)
}
