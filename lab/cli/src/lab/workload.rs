//! `tacit lab workload`: a server and a client that move random data.
use anyhow::Context;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tacit_cli::print;
use tacit_experiments::transport::{Acceptor, TransportKind, connect};
use tacit_experiments::workload::{self, Options, Workload, run_client, run_server};
use tacit_measure::mark::MarkSender;
use tacit_net::Rate;

/// Move random data from memory between two processes, a server and a client, and compare every
/// byte. Each process prints one line of JSON at its end: seconds, bytes, goodput_bps, messages,
/// latency, its CPU seconds and peak memory
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLE)]
pub enum Command {
    /// Serve the transfers of clients; the first printed line is {"listening": ADDRESS}
    ///
    /// Example: tacit lab workload serve --listen 127.0.0.1:4000 --clients 1
    Serve {
        /// Address to listen on; port 0 takes a free port
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", help_heading = "Server")]
        listen: SocketAddr,
        /// Number of clients to end after [default: no end]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
        clients: Option<u64>,
        #[command(flatten)]
        how: How,
    },
    /// Send bytes to the server
    ///
    /// Example: tacit lab workload bulk-send --server 127.0.0.1:4000 --bytes 100000000
    BulkSend {
        #[command(flatten)]
        bulk: Bulk,
        #[command(flatten)]
        how: How,
    },
    /// Receive bytes from the server
    ///
    /// Example: tacit lab workload bulk-receive --server 127.0.0.1:4000 --bytes 100000000
    BulkReceive {
        #[command(flatten)]
        bulk: Bulk,
        #[command(flatten)]
        how: How,
    },
    /// Send messages to the server, each after the echo of the message before
    ///
    /// Example: tacit lab workload ping-pong --server 127.0.0.1:4000 --messages 100
    PingPong {
        /// Address of the server
        #[arg(long, value_name = "ADDRESS", help_heading = "Server")]
        server: SocketAddr,
        /// Number of messages
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        #[arg(help_heading = "Limits")]
        messages: u64,
        /// Bytes of each message
        #[arg(long, default_value_t = 64, help_heading = "Limits")]
        size: u64,
        #[command(flatten)]
        how: How,
    },
}

const EXAMPLE: &str = "\
Example: tacit lab workload serve --listen 127.0.0.1:4000 --clients 1 &
         tacit lab workload bulk-send --server 127.0.0.1:4000 --bytes 100000000
With TLS: tacit keys init keys --client client, and both with --transport tls --keys keys";

/// What both parties may choose.
#[derive(clap::Args)]
pub struct How {
    /// Transport: plain, tls, wireguard or tls+wireguard; for a tunnel, give the addresses inside
    /// the tunnel
    #[arg(long, value_name = "KIND", default_value = "plain", help_heading = "Link")]
    transport: TransportKind,
    /// Folder with the keys for TLS, as `tacit keys init` makes it
    #[arg(long, value_name = "DIR", help_heading = "Identity")]
    keys: Option<PathBuf>,
    /// Limit the rate of sending: 20mbit, 500kbit
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    pace: Option<Rate>,
    /// Longest time without progress of the peer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    #[arg(help_heading = "Limits")]
    stall: u64,
}

/// A bulk transfer.
#[derive(clap::Args)]
pub struct Bulk {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", help_heading = "Server")]
    server: SocketAddr,
    /// Most bytes to transfer
    #[arg(long, default_value_t = 1 << 30, help_heading = "Limits")]
    bytes: u64,
    /// Longest transfer, in seconds; 4 MiB are sent in any case
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    #[arg(help_heading = "Limits")]
    seconds: Option<u64>,
}

impl Bulk {
    fn parameters(&self) -> workload::Bulk {
        workload::Bulk { bytes: self.bytes, seconds: self.seconds }
    }
}

impl How {
    fn options<'a>(&self, marks: Option<&'a MarkSender>) -> Options<'a> {
        Options { transport: self.transport, pace: self.pace, stall: Duration::from_secs(self.stall.max(1)), marks }
    }

    fn ask(&self, server: SocketAddr, workload: Workload) -> anyhow::Result<()> {
        let marks = marks("client");
        let options = self.options(marks.as_ref());
        let transport = connect(self.transport, server, self.keys.as_deref(), options.stall)?;
        line(&run_client(transport, workload, seed(), options)?)
    }

    fn serve(&self, listen: SocketAddr, clients: Option<u64>) -> anyhow::Result<()> {
        let marks = marks("server");
        let options = self.options(marks.as_ref());
        let acceptor = Acceptor::bind(self.transport, listen, self.keys.as_deref())?;
        line(&serde_json::json!({"listening": acceptor.address()?}))?;
        let mut served = 0;
        while clients.is_none_or(|max| served < max) {
            served += 1;
            let outcome = acceptor.accept(options.stall).and_then(|transport| run_server(transport, options));
            match outcome {
                Ok(outcome) => line(&outcome)?,
                // A server for a fixed number of clients reports the error. An endless server
                // continues with the next client.
                Err(error) if clients.is_some() => return Err(error.into()),
                Err(error) => print::note(&format!("error: {error}")),
            }
        }
        Ok(())
    }
}

pub fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { listen, clients, how } => how.serve(*listen, *clients),
        Command::BulkSend { bulk, how } => how.ask(bulk.server, Workload::BulkSend(bulk.parameters())),
        Command::BulkReceive { bulk, how } => how.ask(bulk.server, Workload::BulkReceive(bulk.parameters())),
        Command::PingPong { server, messages, size, how } => {
            how.ask(*server, Workload::PingPong { messages: *messages, size: *size })
        }
    }
}

/// Opens the channel for phase marks, if a measurement runs.
fn marks(party: &str) -> Option<MarkSender> {
    MarkSender::from_env(party).unwrap_or_else(|error| {
        print::note(&format!("warning: this run will have no phase marks: {error}"));
        None
    })
}

/// Returns a seed for data that no cache on the way has seen.
fn seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
}

fn line(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("printing the outcome")
}
