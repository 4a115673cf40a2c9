//! `tacit dealer`: runs `tacit-dealer`, a program in the same folder.
use crate::program::become_program;
use std::ffi::OsString;

/// Make material for servers and their clients, as a third party (runs the program tacit-dealer;
/// `tacit dealer --help` shows its options)
///
/// Example: tacit dealer --keys keys --listen 0.0.0.0:7879
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    become_program("tacit-dealer", args.arguments, as_json)
}
