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

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

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

/// `tacit ... | head`: whoever reads our output may stop reading, which is no failure to be shown. A server must not end for a closed
/// socket, so the signal for it stays ignored, as Rust has it.
fn end_quietly_without_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            // What a shell reports for a program that SIGPIPE ended.
            std::process::exit(141);
        }
        usual(panic);
    }));
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

fn main() -> ExitCode {
    end_quietly_without_reader();
    let filter = tracing_subscriber::EnvFilter::try_from_env("TACIT_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
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
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output may stop reading: what a shell reports for a program that SIGPIPE ended.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            // There may be nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {}", explain(&error));
            ExitCode::FAILURE
        }
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
