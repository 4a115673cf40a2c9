//! `tacit serve`
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tacit_backends::cheetah::Cheetah;
use tacit_net::Rate;
use tacit_serve::{Catalog, Server, ServerConfig};
use tacit_store::keys;

/// How long running phases may take after an interrupt.
const GRACE: Duration = Duration::from_secs(30);

/// Serves `.tacit` files, each under its file name, until it is interrupted.
///
/// Example: tacit serve digits.tacit squeezenet.tacit --keys keys --listen 0.0.0.0:7878
#[derive(clap::Args)]
pub struct Args {
    /// Model files; their weights stay in this process
    #[arg(required = true, value_name = "FILE.tacit")]
    models: Vec<PathBuf>,
    /// Folder with ca.pem, server.pem and server.key
    #[arg(long, value_name = "DIR", default_value = "keys")]
    keys: PathBuf,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    listen: SocketAddr,
    /// Folder for the server's half of material made ahead of time; without it, clients cannot prepare
    #[arg(long, value_name = "DIR")]
    material: Option<PathBuf>,
    /// Threads for each client's arithmetic
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Send at most this fast to each client, to cap power on purpose: 20mbit, 500kbit
    #[arg(long, value_name = "RATE")]
    pace: Option<Rate>,
    /// Connections served at the same time
    #[arg(long, default_value_t = 64)]
    max_connections: usize,
    /// Seconds that a client may make no progress inside a phase
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    stall: u64,
    /// Seconds that a client may be silent between requests
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    idle: u64,
    /// Materials that one client may have on disk
    #[arg(long, default_value_t = 256)]
    quota: usize,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let mut config = ServerConfig::new(args.listen, Some(keys::load_server(&args.keys)?));
    config.store = args.material;
    config.pace = args.pace;
    config.threads = args.threads.max(1);
    config.max_connections = args.max_connections;
    config.stall_timeout = Duration::from_secs(args.stall.max(1));
    config.idle_timeout = Duration::from_secs(args.idle.max(1));
    config.stored_per_client = args.quota;
    let mut catalog = Catalog::new(Cheetah::default());
    for path in &args.models {
        catalog.add_file(path)?;
    }
    let names: Vec<String> = catalog.list().into_iter().map(|m| m.name).collect();
    let server = Server::bind(catalog, config)?;
    // Scripts wait for this line and read the address from it.
    println!("listening on {} ({})", server.address(), names.join(", "));
    std::io::stdout().flush()?;
    let (handle, (stop, stopped)) = (server.handle(), mpsc::channel());
    ctrlc::set_handler(move || {
        // A second signal finds nobody listening, and the shutdown goes on.
        let _ = stop.send(());
    })?;
    let stopper = thread::spawn(move || {
        if stopped.recv().is_ok() {
            eprintln!("stopping: running inferences have {} s to finish", GRACE.as_secs());
            handle.shutdown(GRACE);
        }
    });
    server.run();
    stopper.join().map_err(|_| anyhow::anyhow!("the shutdown failed"))
}
