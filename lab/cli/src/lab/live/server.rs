//! A `tacit-server` process of one cell, and its control interface.
use super::dealer::Dealer;
use super::program::Program;
use anyhow::Context;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_backends::{Registry, Trust};
use tacit_cli::lowering::Lowering;
use tacit_client::Control;
use tacit_experiments::campaign;
use tacit_experiments::experiment::Scratch;
use tacit_store::keys::load_client;

const STATE_FILE: &str = "server.sqlite";

/// Dealings that the server runs at a time, in addition to its jobs on cores.
pub const DEALINGS: u32 = 4;

pub struct Start<'a> {
    pub models: &'a [PathBuf],
    pub lowering: &'a Lowering,
    pub policy: &'a str,
    pub cores: u32,
    pub connections: usize,
    pub core: Option<usize>,
    pub learned: Option<&'a Path>,
    pub dealer: Option<&'a Dealer>,
    pub log: &'a Path,
}

/// A running server; killed when dropped.
pub struct Server {
    program: Program,
    material: PathBuf,
}

impl Server {
    /// Starts a server on a free port of loopback, with the keys of the scratch folder, and waits
    /// until it listens.
    pub fn start(settings: &Start<'_>, scratch: &Scratch) -> anyhow::Result<Self> {
        let material = scratch.path().join("material");
        if material.exists() {
            fs::remove_dir_all(&material).context("removing an earlier server's material")?;
        }
        DirBuilder::new().mode(0o700).create(&material).context("making a folder for material")?;
        if let Some(learned) = settings.learned {
            fs::copy(learned.join(STATE_FILE), material.join(STATE_FILE))
                .with_context(|| format!("reading {}", learned.join(STATE_FILE).display()))?;
        }
        let arguments = settings.arguments(scratch, &material)?;
        let program = Program::start("tacit-server", arguments, settings.core, settings.log, scratch)?;
        Ok(Self { program, material })
    }

    pub fn address(&self) -> &str {
        &self.program.address
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Opens the server's control interface as the operator of the scratch folder.
    pub fn interface(&self, keys: &Path) -> anyhow::Result<Control> {
        Ok(Control::new(self.address(), &load_client(keys, "ops")?, None, Duration::from_secs(60))?)
    }

    /// Requests the server to end by itself, so that everything it has learned is on disk. Copies
    /// the profile to `learned` if given.
    pub fn stop(self, learned: Option<&Path>) -> anyhow::Result<()> {
        self.program.stop().context("stopping the server")?;
        if let Some(folder) = learned {
            let (source, target) = (self.material.join(STATE_FILE), folder.join(STATE_FILE));
            campaign::remove(&target)
                .and_then(|()| fs::copy(&source, &target))
                .with_context(|| format!("writing {}", target.display()))?;
        }
        Ok(())
    }
}

impl Start<'_> {
    fn arguments(&self, scratch: &Scratch, material: &Path) -> anyhow::Result<Vec<OsString>> {
        let Lowering { backend, seal, .. } = self.lowering;
        let mut arguments: Vec<OsString> = self.models.iter().map(Into::into).collect();
        let mut add_arguments = |words: &[&str]| arguments.extend(words.iter().map(Into::into));
        add_arguments(&["--strict-cores", "--no-warm-up", "--threads", "1", "--stall", "600"]);
        // Connections are ready before the first request, and some wait long for theirs.
        let connections = self.connections.to_string();
        add_arguments(&["--idle", "86400", "--notice-ttl", "86400", "--max-connections", &connections]);
        add_arguments(&["--policy", self.policy, "--cores", &self.cores.to_string(), "--backend", backend]);
        // No pool: a recording does not list what is dealt ahead of requests, so the simulator
        // could not repeat the run.
        add_arguments(&["--dealings", &DEALINGS.to_string(), "--pool", "0"]);
        for (key, value) in self.lowering.options()?.iter() {
            add_arguments(&["-O", &format!("{key}={value}")]);
        }
        if Registry::standard().get(backend)?.trust() == Trust::ServerSeesInput {
            add_arguments(&["--allow-clear"]);
        }
        arguments.extend(seal.arguments().into_iter().map(Into::into));
        arguments.extend(self.dealer.into_iter().flat_map(Dealer::arguments));
        for (option, path) in [("--keys", scratch.path().join("keys")), ("--material", material.to_owned())] {
            arguments.extend([option.into(), path.into()]);
        }
        Ok(arguments)
    }
}
