//! `tacit keys`
use crate::print;
use clap::Subcommand;
use serde_json::{Value, json};
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
    /// Make a certificate for a further client, or for an operator
    ///
    /// Example: tacit keys add-client keys carol, or tacit keys add-client keys ops --operator
    AddClient {
        /// Folder with the CA
        dir: PathBuf,
        /// Name of the client
        name: String,
        /// One who may also see everything of a server but inputs and results, and change its policy
        /// (`tacit status`, `tacit top`)
        #[arg(long)]
        operator: bool,
    },
    /// Make certificates for a dealer, and for the server as its customer
    ///
    /// The dealer gets ca.pem, dealer.pem and dealer.key, the server orders.pem and orders.key; everybody
    /// else the fingerprint that is printed, to pin.
    ///
    /// Example: tacit keys add-dealer keys --host dealer.example
    AddDealer {
        /// Folder with the CA
        dir: PathBuf,
        /// Name or address that the dealer is reached by (localhost and 127.0.0.1 are always in)
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Show the fingerprint by which the server knows a client
    ///
    /// Example: tacit keys fingerprint keys alice
    Fingerprint {
        /// Folder with the client's keys
        dir: PathBuf,
        /// Name of the client
        #[arg(default_value = "client")]
        name: String,
    },
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Init { dir, hosts, clients } => {
            keys::init(&dir, &hosts, &clients)?;
            let made = clients.iter().map(|name| fingerprint(&dir, name)).collect::<anyhow::Result<Vec<_>>>()?;
            if as_json {
                let clients = made.iter().map(|(name, print)| json!({"client": name, "fingerprint": print}));
                return print::json(&json!({"folder": dir, "clients": clients.collect::<Vec<Value>>()}));
            }
            print::line(&format!("made a CA and a server certificate in {}", dir.display()))?;
            made.iter().try_for_each(|(name, print)| print::line(&format!("client {name}: {print}")))?;
            print::line(
                "ca.key signs clients: keep it where certificates are made. A client needs ca.pem and its own two files.",
            )
        }
        Command::AddClient { dir, name, operator } => {
            let add = if operator { keys::add_operator } else { keys::add_client };
            add(&dir, &name)?;
            show(&dir, &name, as_json)
        }
        Command::AddDealer { dir, hosts } => {
            keys::add_dealer(&dir, &hosts)?;
            let pin = keys::dealer_pin(&dir)?.to_string();
            match as_json {
                true => print::json(&json!({"dealer": pin})),
                false => print::line(&format!("dealer: {pin}")),
            }
        }
        Command::Fingerprint { dir, name } => show(&dir, &name, as_json),
    }
}

/// A client's name, and the fingerprint of its certificate.
fn fingerprint(dir: &Path, name: &str) -> anyhow::Result<(String, String)> {
    Ok((name.to_owned(), keys::load_client(dir, name)?.fingerprint.to_string()))
}

fn show(dir: &Path, name: &str, as_json: bool) -> anyhow::Result<()> {
    let (name, fingerprint) = fingerprint(dir, name)?;
    match as_json {
        true => print::json(&json!({"client": name, "fingerprint": fingerprint})),
        false => print::line(&format!("client {name}: {fingerprint}")),
    }
}
