//! The program `tacit-lab`. `tacit lab`, `tacit simulate` and `tacit keyset tables` run it with the
//! same arguments.
#![forbid(unsafe_code)]

mod lab;
mod simulate;
mod tables;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tacit_cli::program::{self, CommandLine};

/// Measure and simulate: `tacit lab`, `tacit simulate`, `tacit keyset tables`
#[derive(Parser)]
#[command(
    name = "tacit",
    bin_name = "tacit",
    version,
    propagate_version = true,
    after_help = "Example: tacit lab sensors"
)]
struct Cli {
    /// Print JSON on standard output, and errors as JSON on standard error; before or after the subcommand
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play workloads against the scheduler in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure power, energy and links: experiments and their reports
    Lab(lab::Args),
    /// Print tables of the switching keys of the back end `ckks`
    #[command(after_help = "Example: tacit keyset tables")]
    Keyset {
        #[command(subcommand)]
        command: KeySetCommand,
    },
}

#[derive(Subcommand)]
enum KeySetCommand {
    Tables(tables::TablesArgs),
}

impl CommandLine for Cli {
    fn json(&self) -> bool {
        self.json
    }

    fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Simulate(args) => simulate::run(&args, self.json),
            Command::Lab(args) => lab::run(args),
            Command::Keyset { command: KeySetCommand::Tables(args) } => tables::run(&args, self.json),
        }
    }
}

fn main() -> ExitCode {
    program::run::<Cli>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_of_all_commands_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usages_name_tacit() {
        let mut cli = Cli::command();
        cli.build();
        let lab = cli.find_subcommand_mut("lab").unwrap().find_subcommand_mut("run").unwrap();
        assert!(lab.render_usage().to_string().contains("tacit lab run"));
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let (lacking, count) = program::commands_without_example(Cli::command());
        assert!(count > 20, "{count}");
        assert!(lacking.is_empty(), "no example of the command itself in the help of {lacking:?}");
    }

    #[test]
    fn json_may_stand_before_and_after_every_command() {
        for line in ["tacit --json lab sensors", "tacit lab sensors --json", "tacit simulate replay --json x"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(cli.json, "{line}");
            if let Command::Lab(args) = cli.command {
                assert!(args.wants_json_of_sensors(), "{line}");
            }
        }
    }
}
