//! `tacit keys`: makes CAs, certificates and their keys.
use crate::print;
use clap::Subcommand;
use clap::builder::RangedI64ValueParser;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tacit_store::Role;
use tacit_store::keys::{self, CertificateInfo, Validity};

#[derive(clap::Args)]
#[command(after_help = "Example: tacit keys init keys --host server.example --client alice")]
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
        /// Name or address that clients reach the server by; localhost and 127.0.0.1 are always
        /// included
        #[arg(long = "host", value_name = "HOST", help_heading = "Identity")]
        hosts: Vec<String>,
        /// Name of a client; may be repeated
        #[arg(long = "client", value_name = "NAME", default_value = "client", help_heading = "Identity")]
        clients: Vec<String>,
    },
    /// Make a certificate for a further client, or for an operator
    ///
    /// Example: tacit keys add-client keys carol --days 30, or tacit keys add-client keys ops --operator
    AddClient {
        /// Folder with the CA
        dir: PathBuf,
        /// Name of the client
        name: String,
        /// Make the certificate of an operator, who may see all of a server but inputs and results,
        /// and change its policy (`tacit status`, `tacit top`)
        #[arg(long, help_heading = "Identity")]
        operator: bool,
        /// Days that the certificate is valid [default: ten years]
        #[arg(long, value_name = "DAYS", value_parser = days(), help_heading = "Identity")]
        days: Option<u32>,
    },
    /// Make a new certificate for the existing key of a client or of the server
    ///
    /// The fingerprint stays the same, so rules of access, quotas and stored material stay valid.
    /// Only NAME.pem must reach the machine that uses the certificate: a server reads the file on
    /// `tacit reload`, a sidecar by itself. If somebody else may have the key, revoke the client
    /// (docs/serving.md) and add another client.
    ///
    /// Example: tacit keys renew keys alice --days 7
    Renew {
        /// Folder with the CA and the certificate
        dir: PathBuf,
        /// Name of the client, or `server`
        name: String,
        /// Days that the certificate is valid [default: ten years]
        #[arg(long, value_name = "DAYS", value_parser = days(), help_heading = "Identity")]
        days: Option<u32>,
    },
    /// Show the certificates of a folder: purpose, holder, end of validity, fingerprint and serial
    /// number
    ///
    /// Example: tacit keys show keys, or tacit keys show keys alice --json
    Show {
        /// Folder with certificates; no private key is read
        dir: PathBuf,
        /// Name of one certificate to show [default: all]
        name: Option<String>,
    },
    /// Make certificates for a dealer, and for the server as its customer
    ///
    /// The dealer gets ca.pem, dealer.pem and dealer.key. The server gets orders.pem and
    /// orders.key. Server and clients pin the fingerprint that the command prints.
    ///
    /// Example: tacit keys add-dealer keys --host dealer.example
    AddDealer {
        /// Folder with the CA
        dir: PathBuf,
        /// Name or address that clients and server reach the dealer by; localhost and 127.0.0.1 are
        /// always included
        #[arg(long = "host", value_name = "HOST", help_heading = "Identity")]
        hosts: Vec<String>,
    },
    /// Make a certificate for a client's helper, a second machine of the client that makes its
    /// material
    ///
    /// The helper may run setup and offline phases for the models of its owner, and nothing else.
    /// The helper gets ca.pem, NAME.pem and NAME.key. After a revocation (docs/serving.md) the
    /// server refuses the helper and destroys the material of the helper that its owner has not
    /// used.
    ///
    /// Example: tacit keys add-helper keys gateway --of alice --host gateway.local --days 30
    AddHelper {
        /// Folder with the CA
        dir: PathBuf,
        /// Name of the helper
        name: String,
        /// Name of the client that owns the helper
        #[arg(long, value_name = "NAME", help_heading = "Identity")]
        of: String,
        /// Name or address that the client reaches the helper by
        #[arg(long = "host", value_name = "HOST", required = true, help_heading = "Identity")]
        hosts: Vec<String>,
        /// Days that the certificate is valid
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = days(), help_heading = "Identity")]
        days: u32,
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
            let fingerprints =
                clients.iter().map(|name| fingerprint(&dir, name)).collect::<anyhow::Result<Vec<_>>>()?;
            if as_json {
                let clients = fingerprints.iter().map(|(name, print)| json!({"client": name, "fingerprint": print}));
                return print::json(&json!({"folder": dir, "clients": clients.collect::<Vec<Value>>()}));
            }
            print::line(&format!("made a CA and a server certificate in {}", dir.display()))?;
            fingerprints.iter().try_for_each(|(name, print)| print::line(&format!("client {name}: {print}")))?;
            print::line(
                "ca.key signs clients: keep it where certificates are made. A client needs ca.pem and its own two files.",
            )
        }
        Command::AddClient { dir, name, operator, days } => {
            let role = if operator { Role::Operator } else { Role::Client };
            keys::add(&dir, &name, role, days.map(Validity::for_days).transpose()?)?;
            print_one(&dir, &name, as_json)
        }
        Command::AddHelper { dir, name, of: owner_name, hosts, days } => {
            keys::add_helper(&dir, &name, &owner_name, &hosts, Some(Validity::for_days(days)?))?;
            let certificate = keys::load_helper(&dir, &name)?;
            let (print, owner) = (certificate.0.fingerprint.to_string(), certificate.2.to_string());
            let value = json!({"helper": name, "fingerprint": print, "owner": owner});
            print::json_or_line(as_json, &value, &format!("helper {name}: {print}, of client {owner}"))
        }
        Command::AddDealer { dir, hosts } => {
            keys::add_dealer(&dir, &hosts)?;
            let pin = keys::dealer_pin(&dir)?.to_string();
            print::json_or_line(as_json, &json!({"dealer": pin}), &format!("dealer: {pin}"))
        }
        Command::Renew { dir, name, days } => {
            keys::renew(&dir, &name, days.map(Validity::for_days).transpose()?)?;
            show(&dir, Some(&name), as_json)
        }
        Command::Show { dir, name } => show(&dir, name.as_deref(), as_json),
        Command::Fingerprint { dir, name } => print_one(&dir, &name, as_json),
    }
}

