//! `tacit-server`: serves models until it is stopped. `tacit serve` starts it.
#![forbid(unsafe_code)]

mod files;
mod front;
mod load;

use anyhow::Context;
use clap::Parser;
use files::Files;
use load::{Beside, Offering};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use tacit_arith::heap::Counting;
use tacit_backends::{DEFAULT, Registry};
use tacit_client::MAX_THREADS;
use tacit_ids::ClientId;
use tacit_net::Rate;
use tacit_program::args::count;
use tacit_sched::policy::PolicySpec;
use tacit_serve::{Collector, Hangups, Server, ServerConfig};
use tacit_store::{SealKey, keys};

/// Counts allocations, from which the scheduler learns the memory of jobs.
#[global_allocator]
static HEAP: Counting = Counting;

/// How long running jobs may take after an interrupt.
const GRACE: Duration = Duration::from_secs(30);

/// Serves `.tacit` files, each under its file name, until it is interrupted: running jobs then have
/// 30 s, a second interrupt ends them at once. Models and certificates may change while it runs
/// (docs/serving.md).
///
/// Example: tacit serve digits.tacit squeezenet.tacit --keys keys --listen 0.0.0.0:7878
#[derive(Parser)]
#[command(
    version,
    name = "tacit serve",
    after_help = "With --front as the first argument it is the front of a cluster: tacit serve --front --help"
)]
struct Args {
    /// Model files, or folders of them; their weights stay in this process. SIGHUP and `tacit
    /// reload` read them again, with keys and --access
    #[arg(required = true, value_name = "FILE.tacit|DIR")]
    models: Vec<PathBuf>,
    /// Folder with ca.pem, server.pem and server.key
    #[arg(long, value_name = "DIR", default_value = "keys")]
    keys: PathBuf,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    listen: SocketAddr,
    #[command(flatten)]
    backends: BackendArgs,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    jobs: JobArgs,
    #[command(flatten)]
    connections: ConnectionArgs,
    #[command(flatten)]
    material: MaterialArgs,
    /// Collector of traces, http://HOST:PORT, which receives each phase that ends (OTLP over HTTP,
    /// JSON)
    #[arg(long, value_name = "URL")]
    otlp: Option<Collector>,
    /// Print the line with the address as JSON
    #[arg(long)]
    json: bool,
}

// Back ends and their dealer.
#[derive(clap::Args)]
struct BackendArgs {
    #[arg(long = "backend", value_name = "ID", help = backend_help())]
    backends: Vec<String>,
    /// Option of the first back end, or of the one named; may be given several times. Without any,
    /// stored lowerings are used as they are
    #[arg(short = 'O', long = "option", value_name = "[BACKEND.]KEY=VALUE,...")]
    options: Vec<String>,
    /// Dealer, host:port, for back ends with material from a third party (`dealt`, `fss`); this
    /// server shows it the certificate `orders` of the key folder
    #[arg(long, value_name = "HOST:PORT", requires = "dealer_pin")]
    dealer: Option<String>,
    /// Fingerprint of the dealer's key, as the dealer prints it
    #[arg(long, value_name = "PIN", requires = "dealer")]
    dealer_pin: Option<ClientId>,
    /// Folder with ca.pem, orders.pem and orders.key, if the dealer has its own CA [default: that
    /// of --keys]
    #[arg(long, value_name = "DIR", requires = "dealer")]
    dealer_keys: Option<PathBuf>,
    /// Allow back ends that show this server every input: no private inference, for measurements
    #[arg(long)]
    allow_clear: bool,
}

// Files that the server keeps or reads.
#[derive(clap::Args)]
struct StorageArgs {
    /// Folder for the server's half of material made ahead of time; without it, clients cannot
    /// prepare any
    #[arg(long, value_name = "DIR")]
    material: Option<PathBuf>,
    /// Access rules of clients: models, quotas and rates (docs/serving.md); read again with the
    /// models
    #[arg(long, value_name = "FILE.toml")]
    access: Option<PathBuf>,
    /// Days until rows of the record of ended phases are deleted, in the folder of stored material
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    audit_days: u32,
    /// MiB of the file with that record: beyond that its oldest rows are deleted, whatever their
    /// age
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    audit_mib: u64,
    /// Encrypt stored material, and read encrypted models: KEY is a file's name, env:VARIABLE or
    /// cmd:COMMAND
    #[arg(long, value_name = "KEY", value_parser = SealKey::from_text)]
    seal: Option<SealKey>,
}

