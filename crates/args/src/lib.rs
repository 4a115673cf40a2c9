//! Arguments that several programs take, and what is made of them.
#![forbid(unsafe_code)]

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_backends::{ConnectionResources, Options};
use tacit_client::ClientConfig;
use tacit_client::wire::LinkClass;
use tacit_ids::ClientId;
use tacit_store::keys::{self, ClientIdentity};

/// Takes whole numbers from 1 to `most`, and names that range where it refuses one.
#[must_use]
pub fn count(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// Which server, and who asks.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// Server, host:port
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7878")]
    pub server: String,
    /// Folder with ca.pem and the certificate and key of who asks
    #[arg(long, global = true, value_name = "DIR", default_value = "keys")]
    pub keys: PathBuf,
    /// Name of who asks in the key folder; where a server is looked at, an operator sees all, a client what
    /// is its own
    #[arg(long, global = true, value_name = "NAME", default_value = "client")]
    pub client: String,
    /// Name in the server's certificate, if it is not the host of --server
    #[arg(long, global = true, value_name = "NAME")]
    pub server_name: Option<String>,
}

impl ServerArgs {
    /// The identity of who asks.
    ///
    /// # Errors
    /// The key folder has none of this name, or one that cannot be used.
    pub fn identity(&self) -> anyhow::Result<ClientIdentity> {
        Ok(keys::load_client(&self.keys, &self.client)?)
    }
}

/// What a client tells the server of its machine, for the server's estimates.
#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Link to the server, roughly, for its estimates; over a slow one connecting may take 150 s
    #[arg(long, global = true, value_enum, default_value_t = LinkArg::Lan)]
    link: LinkArg,
    /// Memory of this device in MiB, for the server's estimates and the size of batches [default: all that
    /// the machine has]
    #[arg(long, global = true, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    device_memory: Option<u32>,
    /// Take the clock of this machine for right, though it shows a time more than a week from when the folder
    /// of material was last used: what is too old by it expires
    #[arg(long, global = true)]
    accept_clock: bool,
}

impl DeviceArgs {
    /// How long connecting may take over its link.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        LinkClass::from(self.link).connect_timeout()
    }

    /// Notes it for the connections of a client.
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
    /// Less than that
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

/// What a client relies on: the dealer that it trusts, for back ends whose material comes from one, and
/// options.
#[derive(clap::Args)]
pub struct DealerArgs {
    /// Dealer that this client trusts, host:port, for models whose material comes from one (back ends `dealt`
    /// and `fss`)
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "dealer_pin")]
    dealer: Option<String>,
    /// Fingerprint of the dealer's key, as the dealer tells it
    #[arg(long, global = true, value_name = "PIN", requires = "dealer")]
    dealer_pin: Option<ClientId>,
    /// Folder with ca.pem and this client's certificate for the dealer, where that has a CA of its own
    /// [default: that of --keys]
    #[arg(long, global = true, value_name = "DIR", requires = "dealer")]
    dealer_keys: Option<PathBuf>,
    /// What the model must have been lowered with, e.g. level=l2 of `fss`, where the server is checked as
    /// well: the server says what it was, so a client that relies on it has to ask. `public=` pins the digest
    /// of what clients get of the model (64 hexadecimal digits)
    #[arg(long, global = true, value_name = "KEY=VALUE,...")]
    require: Option<Options>,
}

impl DealerArgs {
    /// What a client that asks as `who` uses beside its connection; `keep` is its folder of material, and
    /// connecting to the dealer may take `within`.
    ///
    /// # Errors
    /// The key folder for the dealer has no such client; the dealer's address is none.
    pub fn resources(
        &self,
        who: &ServerArgs,
        identity: &ClientIdentity,
        keep: Option<&Path>,
        within: Duration,
    ) -> anyhow::Result<ConnectionResources> {
        let dealer = self.dealer.as_deref().zip(self.dealer_pin);
        let apart = self.dealer_keys.as_deref().map(|folder| keys::load_client(folder, &who.client)).transpose()?;
        Ok(tacit_client::resources_within(within, dealer, apart.as_ref().unwrap_or(identity), keep)?)
    }

    /// Whether a dealer was named.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.dealer.is_some()
    }

    /// What a model must have been lowered with.
    #[must_use]
    pub fn require(&self) -> Options {
        self.require.clone().unwrap_or_default()
    }
}
