//! A `tacit-server` process of one cell, and what it says of itself.
use super::pin;
use crate::lowering::Lowering;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::{Registry, Trust};
use tacit_client::Control;
use tacit_lab::campaign;
use tacit_lab::experiment::{Scratch, Ward};
use tacit_store::keys::load_client;

/// How long a server that is told to stop may take; it gives its jobs 30 s.
const STOP: Duration = Duration::from_secs(45);
/// What its learned profile is kept in.
const STATE: &str = "server.sqlite";

/// How to start one.
pub struct Start<'a> {
    pub models: &'a [PathBuf],
    pub lowering: &'a Lowering,
    pub policy: &'a str,
    /// Jobs at a time.
    pub cores: u32,
    /// Clients' connections.
    pub connections: usize,
    /// The core that it stays on.
    pub core: Option<usize>,
    /// Folder of what an earlier server has learned.
    pub learned: Option<&'a Path>,
    /// What it says on standard error goes here.
    pub log: &'a Path,
}

/// A server that runs; dropped, it is killed.
pub struct Server {
    child: Child,
    _ward: Ward,
    address: String,
    material: PathBuf,
}

impl Server {
    /// Starts one on a free port of loopback, with the keys of the scratch folder, and waits until it
    /// listens.
    pub fn start(how: &Start<'_>, scratch: &Scratch) -> anyhow::Result<Self> {
        let material = scratch.path().join("material");
        if material.exists() {
            fs::remove_dir_all(&material).context("removing an earlier server's material")?;
        }
        DirBuilder::new().mode(0o700).create(&material).context("making a folder for material")?;
        if let Some(learned) = how.learned {
            fs::copy(learned.join(STATE), material.join(STATE))
                .with_context(|| format!("reading {}", learned.join(STATE).display()))?;
        }
        let arguments = how.arguments(scratch, &material)?;
        let log = campaign::create(how.log).with_context(|| format!("writing {}", how.log.display()))?;
        let mut command = Command::new(crate::serve::program()?);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
        // What a pinned thread starts is pinned.
        let started = thread::scope(|scope| {
            let start = || pin::here(how.core).and_then(|()| command.spawn().context("starting the server"));
            scope.spawn(start).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let mut child = started?;
        let ward = scratch.wards().add(child.id());
        let stdout = child.stdout.take().context("the server's output")?;
        let mut server = Self { child, _ward: ward, address: String::new(), material };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("reading what the server prints")?;
        let told = serde_json::from_str::<serde_json::Value>(&line).ok();
        match told.as_ref().and_then(|told| told["listening"].as_str()) {
            Some(address) => address.clone_into(&mut server.address),
            None => bail!("the server did not start; what it said is in {}", how.log.display()),
        }
        Ok(server)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its control interface, for the operator of the scratch folder.
    pub fn interface(&self, keys: &Path) -> anyhow::Result<Control> {
        Ok(Control::of(&self.address, &load_client(keys, "ops")?, None, Duration::from_secs(60))?)
    }

    /// Has it end by itself, so that all it has learned is on the disk; kept in `learned` if that is named.
    pub fn stop(mut self, learned: Option<&Path>) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("the server has no id")?;
        kill_process(pid, Signal::TERM).context("stopping the server")?;
        let until = Instant::now() + STOP;
        while self.child.try_wait().context("waiting for the server")?.is_none() {
            if Instant::now() > until {
                bail!("the server did not stop within {} s", STOP.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        if let Some(folder) = learned {
            let (from, to) = (self.material.join(STATE), folder.join(STATE));
            campaign::remove(&to)
                .and_then(|()| fs::copy(&from, &to))
                .with_context(|| format!("writing {}", to.display()))?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Start<'_> {
    fn arguments(&self, scratch: &Scratch, material: &Path) -> anyhow::Result<Vec<OsString>> {
        let Lowering { backend, seal, .. } = self.lowering;
        let mut arguments: Vec<OsString> = self.models.iter().map(Into::into).collect();
        let mut say = |words: &[&str]| arguments.extend(words.iter().map(Into::into));
        say(&[
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--strict-cores",
            "--no-warm-up",
            "--threads",
            "1",
            "--stall",
            "600",
        ]);
        // Connections stand ready before the first request, and some wait long for theirs.
        say(&["--idle", "86400", "--notice-ttl", "86400", "--max-connections", &self.connections.to_string()]);
        say(&["--policy", self.policy, "--cores", &self.cores.to_string(), "--backend", backend]);
        for (key, value) in self.lowering.options()?.iter() {
            say(&["-O", &format!("{key}={value}")]);
        }
        if Registry::standard().get(backend)?.trust() == Trust::ServerSeesInput {
            say(&["--allow-clear"]);
        }
        arguments.extend(seal.arguments().into_iter().map(Into::into));
        for (option, path) in [("--keys", scratch.path().join("keys")), ("--material", material.to_owned())] {
            arguments.extend([option.into(), path.into()]);
        }
        Ok(arguments)
    }
}
