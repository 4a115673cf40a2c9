//! `tacit serve`: runs `tacit-server`, a program in the same folder. This program links no async
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

/// Returns the path of the program `tacit-server`.
pub fn program() -> anyhow::Result<PathBuf> {
    beside("tacit-server")
}

/// Returns the path of a program of tacit in the same folder.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let beside = this.with_file_name(name);
    anyhow::ensure!(
        beside.exists(),
        "{} is not there: install {name} beside tacit (`cargo build --release` builds both)",
        beside.display()
    );
    Ok(beside)
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    become_program("tacit-server", args.arguments, as_json)
}

/// Replaces this process by the program `name`, which keeps the process id, signals and output.
pub fn become_program(name: &str, mut arguments: Vec<OsString>, as_json: bool) -> anyhow::Result<()> {
    let program = beside(name)?;
    if as_json && !arguments.iter().any(|a| a == "--json") {
        arguments.push("--json".into());
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}
