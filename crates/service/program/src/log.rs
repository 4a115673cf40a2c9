//! Output of programs: the line on stdout with the address they listen on, and log lines, panics
//! and final messages, which a thread writes to stderr. A slow or missing reader neither blocks nor
//! panics the program: lines that find the queue full are dropped and counted, lines that cannot be
//! written are lost.
//!
//! Many lines contain text from peers. A log record is one line, whatever it quotes, and characters
//! that a terminal would obey are escaped.
use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tacit_foreign::text;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Most lines that wait to be written.
const QUEUE_LINES: usize = 1024;
/// Longest line of the log, in bytes; some contain text from peers.
const MAX_LINE_BYTES: usize = 4096;
/// How long the end of a program waits for queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a program that serves, with a log, and with its error as final message on stderr.
pub fn run<E: AsRef<dyn Error>>(program: impl FnOnce() -> Result<(), E>) -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: starting the log: {}", text::lines(&error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.say(&format!("error: {}", explain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// Returns the error and its causes in one line; a cause that ends the line already is left out.
#[must_use]
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let (mut line, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let message = error.to_string();
        if !line.ends_with(&message) {
            line = format!("{line}: {message}");
        }
        cause = error.source();
    }
    line
}

/// Prints the line from which scripts read addresses, in a thread of its own, so that a slow or
/// missing reader does not stop the program from serving.
///
/// # Errors
/// The thread cannot be started.
pub fn announce(line: String) -> io::Result<()> {
    let announcing = thread::Builder::new().name("tacit-announce".into()).spawn(move || {
        let mut out = io::stdout();
        let _ = writeln!(out, "{}", text::lines(&line)).and_then(|()| out.flush());
    });
    announcing.map(drop)
}

/// A library in which a peer can cause a warning with each frame: its records are logged only if
/// `TACIT_LOG` names the library.
const NOISY_TARGET: &str = "h2";

/// Makes a write beyond the system's file size limit (`ulimit -f`) fail with an error, reported
/// like a full disk; otherwise a signal ends the program silently.
fn catch_size_limit() -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Reads which lines to log: `LEVEL` or `TARGET=LEVEL`, separated by commas.
fn parse_targets(text: Option<&OsStr>) -> io::Result<Targets> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Targets::new().with_default(LevelFilter::WARN).with_target(NOISY_TARGET, LevelFilter::OFF));
    };
    let quiet = |targets: Targets| match targets.iter().any(|(target, _)| target.starts_with(NOISY_TARGET)) {
        true => targets,
        false => targets.with_target(NOISY_TARGET, LevelFilter::OFF),
    };
    text.to_str().and_then(|text| text.parse().ok()).map(quiet).ok_or_else(|| {
        let text = text.display();
        io::Error::other(format!("TACIT_LOG={text}: levels such as `info` or `tacit_client=debug,warn` are wanted"))
    })
}

enum Item {
    Line(Vec<u8>),
    /// Asks for a reply when all items before this one are written.
    Mark(SyncSender<()>),
}

/// The log, which writes to stderr. Dropping it waits up to a second for queued lines.
pub struct Log(Queue);

impl Log {
    /// Starts logging at the levels of `TACIT_LOG` (default: warnings and errors), and panics of
    /// all threads. Colours are only for terminals.
    ///
    /// # Errors
    /// `TACIT_LOG` is not a list of levels, the thread cannot be started, or stderr cannot be
    /// duplicated.
    pub fn start() -> io::Result<Self> {
        catch_size_limit()?;
        // A duplicate, so that other users of stderr do not wait for lines of the log.
        let mut out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (sender, items) = sync_channel(QUEUE_LINES);
        let queue = Queue { sender, dropped: Arc::new(AtomicU64::new(0)) };
        let dropped = queue.dropped.clone();
        thread::Builder::new().name("tacit-log".into()).spawn(move || write_out(&items, &dropped, &mut out))?;
        let filter = parse_targets(std::env::var_os("TACIT_LOG").as_deref())?;
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = !plain && io::stderr().is_terminal();
        let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(queue.clone());
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
        let panics = queue.clone();
        panic::set_hook(Box::new(move |panic| {
            let trace = Backtrace::capture();
            let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
            let thread = thread::current();
            let text = format!("thread '{}' {panic}{trace}\n", thread.name().unwrap_or("?"));
            panics.push_line(text::lines(&text).into_owned().into_bytes());
        }));
        Ok(Self(queue))
    }

    /// Writes a line of the program after the lines logged before.
    pub fn say(&self, line: &str) {
        self.0.push_line(format!("{}\n", text::lines(line)).into_bytes());
    }
}

/// Converts a log record to one line. Colour codes stay.
fn record(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let body = line.strip_suffix('\n').unwrap_or(&line);
    let mut line_text = String::with_capacity(line.len());
    for (i, part) in body.split(ESCAPE).enumerate() {
        if i > 0 {
            line_text.push_str(if is_colour(part) { "\u{1b}" } else { "\\u001b" });
        }
        let part = if part.contains('\n') { Cow::Owned(part.replace('\n', "\\n")) } else { Cow::Borrowed(part) };
        line_text.push_str(&text::lines(&part));
    }
    line_text.push('\n');
    line_text
}

const ESCAPE: char = '\u{1b}';

