//! Printing helpers.
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::bench::{PhaseFigures, printed};
use tacit_client::{PhaseReport, Progress};
use tacit_graph::{Step, Watch};
use tacit_net::Phase;

/// What was attempted when a line could not be written.
pub const OUTPUT: &str = "writing to standard output";

/// A line on standard output. Output that cannot be written is an error of the command, never a panic.
pub fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context(OUTPUT)
}

/// Text on standard output that ends its lines itself.
pub fn text(text: &str) -> anyhow::Result<()> {
    write!(std::io::stdout(), "{text}").context(OUTPUT)
}

/// A line beside the output, on standard error. If nobody can read it, the command goes on all the same.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says on standard error what is waited for, if it takes longer than a second. Dropped when it is over.
pub struct Patience {
    _over: Sender<()>,
}

impl Patience {
    pub fn with(text: String) -> Self {
        let (sender, over) = channel::<()>();
        // Without a thread there is no such line, and nothing else is lost.
        let _ = thread::Builder::new().spawn(move || {
            if over.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                note(&text);
            }
        });
        Self { _over: sender }
    }
}

/// A value on standard output, for scripts.
pub fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes for people.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// A bar on standard error (nothing where that is no terminal).
pub fn bar(len: usize, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:30} {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(len as u64).with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar that follows what a connection moves, of `bytes` expected: it goes on within one material, too.
pub fn traffic_bar(moved: Arc<AtomicU64>, what: &str, bytes: u64) -> ProgressBar {
    let bar = bar(bytes as usize, what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {bar:30} {percent} % of {total_bytes} {elapsed}") {
        bar.set_style(style);
    }
    let (start, followed) = (moved.load(Ordering::Relaxed), bar.downgrade());
    thread::spawn(move || {
        // Ends with the last other handle of the bar.
        while let Some(bar) = followed.upgrade().filter(|bar| !bar.is_finished()) {
            bar.set_position((moved.load(Ordering::Relaxed) - start).min(bytes));
            drop(bar);
            thread::sleep(Duration::from_millis(100));
        }
    });
    bar
}

/// Says in a bar how much of `bytes` bytes of keys has gone up, and how long the rest will take.
pub fn tell_setup(bar: &ProgressBar, progress: Arc<Progress>, bytes: u64) {
    let (usual, followed) = (bar.message(), bar.downgrade());
    thread::spawn(move || {
        let mut began = None;
        while let Some(bar) = followed.upgrade().filter(|bar| !bar.is_finished()) {
            for step in progress.take().into_iter().filter(|step| step.phase == Phase::Setup) {
                let fraction = step.fraction;
                let (start, first) = *began.get_or_insert_with(|| (Instant::now(), fraction));
                let left = start.elapsed().as_secs_f64() * (1.0 - fraction) / (fraction - first);
                let (percent, bytes) = (100.0 * fraction, self::bytes(bytes));
                bar.set_message(match left.is_finite() {
                    _ if fraction >= 1.0 => usual.clone(),
                    true => format!("sending keys, {percent:.0} % of {bytes}, {left:.0} s left"),
                    false => format!("sending keys, {bytes}"),
                });
            }
            drop(bar);
            thread::sleep(Duration::from_millis(200));
        }
    });
}

/// Shows how far an import or a lowering is, on standard error (nothing where that is no terminal).
pub fn watch() -> (Watch, ProgressBar) {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = bar.clone();
    let watch = Watch::new(move |Step { what, done, of }| {
        shown.set_message(match of {
            Some(of) => format!("{what} {}/{of}", done + 1),
            None if done > 0 => format!("{what} {done}"),
            None => what.to_owned(),
        });
        true
    });
    (watch, bar)
}

/// One line of a table of phases.
pub fn phase_line(name: &str, report: &PhaseReport) -> String {
    figures_line(name, &printed(report))
}

/// As [`phase_line`], for figures in the printed form.
pub fn figures_line(name: &str, figures: &PhaseFigures) -> String {
    let PhaseFigures { wall_s, rounds, client, server } = figures;
    format!(
        "{name:<8} {wall_s:>8.3} s  CPU {:>7.3} / {:>7.3} s  {:>9} up  {:>9} down (before TLS)  {rounds:>4} rounds  peak {} / {}",
        client.cpu_s,
        server.cpu_s,
        bytes(client.sent_bytes),
        bytes(server.sent_bytes),
        bytes(client.peak_rss_bytes),
        bytes(server.peak_rss_bytes),
    )
}
