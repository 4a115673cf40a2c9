//! `tacit helper`: runs a client's offline phase on a second machine.
use crate::print;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use tacit_args::{DeviceArgs, ServerArgs, count};
use tacit_backends::Registry;
use tacit_client::{ClientConfig, HelperServer, HelperServerConfig, MAX_THREADS};
use tacit_store::{EXPIRE, keys};

/// Does a client's offline phase in its place, on a second machine of its own: a home server, a gateway.
///
/// It takes orders of its owner alone (`tacit prepare --helper`), makes material with the server, and keeps
/// it sealed until the owner has it. Its certificate says whose helper it is (`tacit keys add-helper`).
/// Helper and server together learn the inputs of whoever uses material that was made here: run it where
/// nobody else can look. Ending it loses what was ordered and not made yet, and nothing else.
///
/// Example: tacit helper --server server.example:7878 --keys keys --client gateway --listen 0.0.0.0:7880
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Address to listen on for its owner; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7880")]
    listen: SocketAddr,
    /// Folder for sealed material that its owner has not fetched yet
    #[arg(long, value_name = "DIR", default_value = "helper")]
    folder: PathBuf,
    /// Threads for arithmetic
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64))]
    threads: usize,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    tacit_admission::raise_open_files();
    let (identity, tls, owner) = keys::load_helper(&args.server.keys, &args.server.client)?;
    let mut server = ClientConfig::new(&args.server.server, identity);
    server.server_name.clone_from(&args.server.server_name);
    server.threads = args.threads;
    args.device.apply(&mut server);
    let config = HelperServerConfig { listen: args.listen, tls, owner, folder: args.folder, server, expire: EXPIRE };
    let home = HelperServer::bind(Registry::standard(), config)?;
    let address = home.address()?;
    print::line(&match as_json {
        true => json!({"listening": address, "owner": owner.to_string()}).to_string(),
        false => format!("listening on {address} for client {owner}"),
    })?;
    Ok(home.run()?)
}
