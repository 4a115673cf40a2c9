//! `tacit-sidecar`: answers Open Inference Protocol requests on this machine until it is stopped.
//! `tacit sidecar` starts it.
#![forbid(unsafe_code)]

use anyhow::{Context, bail, ensure};
use clap::Parser;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tacit_backends::Registry;
use tacit_client::{ClientConfig, MAX_THREADS};
use tacit_foreign::file;
use tacit_net::{NetError, Rate};
use tacit_program::args::{DealerArgs, DeviceArgs, ServerArgs, count};
use tacit_sidecar::access::{Access, Token};
use tacit_sidecar::energy::EnergyModel;
use tacit_sidecar::fleet::{Fleet, FleetConfig};
use tacit_sidecar::server::{self, Listener};
use tacit_store::{Party, SealKey, material_folder};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Most bytes of a labels file.
const MAX_LABELS: u64 = 16 << 20;

/// Answer Open Inference Protocol (KServe v2) requests on this machine by private inference at a
/// tacit server: the server sees no input
///
/// Traffic from applications to the sidecar is not encrypted. So the sidecar listens on this
/// machine only, and requires a token (in the header `Authorization: Bearer TOKEN`) or the right to
/// open its socket.
///
/// Example: tacit sidecar --server server.example:7878 --keys keys --client alice --token-file
/// token --new-token
#[derive(Parser)]
#[command(version, name = "tacit sidecar")]
struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dealer: DealerArgs,
    #[command(flatten)]
    material: MaterialArgs,
    /// Model to offer, with a back end unless the default choice is right; may be repeated
    /// [default: all models of the server]
    #[arg(long = "model", value_name = "NAME[=BACKEND]", help_heading = "Model")]
    models: Vec<String>,
    /// File with one class name per line, for a model; may be repeated
    #[arg(long = "labels", value_name = "MODEL=FILE", help_heading = "Output")]
    labels: Vec<String>,
    #[command(flatten)]
    listeners: ListenerArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    device_args: DeviceArgs,
    /// Profile of this machine (docs/lab.md), with /MODE if the mode is not the default one. With a
    /// profile the page shows joules, modelled from processor time and bytes
    #[arg(long, value_name = "PROFILE[/MODE]", help_heading = "Device", hide_short_help = true)]
    device: Option<String>,
    /// Print the line with the addresses as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct MaterialArgs {
    /// Folder of stored material [default: none, material is made when a request needs it]
    #[arg(long, value_name = "DIR", help_heading = "Material")]
    material: Option<PathBuf>,
    /// Encrypt stored material: KEY is a file's name, env:VARIABLE or cmd:COMMAND
    #[arg(long, value_name = "KEY", value_parser = SealKey::from_text, requires = "material")]
    #[arg(help_heading = "Material")]
    seal: Option<SealKey>,
    /// Most inputs of each model to make material for ahead of time; the server decides on the
    /// number, by the rate of this client's requests
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    #[arg(help_heading = "Material")]
    ready: u64,
    /// Batch size of material made ahead of time, for requests of several inputs that run as one
    /// batch. Single inputs do not use material of a larger size. Only one size is possible: with
    /// two sizes, batches would use up the material for single inputs first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(32))]
    #[arg(help_heading = "Material", hide_short_help = true)]
    ready_batch: usize,
}

#[derive(clap::Args)]
struct ListenerArgs {
    /// Address to listen on for HTTP; port 0 takes a free port and prints the address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", conflicts_with = "unix")]
    #[arg(help_heading = "Server")]
    listen: SocketAddr,
    /// Address to listen on for gRPC as well
    #[arg(long, value_name = "ADDRESS", requires = "token_file", help_heading = "Server")]
    grpc: Option<SocketAddr>,
    /// File with the token that requests must show; only its user may read the file (mode 0600)
    #[arg(long, value_name = "FILE", required_unless_present = "unix", help_heading = "Identity")]
    token_file: Option<PathBuf>,
    /// Make the token file if the file does not exist
    #[arg(long, requires = "token_file", help_heading = "Identity")]
    new_token: bool,
    /// Socket file for HTTP in place of an address; all users who may open the file may send
    /// requests
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    unix: Option<PathBuf>,
}

#[derive(clap::Args)]
struct WorkArgs {
    /// Number of connections to the server for each model
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = count(64))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    workers: usize,
    /// Most waiting inputs of each model, and the largest batch; the sidecar refuses further inputs
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = count(100_000))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    queue: usize,
    /// Threads for arithmetic of each connection
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64), help_heading = "Device")]
    threads: usize,
    /// Limit the rate of sending: 20mbit, 500kbit
    #[arg(long, value_name = "RATE", help_heading = "Link", hide_short_help = true)]
    pace: Option<Rate>,
}

