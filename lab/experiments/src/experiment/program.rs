//! The programs of a run: start, waits, end, and output.
use super::scratch::Scratch;
use crate::LabError;
use crate::campaign;
use crate::link::{Link, Side, is_listening};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Map, Value};
use tacit_measure::usage::wait_until_ended;
use tacit_meter::sampler::Handle;
use tacit_meter::wait::wait_sampled;

/// Interval of checks of the stop flag during waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for a program to end after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(3);
/// Most bytes read from the end of a program's output.
const MAX_TAIL_BYTES: u64 = 256 << 10;
/// Most figures of one program.
const MAX_RESULTS: usize = 512;

pub(super) enum Place {
    Host,
    Link(Box<Link>),
}

/// A started program. Dropping it ends the program.
pub(super) struct Program {
    party: &'static str,
    child: Child,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
    end_receiver: Receiver<()>,
    is_over: bool,
    reaped: Option<ExitStatus>,
}

pub(super) struct Start<'a> {
    pub party: &'static str,
    pub side: Side,
    /// Program and arguments.
    pub words: &'a [String],
    pub environment: &'a BTreeMap<String, String>,
    /// Its working folder.
    pub dir: &'a Path,
    /// Output path, with `.PARTY.out` and `.PARTY.err` appended.
    pub log: &'a Path,
    /// The run's folder, whose keeper ends the program together with this process.
    pub scratch: &'a Scratch,
}

impl Start<'_> {
    fn output(&self, kind: &str) -> PathBuf {
        let mut path = self.log.as_os_str().to_owned();
        path.push(format!(".{}.{kind}", self.party));
        PathBuf::from(path)
    }
}

fn new_file(path: &Path) -> Result<File, LabError> {
    campaign::create(path).map_err(LabError::io(path))
}

pub(super) fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

impl Program {
    /// Starts a program in its own process group: Ctrl-C at the terminal does not reach it.
    pub(super) fn start(place: &Place, start: &Start<'_>) -> Result<Self, LabError> {
        let party = start.party;
        let (stdout, stderr) = (start.output("out"), start.output("err"));
        let mut command = Command::new(&start.words[0]);
        command.args(&start.words[1..]).envs(start.environment).current_dir(start.dir).process_group(0);
        start.scratch.mark(&mut command);
        command.stdin(Stdio::null()).stdout(new_file(&stdout)?).stderr(new_file(&stderr)?);
        let child = match place {
            Place::Host => command.spawn().map_err(LabError::failed(format!("starting {:?}", start.words[0])))?,
            Place::Link(link) => link.spawn(start.side, &mut command)?,
        };
        let (end_sender, end_receiver) = channel();
        let pid = child.id();
        // Blocks in the kernel: no polling beside the measured programs; pidfds need kernel 5.3.
        let watcher = std::thread::Builder::new().name("tacit-watch".into()).spawn(move || {
            if wait_until_ended(pid).is_ok() {
                _ = end_sender.send(());
            }
        });
        watcher.map_err(LabError::io(Path::new("thread")))?;
        Ok(Self { party, child, stdout_path: stdout, stderr_path: stderr, end_receiver, is_over: false, reaped: None })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits at most `time` for the end, without reaping: the processor time stays readable.
    pub(super) fn ended_within(&mut self, time: Duration) -> bool {
        // A failed watcher counts as the end: then only reaping can tell.
        self.is_over = self.is_over || !matches!(self.end_receiver.recv_timeout(time), Err(RecvTimeoutError::Timeout));
        self.is_over
    }

    pub(super) fn reap(&mut self, sampler: &Handle) -> Result<(), LabError> {
        self.reaped = Some(wait_sampled(sampler, &mut self.child)?);
        Ok(())
    }

    /// Ends a running program (SIGTERM, later SIGKILL, to its process group), and reaps it.
    pub(super) fn end(&mut self) -> Result<ExitStatus, LabError> {
        if let Some(status) = self.reaped {
            return Ok(status);
        }
        let group = i32::try_from(self.child.id()).map(Pid::from_raw);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if self.ended_within(Duration::ZERO) {
                break;
            }
            // A process that has already ended is no error.
            _ = group.map(|g| killpg(g, signal));
            _ = self.ended_within(TERM_TIMEOUT);
        }
        self.child.wait().map_err(LabError::failed(format!("ending the {}", self.party)))
    }

