//! A tunnel's end as its own process (or thread), and its protocol with the parent.
//!
//! The first line of input is an [`EndConfig`] as JSON: keys never appear in arguments or the
//! environment. Each further line is a command: `handshake` or `stats`. Every line gets a [`Reply`]
//! as JSON. The end stops at the end of its input.
use super::core::{Core, EndConfig, Stats};
use super::user::{Io, Wire};
use crate::LabError;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const MAX_LINE: usize = 4096;
/// Interval of checks of the protocol's timers.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(Stats),
    /// Failure, with the reason. No reply follows.
    Failed(String),
}

/// Runs the process: reads its configuration from the standard input, then works until that ends.
///
/// # Errors
/// Any failure at the start or later; the parent also gets it as a reply.
pub fn run_process() -> Result<(), LabError> {
    let result = process();
    if let Err(error) = &result {
        // A parent that has ended too needs no reply.
        let _ = answer(&mut std::io::stdout(), &Reply::Failed(error.to_string()));
    }
    result
}

fn process() -> Result<(), LabError> {
    let mut line = Zeroizing::new(String::with_capacity(MAX_LINE));
    // Unbuffered, so that `serve` reads the bytes after the line.
    let mut byte = [0u8];
    while line.len() < MAX_LINE && std::io::stdin().lock().read(&mut byte).map_err(control_error)? == 1 {
        if byte[0] == b'\n' {
            break;
        }
        line.push(char::from(byte[0]));
    }
    let config: EndConfig = serde_json::from_str(&line).map_err(|e| {
        let detail = format!("its first line of input must be the configuration as JSON: {e}");
        LabError::spec("tunnel process", detail)
    })?;
    serve(&config, Io::open(&config)?, &std::io::stdin(), std::io::stdout())
}

fn control_error(error: std::io::Error) -> LabError {
    LabError::failed("talking to the tunnel's process")(error)
}

fn answer(output: &mut impl Write, reply: &Reply) -> Result<(), LabError> {
    let text = serde_json::to_string(reply).map_err(|e| control_error(e.into()))?;
    output.write_all(format!("{text}\n").as_bytes()).and_then(|()| output.flush()).map_err(control_error)
}

fn serve(config: &EndConfig, io: Io, commands: &impl AsFd, mut replies: impl Write) -> Result<(), LabError> {
    let core = Core::new(&config.secret, config.peer, config.peer_inner, config.remote.ip());
    let mut wire = Wire::new(core, io, config.mtu);
    answer(&mut replies, &Reply::Ok(wire.stats()))?;
    let (mut pending, mut ticked) = (Vec::new(), Instant::now());
    loop {
        let ready = wire.wait(commands.as_fd(), TICK_INTERVAL.saturating_sub(ticked.elapsed()))?;
        if ticked.elapsed() >= TICK_INTERVAL {
            wire.tick()?;
            ticked = Instant::now();
        }
        if !ready {
            continue;
        }
        let mut input = [0u8; 256];
        let n = rustix::io::read(commands.as_fd(), &mut input).map_err(|e| control_error(e.into()))?;
        if n == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&input[..n]);
        while let Some(end) = pending.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match line.trim_ascii() {
                b"stats" => {}
                b"handshake" => wire.handshake()?,
                _ => return Err(control_error(std::io::Error::other("there is no such command"))),
            }
            answer(&mut replies, &Reply::Ok(wire.stats()))?;
        }
        if pending.len() > MAX_LINE {
            return Err(control_error(std::io::Error::other("a command without an end")));
        }
    }
}

/// The parent's handle of an end: commands and replies. Dropping it stops the end.
pub(super) struct Handle {
    commands: Option<Box<dyn Write + Send>>,
    replies: BufReader<Box<dyn Read + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Connects to the pipes of a process and sends the configuration.
    pub(super) fn process(
        mut stdin: impl Write + Send + 'static,
        stdout: impl Read + Send + 'static,
        config: &EndConfig,
    ) -> Result<Self, LabError> {
        // Full capacity from the start: a growing buffer leaves copies of the key behind.
        let mut text = Zeroizing::new(Vec::with_capacity(MAX_LINE));
        serde_json::to_writer(&mut *text, config).map_err(|e| control_error(e.into()))?;
        text.push(b'\n');
        stdin.write_all(&text).and_then(|()| stdin.flush()).map_err(control_error)?;
        let replies = BufReader::new(Box::new(stdout) as Box<dyn Read + Send>);
        let mut handle = Self { commands: Some(Box::new(stdin)), replies, thread: None };
        handle.reply()?;
        Ok(handle)
    }

    /// Runs on a thread of this process; `io` was opened in the right namespace.
    pub(super) fn thread(config: EndConfig, io: Io) -> Result<Self, LabError> {
        let (parent_end, child_end) = UnixStream::pair().map_err(control_error)?;
        let thread = thread::Builder::new().name("tacit-tunnel".into()).spawn(move || {
            let reply = child_end.try_clone().map_err(control_error);
            let ended = reply.and_then(|reply| serve(&config, io, &child_end, reply));
            if let Err(error) = ended {
                // A closed other end needs no reply.
                let _ = answer(&mut &child_end, &Reply::Failed(error.to_string()));
            }
        });
        let thread = Some(thread.map_err(control_error)?);
        let replies = BufReader::new(Box::new(parent_end.try_clone().map_err(control_error)?) as Box<dyn Read + Send>);
        let mut handle = Self { commands: Some(Box::new(Closing(parent_end))), replies, thread };
        handle.reply()?;
        Ok(handle)
    }

    pub(super) fn ask(&mut self, command: &str) -> Result<Stats, LabError> {
        if let Some(commands) = &mut self.commands {
            let sent = commands.write_all(format!("{command}\n").as_bytes()).and_then(|()| commands.flush());
            // The last reply of a failed end has the reason, which is better than "broken pipe".
            if let (Err(error), Err(_)) = (sent, self.replies.fill_buf()) {
                return Err(control_error(error));
            }
        }
        self.reply()
    }

    fn reply(&mut self) -> Result<Stats, LabError> {
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(control_error)?;
        let failed = LabError::failed("tunnel");
        match serde_json::from_str(&line) {
            Ok(Reply::Ok(stats)) => Ok(stats),
            Ok(Reply::Failed(detail)) => Err(failed(detail)),
            Err(_) => Err(failed(format!("its process ended or answered nonsense: `{}`", line.trim()))),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends the other side's reading when dropped, although clones of the stream exist.
struct Closing(UnixStream);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}
