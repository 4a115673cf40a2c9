//! `tacit-server --front`: the front of a cluster.
use anyhow::Context;
use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tacit_ids::ClientId;
use tacit_program::args::count;
use tacit_serve::{Front, FrontConfig};
use tacit_store::keys;

/// Directs clients to the server of a cluster that answers them, and gives servers the list of
/// clients to admit, until it is interrupted. `tacit cluster up` starts it and the servers
/// (docs/scale.md).
///
/// Example: tacit serve --front --keys keys --listen 0.0.0.0:7900
#[derive(Parser)]
#[command(version, name = "tacit serve --front")]
pub struct Args {
    /// Folder with ca.pem, server.pem and server.key
    #[arg(long, value_name = "DIR", default_value = "keys")]
    keys: PathBuf,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7900")]
    listen: SocketAddr,
    /// Seconds that a server may serve after asking for its lease, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    lease: Duration,
    /// Answers that one client may have in a day (UTC), over all servers [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    queries_per_day: Option<u64>,
    /// Folder for these counts; without it, a restarted front begins at 0
    #[arg(long, value_name = "DIR", requires = "queries_per_day")]
    state: Option<PathBuf>,
    /// Accept this machine's clock, though it is more than a week from the last use of the folder:
    /// it decides which answers count for a day
    #[arg(long, requires = "state")]
    accept_clock: bool,
    /// Servers that a client with a large key set (back end `ckks`) may be sent to
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count(4096))]
    key_copies: usize,
    /// Fingerprint of a client to refuse; may be given several times
    #[arg(long, value_name = "FINGERPRINT")]
    ban: Vec<ClientId>,
    /// Name in the servers' certificates, if it differs from their addresses; clients learn it
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Print the line with the address as JSON
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a number from 0.1 to 3600".into()),
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let front = Front::bind(FrontConfig {
        listen: args.listen,
        tls: keys::load_server(&args.keys)?,
        lease: args.lease,
        queries_per_day: args.queries_per_day,
        state: args.state,
        accept_clock: args.accept_clock,
        key_copies: args.key_copies,
        banned: args.ban.into_iter().collect(),
        server_name: args.server_name,
    })?;
    front.stop_on_signals()?;
    let line = match args.json {
        true => serde_json::json!({"listening": front.address()}).to_string(),
        false => format!("the front listens on {}", front.address()),
    };
    tacit_program::log::announce(line).context("starting a thread")?;
    front.run();
    Ok(())
}