    fn has_printed(&self, text: &str) -> Result<bool, LabError> {
        let mut printed = vec![];
        File::open(&self.stdout_path)
            .and_then(|f| f.take(1 << 20).read_to_end(&mut printed))
            .map_err(LabError::io(&self.stdout_path))?;
        Ok(printed.windows(text.len()).any(|w| w == text.as_bytes()))
    }

    /// Whether a process of its network namespace listens at a TCP port.
    fn listens(&self, port: u16) -> bool {
        ["tcp", "tcp6"].iter().any(|kind| {
            std::fs::read_to_string(format!("/proc/{}/net/{kind}", self.pid()))
                .is_ok_and(|table| is_listening(&table, port))
        })
    }

    /// Describes a failure, with the last line on standard error; `None` for success.
    pub(super) fn failure(&self, status: ExitStatus) -> Option<String> {
        if status.success() {
            return None;
        }
        let ending = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        };
        Some(format!("the {} ended with {ending}{}", self.party, self.last_words()))
    }

    pub(super) fn last_words(&self) -> String {
        let text = tail(&self.stderr_path).unwrap_or_default();
        let line = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
        let short: String = line.trim().chars().take(300).collect();
        if short.is_empty() { String::new() } else { format!(": {short}") }
    }

    /// The figures in its last line of output, if that is a JSON object; otherwise empty.
    pub(super) fn results(&self) -> Result<BTreeMap<String, f64>, String> {
        let text = tail(&self.stdout_path).map_err(|e| e.to_string())?;
        match text.lines().rev().find(|l| !l.trim().is_empty()) {
            Some(line) if line.trim_start().starts_with('{') => {
                figures(line).map_err(|e| format!("the {}'s last line of output is no JSON object: {e}", self.party))
            }
            _ => Ok(BTreeMap::new()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.end();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Done,
    TimedOut,
    Stopped,
    /// The other program has ended: the wait cannot succeed.
    PeerGone,
}

/// Waits until the server is ready: it has printed `ready`, or listens at `port`.
pub(super) fn wait_ready(
    server: &mut Program,
    ready: Option<&str>,
    port: u16,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<WaitEnd, LabError> {
    let until = Instant::now() + patience;
    loop {
        let is_ready = match ready {
            Some(text) => server.has_printed(text)?,
            None => server.listens(port),
        };
        if is_ready {
            return Ok(WaitEnd::Done);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(WaitEnd::Stopped);
        }
        if Instant::now() >= until {
            return Ok(WaitEnd::TimedOut);
        }
        if server.ended_within(Duration::from_millis(10)) {
            return Ok(WaitEnd::PeerGone);
        }
    }
}

/// Waits for the client's end. A server that ends first may have finished normally; five seconds
/// later the wait ends.
pub(super) fn wait_client(
    client: &mut Program,
    server: Option<&mut Program>,
    patience: Duration,
    stop: &AtomicBool,
) -> WaitEnd {
    let (until, mut server, mut server_gone) = (Instant::now() + patience, server, None);
    loop {
        let now = Instant::now();
        if client.ended_within(POLL_INTERVAL.min(until.saturating_duration_since(now))) {
            return WaitEnd::Done;
        }
        if stop.load(Ordering::Relaxed) {
            return WaitEnd::Stopped;
        }
        if Instant::now() >= until {
            return WaitEnd::TimedOut;
        }
        if server.as_mut().is_some_and(|s| s.ended_within(Duration::ZERO)) {
            let since = *server_gone.get_or_insert(now);
            if now.duration_since(since) > Duration::from_secs(5) {
                return WaitEnd::PeerGone;
            }
        }
    }
}

/// Sleeps until the time is over or the user asks to stop; false in the second case.
pub(super) fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let remaining = until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return true;
        }
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
    false
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL_BYTES)))?;
    let mut text = vec![];
    file.take(MAX_TAIL_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The numbers in a JSON object, those of nested objects under `outer.inner`. True counts as 1,
/// false as 0; texts, lists and nulls are ignored.
fn figures(line: &str) -> Result<BTreeMap<String, f64>, String> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let mut figures = BTreeMap::new();
    flatten("", object, &mut figures)?;
    Ok(figures)
}

