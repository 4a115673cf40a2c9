//! The `tacit` command: argument parsing and printing; the work is done in the other crates.
#![forbid(unsafe_code)]

mod bench;
mod connect;
mod infer;
mod keys;
mod lab;
mod material;
mod model;
mod owner;
mod prepare;
mod print;
mod serve;
mod simulate;
mod zoo;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tacit_log::Log;

/// Private neural-network inference: a client gets a model's answer on its input, and the server never sees the input.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Example, two machines:
  server$ tacit keys init keys --host server.example --client alice
  server$ tacit model import net.onnx --calibrate samples.npy -o net.tacit
  server$ tacit serve net.tacit --keys keys --listen 0.0.0.0:7878
  client$ tacit infer photo.png --server server.example:7878 --keys keys --client alice --model net
The client needs keys/ca.pem, keys/alice.pem and keys/alice.key, and nothing else of the folder.
Log output: set TACIT_LOG, e.g. TACIT_LOG=info or TACIT_LOG=tacit_client=debug.";

#[derive(Subcommand)]
enum Command {
    /// Make a private CA, a server certificate and client certificates
    Keys(keys::Args),
    /// Import an ONNX network, or show what is in a model file
    Model(model::Args),
    /// Serve models to authenticated clients
    Serve(serve::Args),
    /// Classify inputs privately
    Infer(infer::Args),
    /// Make material ahead of time
    Prepare(prepare::Args),
    /// List or destroy material that was made ahead of time
    Material(material::Args),
    /// Measure private inference: both parties as processes on this machine
    Bench(bench::Args),
    /// Write a well-known architecture with random weights as ONNX
    Zoo(zoo::Args),
    /// Play workloads against the scheduler in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure power, energy and links: experiments and their reports
    Lab(lab::Args),
    /// The client process of `bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

/// The error and its causes in one line; a cause that the line already ends with is not repeated.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| match line.as_str() {
        "" => cause,
        said if said.ends_with(&cause) => line,
        said => format!("{said}: {cause}"),
    })
}

/// Whether standard output was closed by its reader.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == print::OUTPUT && cause.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Help and mistakes of the command line, where they belong.
fn tell(text: &clap::Error) -> anyhow::Result<ExitCode> {
    text.print().context(print::OUTPUT)?;
    // 0 for help, 2 for mistakes.
    Ok(ExitCode::from(text.exit_code() as u8))
}

fn main() -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            print::note(&format!("error: starting the log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = match Cli::try_parse() {
        Ok(cli) => run(cli.command).map(|()| ExitCode::SUCCESS),
        Err(text) => tell(&text),
    };
    match result {
        Ok(code) => code,
        // Whoever reads our output may stop reading: what a shell reports for a program that SIGPIPE ended.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            log.say(&format!("error: {}", explain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Keys(args) => keys::run(args),
        Command::Model(args) => model::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Infer(args) => infer::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Material(args) => material::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Zoo(args) => zoo::run(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::BenchClient(args) => bench::run_client(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let path = || "x.json".into();
        let error = anyhow::Error::new(tacit_lab::LabError::Io { path: path(), source: missing() });
        assert_eq!(explain(&error.context("reading the plan")), "reading the plan: x.json: no such file");
        assert_eq!(explain(&anyhow::Error::new(missing()).context("x.json")), "x.json: no such file");
    }
}
