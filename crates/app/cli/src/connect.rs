//! Options and connections of every command that talks to a server.
use crate::owner::SealArgs;
use crate::print::{self, Patience};
use anyhow::Context;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_backends::Registry;
use tacit_client::{Client, ClientConfig, Connection, HelperLine, MAX_THREADS, Reconciled, SecretsFolder};
use tacit_measure::clock::process_cpu_s;
use tacit_net::Rate;
use tacit_program::args::{DealerArgs, DeviceArgs, ServerArgs, count};
use tacit_store::{DEFAULT_EXPIRY, SealKey};

#[derive(clap::Args)]
pub struct Connect {
    #[command(flatten)]
    server: ServerArgs,
    /// Model to use [default: the only model of the server]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Model")]
    model: Option<String>,
    /// Back end to use [default: the first private back end that the server offers for the model]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Model")]
    backend: Option<String>,
    /// Folder of stored material (see `tacit prepare`, `tacit material`)
    #[arg(long, global = true, value_name = "DIR", default_value = "material", help_heading = "Material")]
    material: PathBuf,
    #[command(flatten)]
    dealer: DealerArgs,
    #[command(flatten, next_help_heading = "Material")]
    seal: SealArgs,
    /// Threads for arithmetic
    #[arg(long, global = true, default_value_t = 1, value_parser = count(MAX_THREADS as u64))]
    #[arg(help_heading = "Device")]
    threads: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// Limit the rate of sending, to cap power: 20mbit, 500kbit
    #[arg(long, global = true, value_name = "RATE", help_heading = "Link", hide_short_help = true)]
    pace: Option<Rate>,
    /// Seconds that connecting may take [default: 10, with --link slow 150]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    connect_timeout: Option<u64>,
    /// Longest time without progress of the server, in seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    stall: u64,
    /// Longest wait, in seconds, for a server that sends nothing but keepalives: other jobs come
    /// first, or the server computes
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    patience: u64,
}

impl Connect {
    #[cfg(test)]
    pub fn named(&self) -> (&str, &str, Option<&str>) {
        (&self.server.server, self.server.keys.to_str().expect("tests give UTF-8"), self.model.as_deref())
    }

    pub fn material(&self) -> &Path {
        &self.material
    }

    pub fn seal(&self) -> Option<&SealKey> {
        self.seal.key()
    }

    /// Returns the client's secrets for the keys that servers keep.
    pub fn secrets(&self) -> SecretsFolder {
        SecretsFolder::new(&self.material, self.seal.key().cloned(), DEFAULT_EXPIRY)
    }

    /// Connects. Uses the material folder if it exists or `make_store` is set.
    pub fn connection(&self, make_store: bool) -> anyhow::Result<Connection> {
        let identity = self.server.identity()?;
        let mut config = ClientConfig::new(&self.server.server, identity.clone());
        config.server_name.clone_from(&self.server.server_name);
        config.store = (make_store || self.material.exists()).then(|| self.material.clone());
        config.resources =
            self.dealer.resources(&self.server, &identity, config.store.as_deref(), self.connect_timeout())?;
        config.require = self.dealer.require();
        config.seal = self.seal.key().cloned();
        // Secrets are kept whether or not there is stored material.
        config.resources.secrets = Some(Arc::new(self.secrets()));
        config.pace = self.pace;
        config.threads = self.threads;
        self.device.apply(&mut config);
        config.connect_timeout = self.connect_timeout();
        config.stall_timeout = Duration::from_secs(self.stall);
        config.patience = Duration::from_secs(self.patience);
        let (server, seconds) = (&self.server.server, self.connect_timeout().as_secs());
        let _connecting = Patience::start(format!("connecting to {server}, for {seconds} s at most..."));
        let connection = Connection::connect(Registry::standard(), config)?;
        if let Some(Reconciled { destroyed_here, destroyed_there }) = connection.reconciliation()
            && destroyed_here + destroyed_there > 0
        {
            print::note(&format!(
                "note: material that had lost its other half was destroyed: {destroyed_here} here, {destroyed_there} at the server"
            ));
        }
        Ok(connection)
    }

    fn connect_timeout(&self) -> Duration {
        self.connect_timeout.map_or_else(|| self.device.connect_timeout(), Duration::from_secs)
    }

    pub fn helper(&self, address: &str) -> anyhow::Result<HelperLine> {
        let stall = Duration::from_secs(self.stall);
        Ok(HelperLine::connect(address, &self.server.identity()?, self.connect_timeout(), stall)?)
    }

    pub fn names_dealer(&self) -> bool {
        self.dealer.is_named()
    }

    /// Returns the model and the back ends that the server offers for it. Works only if no back end
    /// was named.
    pub fn list_offered(&self) -> anyhow::Result<(String, Vec<String>)> {
        if let Some(backend) = &self.backend {
            anyhow::bail!(
                "--backend {backend} leaves nothing to choose: leave out --backend, or --client-work and the budgets"
            );
        }
        let mut connection = self.connection(false)?;
        let name = self.name(&mut connection)?;
        let offered_model = connection.models()?.into_iter().find(|model| model.name == name);
        connection.close()?;
        let info = offered_model.with_context(|| format!("the server has no model {name:?}"))?;
        Ok((name, info.backends.into_iter().map(|offer| offer.backend).collect()))
    }

    /// The given model, or the server's only one.
    fn name(&self, connection: &mut Connection) -> anyhow::Result<String> {
        if let Some(name) = &self.model {
            return Ok(name.clone());
        }
        match connection.models()?.as_slice() {
            [model] => Ok(model.name.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|m| m.name.as_str()).collect();
                anyhow::bail!("the server has several models; choose one with --model: {}", names.join(", "));
            }
        }
    }

    /// Connects and opens the model. Uses the material folder if it exists or `make_store` is set.
    pub fn open(&self, make_store: bool) -> anyhow::Result<(Client, Startup)> {
        self.open_with(make_store, self.backend.as_deref())
    }

    /// As [`Self::open`], with this back end.
    pub fn open_with(&self, make_store: bool, backend: Option<&str>) -> anyhow::Result<(Client, Startup)> {
        let start = Instant::now();
        let mut connection = self.connection(make_store)?;
        let connected = start.elapsed();
        let _opening = Patience::start(format!("opening the model at {}...", self.server.server));
        let name = self.name(&mut connection)?;
        let client = connection.open(&name, backend)?;
        let open = start.elapsed() - connected;
        let cpu_s = process_cpu_s();
        Ok((client, Startup { connect_s: connected.as_secs_f64(), open_s: open.as_secs_f64(), inputs_s: 0.0, cpu_s }))
    }
}

/// The steps before the first phase: once for each command, however many inputs it has.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Startup {
    /// TCP, TLS, the version exchange, and comparing the stored material of both parties.
    connect_s: f64,
    /// Receiving the model's public part, checking and planning it.
    open_s: f64,
    pub inputs_s: f64,
    /// Processor time of this process for all of these steps.
    pub cpu_s: f64,
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect_s, open_s, inputs_s, cpu_s } = self;
        let total_s = connect_s + open_s + inputs_s;
        write!(
            f,
            "startup  {total_s:>8.3} s  CPU {cpu_s:>7.3} s: connecting {connect_s:.3} s, opening the model {open_s:.3} s"
        )?;
        if *inputs_s > 0.0 {
            write!(f, ", reading inputs {inputs_s:.3} s")?;
        }
        Ok(())
    }
}
