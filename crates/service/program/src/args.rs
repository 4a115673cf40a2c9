//! Command line arguments that several programs share, and their conversion.
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_backends::{ConnectionResources, Options};
use tacit_client::ClientConfig;
use tacit_client::wire::LinkClass;
use tacit_ids::ClientId;
use tacit_store::keys::{self, ClientIdentity};

/// Parses whole numbers from 1 to `max`; an error names that range.
#[must_use]
pub fn count(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

/// The server, and the client's identity.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// Server to connect to, host:port
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7878", help_heading = "Server")]
    pub server: String,
    /// Folder with ca.pem and the client's certificate and key
    #[arg(long, global = true, value_name = "DIR", default_value = "keys", help_heading = "Identity")]
    pub keys: PathBuf,
    /// Name of the client or operator in the key folder
    #[arg(long, global = true, value_name = "NAME", default_value = "client", help_heading = "Identity")]
    pub client: String,
    /// Name in the server's certificate, if the name differs from the host of --server
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server", hide_short_help = true)]
    pub server_name: Option<String>,
}

impl ServerArgs {
    /// Loads the client's identity.
    ///
    /// # Errors
    /// The key folder has no identity of this name, or an unusable one.
    pub fn identity(&self) -> anyhow::Result<ClientIdentity> {
        Ok(keys::load_client(&self.keys, &self.client)?)
    }
}

/// Properties of the client's machine, for the server's estimates.
#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Class of the link to the server, for the server's estimates; with `slow`, connecting may
    /// take 150 s
    #[arg(long, global = true, value_enum, default_value_t = LinkArg::Lan, help_heading = "Link")]
    link: LinkArg,
    /// Memory of this device in MiB, for the server's estimates and the size of batches [default:
    /// all memory of the machine]
    #[arg(long, global = true, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = "Device", hide_short_help = true)]
    device_memory: Option<u32>,
    /// Accept this machine's clock although the clock is more than a week off the last use of the
    /// material folder. Material that is too old by this clock expires
    #[arg(long, global = true, help_heading = "Device", hide_short_help = true)]
    accept_clock: bool,
}

impl DeviceArgs {
    /// How long connecting may take over the given link.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        LinkClass::from(self.link).connect_timeout()
    }

    /// Applies these arguments to a client's configuration.
    pub fn apply(&self, config: &mut ClientConfig) {
        config.link = self.link.into();
        config.connect_timeout = self.connect_timeout();
        config.accept_clock = self.accept_clock;
        config.memory = self.device_memory.map(|mib| u64::from(mib) << 20);
    }
}

/// A class of links.
#[derive(Clone, Copy, ValueEnum)]
pub enum LinkArg {
    /// At least about 100 Mbit/s, a few milliseconds
    Lan,
    /// Tens of Mbit/s, tens of milliseconds
    Broadband,
    /// Slower links
    Slow,
}

impl From<LinkArg> for LinkClass {
    fn from(link: LinkArg) -> Self {
        match link {
            LinkArg::Lan => Self::Lan,
            LinkArg::Broadband => Self::Broadband,
            LinkArg::Slow => Self::Slow,
        }
    }
}

/// The dealer that the client trusts, for back ends with material from one, and the options that it
/// requires.
#[derive(clap::Args)]
pub struct DealerArgs {
    /// Dealer that this client trusts, host:port, for the back ends `dealt` and `fss`
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "dealer_pin", help_heading = "Material")]
    dealer: Option<String>,
    /// Fingerprint of the dealer's key, as the dealer prints it
    #[arg(long, global = true, value_name = "PIN", requires = "dealer", help_heading = "Material")]
    dealer_pin: Option<ClientId>,
    /// Folder with ca.pem and this client's certificate for the dealer, if the dealer has its own
    /// CA [default: the folder of --keys]
    #[arg(long, global = true, value_name = "DIR", requires = "dealer")]
    #[arg(help_heading = "Material", hide_short_help = true)]
    dealer_keys: Option<PathBuf>,
    /// Options that the model's lowering must have, e.g. level=l2 of `fss`, which also checks the
    /// server. The server chooses the options, so a client must require each option that it relies
    /// on. `public=` pins the digest of the model's public part (64 hexadecimal digits)
    #[arg(long, global = true, value_name = "KEY=VALUE,...", help_heading = "Model", hide_short_help = true)]
    require: Option<Options>,
}

impl DealerArgs {
    /// Makes the connection resources of the client that `server` names. `identity` serves for the
    /// dealer too, unless there is a key folder of its own. `material_dir` is the client's folder of
    /// material; connecting to the dealer may take `timeout`.
    ///
    /// # Errors
    /// The key folder for the dealer has no such client; the dealer's address is invalid.
    pub fn resources(
        &self,
        server: &ServerArgs,
        identity: &ClientIdentity,
        material_dir: Option<&Path>,
        timeout: Duration,
    ) -> anyhow::Result<ConnectionResources> {
        let dealer = self.dealer.as_deref().zip(self.dealer_pin);
        let dealer_identity =
            self.dealer_keys.as_deref().map(|folder| keys::load_client(folder, &server.client)).transpose()?;
        Ok(tacit_client::resources_within(timeout, dealer, dealer_identity.as_ref().unwrap_or(identity), material_dir)?)
    }

    /// Whether the arguments name a dealer.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.dealer.is_some()
    }

    /// The options that a model must be lowered with.
    #[must_use]
    pub fn require(&self) -> Options {
        self.require.clone().unwrap_or_default()
    }
}
