//! `tacit helper`: runs a client's offline phase on a second machine.
use crate::print;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use tacit_backends::Registry;
use tacit_client::{ClientConfig, HelperServer, HelperServerConfig, MAX_THREADS};
use tacit_program::args::{DeviceArgs, ServerArgs, count};
use tacit_store::{DEFAULT_EXPIRY, keys};

/// Run a client's offline phases on a second machine of the client, such as a gateway
///
/// The helper takes orders only from its owner (`tacit prepare --helper`). It makes material with
/// the server, and keeps the material sealed until the owner fetches it. The helper's certificate
/// names the owner (`tacit keys add-helper`). Helper and server together can learn the inputs that
/// use this material, so run the helper where nobody else has access. A stop of the helper loses
/// only orders that are not made yet.
///
/// Example: tacit helper --server server.example:7878 --keys keys --client gateway --listen 0.0.0.0:7880
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Address to listen on for the owner; port 0 takes a free port and prints the address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7880", help_heading = "Server")]
    listen: SocketAddr,
    /// Folder of sealed material that the owner has not fetched yet
    #[arg(long, value_name = "DIR", default_value = "helper", help_heading = "Material")]
    folder: PathBuf,
    /// Threads for arithmetic
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64), help_heading = "Device")]
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
    let config =
        HelperServerConfig { listen: args.listen, tls, owner, folder: args.folder, server, expire: DEFAULT_EXPIRY };
    let home = HelperServer::bind(Registry::standard(), config)?;
    let address = home.address()?;
    let value = json!({"listening": address, "owner": owner.to_string()});
    print::row(as_json, &value, &format!("listening on {address} for client {owner}"))?;
    Ok(home.run()?)
}
