//! `tacit lab`, `tacit simulate`, `tacit keyset tables`: run `tacit-lab`, a program in the same
//! folder. This program links nothing that only measures or simulates.
use crate::program::become_program;
use std::ffi::OsString;

/// Measure power, energy and links: experiments and their reports (runs the program tacit-lab)
///
/// Example: tacit lab run pm24-bandwidth --quick -o campaign
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Play workloads against the scheduler in virtual time (runs the program tacit-lab)
///
/// Example: tacit simulate run --profile shark.json --rate 1 --policy fcfs -o runs.json
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct SimulateArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Print the tables and figures of [KDS25] beside ours (runs the program tacit-lab)
///
/// Example: tacit keyset tables resnet20_aespa.tacit --measure networks
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct TablesArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

fn run(command: &[&str], arguments: Vec<OsString>, as_json: bool) -> anyhow::Result<()> {
    become_program("tacit-lab", command.iter().map(OsString::from).chain(arguments).collect(), as_json)
}

pub fn lab(args: LabArgs, as_json: bool) -> anyhow::Result<()> {
    run(&["lab"], args.arguments, as_json)
}

pub fn simulate(args: SimulateArgs, as_json: bool) -> anyhow::Result<()> {
    run(&["simulate"], args.arguments, as_json)
}

pub fn tables(args: TablesArgs, as_json: bool) -> anyhow::Result<()> {
    run(&["keyset", "tables"], args.arguments, as_json)
}
