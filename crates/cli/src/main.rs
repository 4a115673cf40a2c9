//! The `tacit` command: argument parsing and printing; the work is done in the other crates.
#![forbid(unsafe_code)]

mod bench;
mod connect;
mod infer;
mod keys;
mod model;
mod prepare;
mod print;
mod serve;
mod simulate;
mod zoo;

use clap::{Parser, Subcommand};
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
Log output: set TACIT_LOG, e.g. TACIT_LOG=info or TACIT_LOG=tacit_serve=debug.";

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
    /// Make, list or destroy material ahead of time
    Prepare(prepare::Args),
    /// Measure private inference: both parties as processes on this machine
    Bench(bench::Args),
    /// Write a well-known architecture with random weights as ONNX
    Zoo(zoo::Args),
    /// Play workloads against the scheduler in virtual time
    Simulate(simulate::SimulateArgs),
    /// The client process of `bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TACIT_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
        Command::Keys(args) => keys::run(args),
        Command::Model(args) => model::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Infer(args) => infer::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Zoo(args) => zoo::run(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::BenchClient(args) => bench::run_client(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