fn is_colour(sequence: &str) -> bool {
    let digits = sequence.strip_prefix('[').map(|r| r.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
    digits.is_some_and(|end| end.starts_with('m'))
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.settle(FLUSH_TIMEOUT);
    }
}

#[derive(Clone)]
struct Queue {
    sender: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    fn push_line(&self, line: Vec<u8>) {
        if self.sender.try_send(Item::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all queued lines are written, for `timeout` at most.
    fn settle(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        let (done_sender, written) = sync_channel(1);
        while self.sender.try_send(Item::Mark(done_sender.clone())).is_err() {
            if Instant::now() >= end {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // After the timeout, gives up.
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

impl Write for Queue {
    /// Queues a line; the subscriber writes a whole line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (head, end) =
            if line.len() > MAX_LINE_BYTES { (&line[..MAX_LINE_BYTES], &b"..."[..]) } else { (line, &b""[..]) };
        self.push_line(record(&[head, end].concat()).into_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn write_out(items: &Receiver<Item>, dropped: &AtomicU64, out: &mut impl Write) {
    for item in items {
        match item {
            // After a failure the next line is tried, since a reader may return.
            Item::Line(line) => drop(out.write_all(&line)),
            Item::Mark(done) => drop(done.try_send(())),
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "{lost} lines of the log were dropped: they came faster than they could be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(len: usize) -> (Queue, Receiver<Item>) {
        let (sender, items) = sync_channel(len);
        (Queue { sender, dropped: Arc::default() }, items)
    }

    #[test]
    fn full_queue_drops_and_counts_lines() {
        let (mut queue, items) = queue(2);
        for line in [b"one\n", b"two\n", b"six\n"] {
            assert_eq!(queue.write(line).unwrap(), 4);
        }
        queue.settle(Duration::from_millis(30));
        let dropped = queue.dropped.clone();
        drop(queue);
        let mut out = Vec::new();
        write_out(&items, &dropped, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("one\n1 lines of the log were dropped"), "{text}");
        assert!(text.ends_with("two\n"), "{text}");
    }

    #[test]
    fn reads_levels_and_names_wrong_ones() {
        // The library whose warnings peers can cause is logged only if named.
        for (text, target, level, expected) in [
            (None, "tacit_net", LevelFilter::WARN, true),
            (None, "tacit_net", LevelFilter::INFO, false),
            (Some(""), "tacit_net", LevelFilter::WARN, true),
            (Some(""), "tacit_net", LevelFilter::INFO, false),
            (Some("tacit_client=debug,info"), "tacit_client::wire", LevelFilter::DEBUG, true),
            (Some("tacit_client=debug,info"), "tacit_net", LevelFilter::DEBUG, false),
            (Some(""), "h2::proto::ping_pong", LevelFilter::WARN, false),
            (Some("info"), "h2::proto::ping_pong", LevelFilter::WARN, false),
            (Some("h2=warn,info"), "h2::proto::ping_pong", LevelFilter::WARN, true),
            (Some("h2::proto=warn"), "h2::proto::ping_pong", LevelFilter::WARN, true),
        ] {
            let targets = parse_targets(text.map(OsStr::new)).unwrap();
            assert_eq!(targets.would_enable(target, &level.into_level().unwrap()), expected, "{text:?}: {target}");
        }
        let error = parse_targets(Some(OsStr::new("tacit_client=loud"))).unwrap_err().to_string();
        assert!(error.starts_with("TACIT_LOG=tacit_client=loud: levels such as"), "{error}");
    }

    #[test]
    fn escapes_records_to_one_line() {
        let forged = b"WARN peer says: bye\n2026-11-27 ERROR all keys are lost\r\x1b]0;title\x07\xe2\x80\xaeoops\xff\n";
        let text = record(forged);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        assert!(text.trim_end().chars().all(text::is_plain), "{text}");
        for part in ["bye\\n2026-11-27 ERROR", "\\u001b]0;title\\u0007"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(record(b"\x1b[33m WARN\x1b[0m a line\n"), "\x1b[33m WARN\x1b[0m a line\n");
        assert_eq!(record(b"\x1b[2J\x1b[6n"), "\\u001b[2J\\u001b[6n\n");
        let (mut queue, items) = queue(1);
        queue.write_all(forged).unwrap();
        let Ok(Item::Line(line)) = items.try_recv() else { panic!("a line") };
        assert_eq!(line, text.as_bytes());
    }

    #[test]
    fn missing_reader_is_no_error() {
        let (mut queue, items) = queue(2);
        drop(items);
        assert_eq!(queue.write(b"line\n").unwrap(), 5);
        let (queue, items) = self::queue(2);
        queue.push_line(b"line\n".to_vec());
        let dropped = queue.dropped.clone();
        drop(queue);
        let mut closed = &mut [0u8; 0][..];
        write_out(&items, &dropped, &mut closed);
    }

    #[test]
    fn cuts_long_lines_and_waits_for_queued_ones() {
        let (mut queue, items) = queue(4);
        queue.write_all(&[b'x'; 10 * MAX_LINE_BYTES]).unwrap();
        let dropped = queue.dropped.clone();
        let writing = thread::spawn(move || {
            let mut out = Vec::new();
            write_out(&items, &dropped, &mut out);
            out
        });
        queue.settle(Duration::from_secs(60));
        drop(queue);
        let out = writing.join().unwrap();
        assert_eq!((out.len(), out.ends_with(b"x...\n")), (MAX_LINE_BYTES + 4, true));
    }
}
