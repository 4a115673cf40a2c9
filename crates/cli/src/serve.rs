//! `tacit serve`: runs `tacit-server`, the program beside this one that serves. This one links no async
//! runtime.
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Serves models to authenticated clients: runs the program tacit-server with these arguments
/// (`tacit serve --help` shows them)
///
/// Example: tacit serve digits.tacit squeezenet.tacit --keys keys --listen 0.0.0.0:7878
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// The program beside this one.
pub fn program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let beside = this.with_file_name("tacit-server");
    anyhow::ensure!(
        beside.exists(),
        "{} is not there: install tacit-server beside tacit (`cargo build --release` builds both)",
        beside.display()
    );
    Ok(beside)
}

pub fn run(mut args: Args, as_json: bool) -> anyhow::Result<()> {
    let program = program()?;
    if as_json && !args.arguments.iter().any(|a| a == "--json") {
        args.arguments.push("--json".into());
    }
    // Takes this process's place: its id, its signals and its output are the server's.
    let error = Command::new(&program).args(args.arguments).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}