fn flatten(prefix: &str, object: Map<String, Value>, values: &mut BTreeMap<String, f64>) -> Result<(), String> {
    for (key, value) in object {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        let number = match value {
            Value::Object(inner) => {
                flatten(&key, inner, values)?;
                continue;
            }
            Value::Number(n) => n.as_f64(),
            Value::Bool(b) => Some(f64::from(u8::from(b))),
            Value::Null | Value::String(_) | Value::Array(_) => None,
        };
        if let Some(number) = number.filter(|n| n.is_finite()) {
            values.insert(key, number);
        }
        if values.len() > MAX_RESULTS {
            return Err(format!("more than {MAX_RESULTS} figures"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_refused, soon};

    fn start_words(dir: &Path, words: &[&str]) -> Result<Program, LabError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let environment = &BTreeMap::from([("WHO".to_owned(), "me".to_owned())]);
        let (side, log, scratch) = (Side::Client, &dir.join("run"), &Scratch::new().unwrap());
        Program::start(&Place::Host, &Start { party: name(side), side, words: &words, environment, dir, log, scratch })
    }

    fn start(dir: &Path, script: &str) -> Program {
        start_words(dir, &["sh", "-c", script]).unwrap()
    }

    #[test]
    fn output_status_and_figures() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"echo hello; echo "{\"latency_s\": 0.5, \"ok\": true, \"who\": \"$WHO\", \"phases\": {\"online\": {\"wall_s\": 2}}}"; echo"#;
        let mut program = start(dir.path(), script);
        assert!(program.ended_within(Duration::from_secs(20)));
        assert!(program.end().unwrap().success());
        let expected = [("latency_s", 0.5), ("ok", 1.0), ("phases.online.wall_s", 2.0)];
        assert!(program.results().unwrap().iter().map(|(k, v)| (k.as_str(), *v)).eq(expected));
        assert!(dir.path().join("run.client.out").exists());

        let mut program = start(dir.path(), "echo '{oops'; echo first >&2; echo it broke >&2; exit 3");
        assert!(program.ended_within(Duration::from_secs(20)));
        let status = program.end().unwrap();
        assert_eq!(program.failure(status).unwrap(), "the client ended with exit status 3: it broke");
        assert!(program.results().unwrap_err().contains("no JSON object"));
    }

    #[test]
    fn ends_a_program_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = start(dir.path(), "sleep 1000 & echo $!; wait");
        let stop = AtomicBool::new(false);
        assert_eq!(wait_ready(&mut program, Some("\n"), 0, Duration::from_secs(20), &stop).unwrap(), WaitEnd::Done);
        let grandchild: u32 = tail(&program.stdout_path).unwrap().trim().parse().unwrap();
        assert_eq!(wait_client(&mut program, None, Duration::from_millis(20), &stop), WaitEnd::TimedOut);
        let status = program.end().unwrap();
        assert_eq!(status.signal(), Some(15));
        assert_eq!(program.failure(status).unwrap(), "the client ended with signal 15");
        let stat = format!("/proc/{grandchild}/stat");
        // Not reaped yet where the host's first process is slow to do so.
        assert!(soon(|| std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))));
    }

    #[test]
    fn waits_end_on_stop_and_on_early_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = start(dir.path(), "sleep 1000");
        let stop = AtomicBool::new(true);
        assert_eq!(wait_client(&mut program, None, Duration::from_secs(20), &stop), WaitEnd::Stopped);
        assert!(!pause(Duration::from_secs(20), &stop));
        assert_eq!(wait_ready(&mut program, Some("x"), 0, Duration::from_secs(20), &stop).unwrap(), WaitEnd::Stopped);
        let mut program = start(dir.path(), "exit 1");
        let stop = AtomicBool::new(false);
        assert_eq!(wait_ready(&mut program, Some("x"), 0, Duration::from_secs(20), &stop).unwrap(), WaitEnd::PeerGone);
    }

    #[test]
    fn listening_sockets_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert!(is_listening(&table, port));
        drop(listener);
        // A child that another test is just starting has it open until its `exec`.
        assert!(soon(|| !is_listening(&std::fs::read_to_string("/proc/self/net/tcp").unwrap(), port)));
        assert!(!is_listening("", 1));
        assert!(!is_listening("head\n0: zz 1 0A\n", 1));
    }

    #[test]
    fn missing_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let started = start_words(dir.path(), &["/no/such/program"]);
        assert_refused(started, &["/no/such/program", "No such file"]);
    }
}