impl Args {
    fn fleet_config(&self) -> anyhow::Result<FleetConfig> {
        let MaterialArgs { material, seal, ready, ready_batch } = &self.material;
        ensure!(*ready == 0 || material.is_some(), "--ready needs --material, the folder for this material");
        let ServerArgs { server, keys, client: name, server_name } = &self.server;
        let identity = self.server.identity()?;
        if let Some(dir) = material {
            // Refuses a folder of another purpose before the sidecar listens.
            material_folder(dir, Party::Client)?;
        }
        let resources =
            self.dealer.resources(&self.server, &identity, material.as_deref(), self.device_args.connect_timeout())?;
        let require = self.dealer.require();
        let mut client = ClientConfig { resources, require, ..ClientConfig::new(server, identity) };
        client.server_name.clone_from(server_name);
        client.store.clone_from(material);
        client.seal.clone_from(seal);
        client.threads = self.work.threads;
        client.pace = self.work.pace;
        self.device_args.apply(&mut client);
        let models = self.models.iter().map(|model| match model.split_once('=') {
            Some((name, backend)) => (name.to_owned(), Some(backend.to_owned())),
            None => (model.clone(), None),
        });
        let mut labels = BTreeMap::new();
        for option in &self.labels {
            let (model, name) = option.split_once('=').with_context(|| format!("--labels {option}: not MODEL=FILE"))?;
            let text =
                file::read_text(name.as_ref(), MAX_LABELS).with_context(|| format!("reading labels from {name}"))?;
            labels.insert(model.to_owned(), text.lines().map(str::to_owned).collect());
        }
        Ok(FleetConfig {
            registry: Registry::standard(),
            client,
            keys: Some((keys.clone(), name.clone())),
            models: models.collect(),
            labels,
            workers: self.work.workers,
            queue: self.work.queue,
            ready: usize::try_from(*ready)?,
            ready_batch: *ready_batch,
            energy: self.device.as_deref().map(EnergyModel::load).transpose()?,
        })
    }
}

impl ListenerArgs {
    fn token(&self) -> anyhow::Result<Option<Token>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        if self.new_token && !path.exists() {
            Token::make(path).with_context(|| format!("making the token file {}", path.display()))?;
        }
        Ok(Some(Token::read(path).with_context(|| format!("reading the token file {}", path.display()))?))
    }

    async fn listen_http(&self, token: Option<&Token>) -> anyhow::Result<(Listener, Access)> {
        if let Some(path) = &self.unix {
            let listener = Listener::unix(path).with_context(|| format!("listening on {}", path.display()))?;
            return Ok((listener, Access::unix()));
        }
        self.listen_tcp(self.listen, "--listen", token).await
    }

    async fn listen_tcp(
        &self,
        address: SocketAddr,
        option: &str,
        token: Option<&Token>,
    ) -> anyhow::Result<(Listener, Access)> {
        let Some(token) = token else { bail!("listening on {address} needs --token-file") };
        let listener = Listener::tcp(address).await.map_err(|e| NetError::cannot_listen(address, option, &e))?;
        let bound = listener.address().context("the address of the listener")?;
        Ok((listener, Access::tcp(bound, token.clone())))
    }
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let config = args.fleet_config()?;
    let token = args.listeners.token()?;
    let (listener, access) = args.listeners.listen_http(token.as_ref()).await?;
    let grpc = match args.listeners.grpc {
        Some(address) => Some(args.listeners.listen_tcp(address, "--grpc", token.as_ref()).await?),
        None => None,
    };
    let [mut interrupt, mut terminate] = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let (stop, stopped) = watch::channel(false);
    let fleet = Fleet::start(config).context("starting threads")?;
    announce(args, listener.address(), grpc.as_ref().and_then(|(listener, _)| listener.address()))?;
    let serving = server::serve(listener, server::http(&fleet, access), stopped.clone());
    let serving_grpc = async {
        if let Some((listener, access)) = grpc {
            server::serve(listener, server::grpc(&fleet, access), stopped).await;
        }
    };
    let stopping = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Fails if the listeners have ended.
        let _ = stop.send(true);
    };
    tokio::join!(serving, serving_grpc, stopping);
    fleet.stop();
    Ok(())
}

fn announce(args: &Args, http: Option<SocketAddr>, grpc: Option<SocketAddr>) -> anyhow::Result<()> {
    let location = http.map_or_else(
        || args.listeners.unix.as_ref().map_or_else(String::new, |path| format!("unix:{}", path.display())),
        |address| format!("http://{address}"),
    );
    let line = match args.json {
        true => json!({ "listening": location, "grpc": grpc }).to_string(),
        false => match grpc {
            Some(grpc) => format!("listening on {location} and for gRPC on {grpc}"),
            None => format!("listening on {location}"),
        },
    };
    tacit_program::log::announce(line).context("starting a thread")
}

fn main() -> ExitCode {
    let args = Args::parse();
    tacit_admission::raise_open_files();
    tacit_program::log::run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.context("starting the runtime")?;
        let result = runtime.block_on(run(&args));
        // Does not wait for a request that is still reading its input.
        runtime.shutdown_background();
        result
    })
}
