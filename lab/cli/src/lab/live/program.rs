//! A program of tacit that listens on loopback: the server or the dealer of a cell.
use super::pin::pin_thread;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tacit_cli::program::find_program;
use tacit_experiments::campaign;
use tacit_experiments::experiment::Scratch;

/// How long a program may take to stop; a server gives its jobs 30 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);

/// A running program; killed when dropped.
pub struct Program {
    child: Child,
    pub address: String,
}

impl Program {
    /// Starts the program `name` and waits until it listens; its standard error goes to `log`.
    pub fn start(
        name: &str,
        arguments: Vec<OsString>,
        core: Option<usize>,
        log: &Path,
        scratch: &Scratch,
    ) -> anyhow::Result<Self> {
        let log_file = campaign::create(log).with_context(|| format!("writing {}", log.display()))?;
        let mut command = Command::new(find_program(name)?);
        command.args(["--json", "--listen", "127.0.0.1:0"]).args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        scratch.mark(&mut command);
        // A child inherits the core of the thread that starts it.
        let started = thread::scope(|scope| {
            let starting = scope
                .spawn(|| pin_thread(core).and_then(|()| command.spawn().with_context(|| format!("starting {name}"))));
            starting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let mut child = started?;
        let stdout = child.stdout.take().with_context(|| format!("{name}'s output"))?;
        let mut program = Self { child, address: String::new() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).with_context(|| format!("reading the output of {name}"))?;
        let message = serde_json::from_str::<Value>(&line).ok();
        match message.as_ref().and_then(|message| message["listening"].as_str()) {
            Some(address) => address.clone_into(&mut program.address),
            None => bail!("{name} did not start; its messages are in {}", log.display()),
        }
        Ok(program)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("the program has no id")?;
        kill_process(pid, Signal::TERM).context("stopping the program")?;
        let until = Instant::now() + STOP_TIMEOUT;
        while self.child.try_wait().context("waiting for the program")?.is_none() {
            if Instant::now() > until {
                bail!("the program did not stop within {} s", STOP_TIMEOUT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