// When jobs run, and what they may take.
#[derive(clap::Args)]
struct JobArgs {
    /// Threads of each job's arithmetic
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64))]
    threads: usize,
    /// Scheduling policy of jobs: fcfs, priority[:BETA], sequential, srt, adaptive, ss26:fcfs[:entry],
    /// ss26:priority[:BETA], each with an optional +fair[:STRENGTH] against clients that ask for
    /// more than others
    #[arg(long, value_name = "NAME", default_value = "adaptive", value_parser = PolicySpec::from_str)]
    policy: PolicySpec,
    /// Do not run a made-up input through models whose run time is unknown
    #[arg(long)]
    no_warm_up: bool,
    /// Cores that jobs may take together [default: all of this machine]
    #[arg(long, value_name = "COUNT", value_parser = count(MAX_THREADS as u64))]
    cores: Option<usize>,
    /// Count a core for each thread of a job even while it waits for its link, and ignore the load
    /// of other processes
    #[arg(long)]
    strict_cores: bool,
    /// Materials that a dealer may be making at a time: such an offline phase waits for the dealer
    /// and uses no core
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = count(1024))]
    dealings: usize,
    /// MiB on disk, with --material, for material that a dealer makes ahead of time for no
    /// particular client, so that new clients need not wait for it; 0 switches that off
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pool: u64,
    /// MiB of resident memory of this process above which no job starts [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    resident: Option<u64>,
    /// MiB of memory that jobs may take together, by estimate [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    job_memory: Option<u64>,
    /// Inputs of one client that may be under way, announced ones included
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = count(1_000_000))]
    queued: usize,
    /// Seconds that a notice is valid without its request
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    notice_ttl: u64,
}

// Limits of connections.
#[derive(clap::Args)]
struct ConnectionArgs {
    /// Send at most this fast to each client, to cap power on purpose: 20mbit, 500kbit
    #[arg(long, value_name = "RATE")]
    pace: Option<Rate>,
    /// Clients connected at the same time
    #[arg(long, default_value_t = 64, value_parser = count(100_000))]
    max_connections: usize,
    /// Connections of one client at the same time, by its certificate's key [default: three
    /// quarters of --max-connections]
    #[arg(long, value_name = "COUNT", value_parser = count(100_000))]
    connections_per_client: Option<usize>,
    /// Connections of the control interface (HTTP: status, metrics, dashboard) at the same time,
    /// and as many of operators; 0 switches it off
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=4096))]
    max_control: u64,
    /// Seconds that a client may make no progress inside a phase
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stall: u64,
    /// Seconds that a client may wait between requests
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    idle: u64,
}

// Limits of material, keys and batches of one client.
#[derive(clap::Args)]
struct MaterialArgs {
    /// Materials that one client may have on disk
    #[arg(long, default_value_t = 256, value_parser = count(1_000_000))]
    quota: usize,
    /// MiB of keys stored here for one client, with --material, so that it sends them once (back
    /// end `ckks`); 0 stores none beyond this run
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    key_quota: u64,
    /// Days until stored material expires whose client does not return with the other half, or
    /// whose model is no longer offered; and until unused keys of a client expire
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3650))]
    expire: u64,
    /// Accept this machine's clock, though it is more than a week from the last use of the folder
    /// of material: what is too old by this clock expires
    #[arg(long)]
    accept_clock: bool,
    /// Most inputs of one client in a batch, which takes the round trips of one input, if the back
    /// end supports it and memory allows it; 1 runs each input on its own
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = count(32))]
    max_batch: usize,
    /// Inputs of one client with material in memory; with none there, a batch may be larger
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    memory: u64,
    /// Seconds that a client with its full share of memory waits before it is refused, less than
    /// clients wait for a server (300); 0 refuses at once
    #[arg(long, value_name = "SECONDS", default_value_t = 240, value_parser = clap::value_parser!(u64).range(0..=3600))]
    memory_wait: u64,
}

/// Help text of `--backend`.
fn backend_help() -> String {
    format!(
        "Back end to offer every model with; may be given several times, clients prefer the first \
         [default: those with a lowering beside the model; {DEFAULT} without one, or if -O is given]"
    )
}

