//! `tacit keys`
use crate::print;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use tacit_store::keys;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a folder with a new CA, a server certificate and client certificates
    ///
    /// Example: tacit keys init keys --host server.example --client alice --client bob
    Init {
        /// Folder to make
        dir: PathBuf,
        /// Name or address that clients reach the server by (localhost and 127.0.0.1 are always in)
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// Name of a client
        #[arg(long = "client", value_name = "NAME", default_value = "client")]
        clients: Vec<String>,
    },
    /// Make a certificate for a further client
    ///
    /// Example: tacit keys add-client keys carol
    AddClient {
        /// Folder with the CA
        dir: PathBuf,
        /// Name of the client
        name: String,
    },
    /// Show the fingerprint by which the server knows a client
    Fingerprint {
        /// Folder with the client's keys
        dir: PathBuf,
        /// Name of the client
        #[arg(default_value = "client")]
        name: String,
    },
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Init { dir, hosts, clients } => {
            keys::init(&dir, &hosts, &clients)?;
            print::line(&format!("made a CA and a server certificate in {}", dir.display()))?;
            clients.iter().try_for_each(|name| show(&dir, name))?;
            print::line(
                "ca.key signs clients: keep it where certificates are made. A client needs ca.pem and its own two files.",
            )?;
        }
        Command::AddClient { dir, name } => {
            keys::add_client(&dir, &name)?;
            show(&dir, &name)?;
        }
        Command::Fingerprint { dir, name } => show(&dir, &name)?,
    }
    Ok(())
}

fn show(dir: &Path, name: &str) -> anyhow::Result<()> {
    let identity = keys::load_client(dir, name)?;
    print::line(&format!("client {name}: {}", identity.fingerprint))?;
    Ok(())
}
