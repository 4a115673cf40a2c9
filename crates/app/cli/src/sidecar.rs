//! `tacit sidecar`: runs `tacit-sidecar`, a program in the same folder.
use crate::program::become_program;
use std::ffi::OsString;

/// Answer Open Inference Protocol requests on this machine by private inference (runs the program
/// tacit-sidecar; `tacit sidecar --help` shows its options)
///
/// Example: tacit sidecar --server server.example:7878 --keys keys --client alice --token-file token --new-token
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    become_program("tacit-sidecar", args.arguments, as_json)
}
