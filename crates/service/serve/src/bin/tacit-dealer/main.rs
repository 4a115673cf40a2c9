//! `tacit-dealer`: makes material for servers and their clients. `tacit dealer` starts it.
#![forbid(unsafe_code)]

use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tacit_backends::Registry;
use tacit_client::MAX_THREADS;
use tacit_serve::{DealerConfig, DealerServer};
use tacit_store::keys;

/// Time after an interrupt for running requests, and for clients to fetch what was just dealt.
const GRACE: Duration = Duration::from_secs(30);

/// Makes the material of back ends with a dealer (`dealt`, `fss`), for servers and their clients.
///
/// The dealer's operator must work with neither of them: with a server, it learns the inputs; with
/// a client, the weights. Servers and clients pin its certificate; nothing that it deals is written
/// to disk. An interrupt lets requests end and clients fetch what was dealt in the last 30 s; a
/// second interrupt ends it at once.
///
/// Examples: tacit keys add-dealer keys --host dealer.example
///           tacit dealer --keys keys --listen 0.0.0.0:7879 --numbers dealer.sqlite
#[derive(Parser)]
#[command(version, name = "tacit dealer", verbatim_doc_comment)]
struct Args {
    /// Folder with ca.pem, dealer.pem and dealer.key
    #[arg(long, value_name = "DIR", default_value = "keys")]
    keys: PathBuf,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7879")]
    listen: SocketAddr,
    /// File of the numbers that were given to materials: never delete it while a server has
    /// material
    #[arg(long, value_name = "FILE", default_value = "dealer.sqlite")]
    numbers: PathBuf,
    /// Threads for dealing
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_THREADS as u64))]
    threads: u64,
    /// Connections of clients at the same time, and as many of servers
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    max_connections: u64,
    /// Longest time of a request, seconds: a client on a slow link fetches gigabytes in hours
    #[arg(long, value_name = "SECONDS", default_value_t = DealerConfig::REQUEST_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=7 * 86_400))]
    request: u64,
    /// Print the line with the address as JSON
    #[arg(long)]
    json: bool,
}

fn run(args: &Args) -> anyhow::Result<()> {
    tacit_admission::raise_open_files();
    let config = DealerConfig {
        max_connections: args.max_connections as usize,
        request_timeout: Duration::from_secs(args.request),
        ..DealerConfig::new(args.listen, keys::load_dealer(&args.keys)?, args.numbers.clone())
    };
    let threads = rayon::ThreadPoolBuilder::new().num_threads(args.threads as usize).build_global();
    threads.map_err(|e| anyhow::anyhow!("cannot start {} threads: {e}", args.threads))?;
    let pin = keys::dealer_pin(&args.keys)?;
    let dealer = DealerServer::bind(Registry::standard(), config)?;
    dealer.stop_on_signals(GRACE)?;
    tacit_program::log::announce(match args.json {
        true => serde_json::json!({"listening": dealer.address(), "pin": pin.to_string()}).to_string(),
        false => format!("listening on {} (pin {pin})", dealer.address()),
    })?;
    dealer.run();
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Returns the memory of large tensors to the system: they are needed only while dealing.
    tacit_arith::heap::give_back_large();
    tacit_program::log::run(|| run(&args))
}