impl Args {
    fn config(&self) -> anyhow::Result<ServerConfig> {
        let defaults = ServerConfig::new(self.listen, keys::load_server(&self.keys)?);
        let resources = match self.backends.dealer.as_deref().zip(self.backends.dealer_pin) {
            Some(dealer) => {
                let folder = self.backends.dealer_keys.as_ref().unwrap_or(&self.keys);
                tacit_client::resources(Some(dealer), &keys::load_client(folder, keys::ORDERS)?, None)?
            }
            None => defaults.resources.clone(),
        };
        Ok(ServerConfig {
            store: self.storage.material.clone(),
            access: self.storage.access.clone(),
            audit_days: self.storage.audit_days,
            audit_bytes: self.storage.audit_mib << 20,
            traces: self.otlp.clone(),
            seal: self.storage.seal.clone(),
            resources,
            pace: self.connections.pace,
            threads: self.jobs.threads,
            policy: self.jobs.policy.clone(),
            cores: self.jobs.cores.unwrap_or(defaults.cores),
            strict_cores: self.jobs.strict_cores,
            dealings: self.jobs.dealings,
            pool: self.jobs.pool << 20,
            resident: self.jobs.resident.map_or(u64::MAX, |mib| mib << 20),
            job_memory: self.jobs.job_memory.map_or(u64::MAX, |mib| mib << 20),
            queued_per_client: self.jobs.queued,
            notice_ttl: Duration::from_secs(self.jobs.notice_ttl),
            max_connections: self.connections.max_connections,
            connections_per_client: self.connections.connections_per_client.and_then(NonZero::new),
            max_control: self.connections.max_control as usize,
            stall_timeout: Duration::from_secs(self.connections.stall),
            idle_timeout: Duration::from_secs(self.connections.idle),
            stored_per_client: self.material.quota,
            uploads_per_client: self.material.key_quota << 20,
            expire: Duration::from_secs(self.material.expire * 24 * 3600),
            accept_clock: self.material.accept_clock,
            max_batch: self.material.max_batch,
            memory_per_client: self.material.memory as usize,
            memory_wait: Duration::from_secs(self.material.memory_wait),
            ..defaults
        })
    }

    fn files(&self, registry: &Registry) -> anyhow::Result<Files> {
        let has_dealer = self.backends.dealer.is_some();
        let offering = match (self.backends.backends.is_empty(), self.backends.options.is_empty()) {
            (true, true) => {
                let registry = registry.clone();
                Offering::Beside(Beside { registry, has_dealer, allow_clear: self.backends.allow_clear })
            }
            (true, false) => Offering::Named(load::choose(registry, &[DEFAULT.to_owned()], &self.backends.options)?),
            (false, _) => Offering::Named(load::choose(registry, &self.backends.backends, &self.backends.options)?),
        };
        Ok(Files {
            models: self.models.clone(),
            offering,
            allow_clear: self.backends.allow_clear,
            has_dealer,
            warm_up: !self.jobs.no_warm_up,
            seal: self.storage.seal.clone(),
            keys: self.keys.clone(),
            loaded: BTreeMap::new(),
        })
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let hangups = Hangups::catch()?;
    let config = args.config()?;
    let mut files = args.files(&Registry::standard())?;
    let catalog = files.load(false)?;
    let names: Vec<String> = catalog.list().into_iter().map(|m| m.name).collect();
    let server = Server::bind(catalog, config)?.reloading(files);
    server.stop_on_signals(GRACE)?;
    server.reload_on(hangups);
    let line = match args.json {
        true => serde_json::json!({"listening": server.address(), "models": names}).to_string(),
        false => format!("listening on {} ({})", server.address(), names.join(", ")),
    };
    tacit_program::log::announce(line).context("starting a thread")?;
    server.run();
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().into_iter();
    if words.next().is_some_and(|first| first == "--front") {
        let args = front::Args::parse_from(name.chain(words));
        return tacit_program::log::run(|| {
            tacit_admission::raise_open_files();
            front::run(args)
        });
    }
    let args = Args::parse();
    tacit_program::log::run(|| {
        tacit_admission::raise_open_files();
        run(&args)
    })
}