/// Parses a number of days, from 1 to ten years.
fn days() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=3650)
}

fn show(dir: &Path, name: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let certificates = keys::show(dir, name)?;
    if as_json {
        let rows: Vec<Value> = certificates.iter().map(row).collect();
        return print::json(&json!({ "certificates": rows }));
    }
    for certificate in &certificates {
        let hosts = match certificate.hosts.as_slice() {
            [] => String::new(),
            hosts => format!("  for {}", hosts.join(", ")),
        };
        let advice = certificate.validity.advice(&certificate.name)?.map(|advice| format!("\n  note: {advice}"));
        print::line(&format!(
            "{:<12} {:<9} until {}  {}  serial {}{hosts}{}",
            certificate.name,
            certificate.purpose,
            certificate.validity.until_utc(),
            certificate.fingerprint,
            certificate.serial,
            advice.unwrap_or_default()
        ))?;
    }
    Ok(())
}

fn row(certificate: &CertificateInfo) -> Value {
    json!({
        "name": certificate.name,
        "purpose": certificate.purpose.to_string(),
        "fingerprint": certificate.fingerprint.to_string(),
        "serial": certificate.serial.to_string(),
        "valid_from": certificate.validity.from,
        "valid_until": certificate.validity.until,
        "hosts": certificate.hosts,
    })
}

/// Returns a client's name and the fingerprint of its certificate.
fn fingerprint(dir: &Path, name: &str) -> anyhow::Result<(String, String)> {
    Ok((name.to_owned(), keys::load_client(dir, name)?.fingerprint.to_string()))
}

fn print_one(dir: &Path, name: &str, as_json: bool) -> anyhow::Result<()> {
    let (name, fingerprint) = fingerprint(dir, name)?;
    let value = json!({"client": name, "fingerprint": fingerprint});
    print::json_or_line(as_json, &value, &format!("client {name}: {fingerprint}"))
}
