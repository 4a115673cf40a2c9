//! Prints output, notes and progress.
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::bench::{PhaseFigures, phase_figures};
use tacit_client::{PhaseReport, Progress};
use tacit_foreign::text::lines;
use tacit_graph::{Step, Watch};
use tacit_net::Phase;

/// Context of an error in writing output.
pub const OUTPUT: &str = "writing to standard output";

/// Prints a line on standard output, and fails instead of panicking if that cannot be written.
/// Escapes terminal control codes, as do [`text`] and [`note`].
pub fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", lines(text)).context(OUTPUT)
}

/// Prints text that ends its own lines on standard output.
pub fn text(text: &str) -> anyhow::Result<()> {
    write!(std::io::stdout(), "{}", lines(text)).context(OUTPUT)
}

/// Prints text with this program's own control codes to a terminal, unescaped.
pub fn screen(text: &str) -> anyhow::Result<()> {
    write!(std::io::stdout(), "{text}").context(OUTPUT)
}

/// Prints a line on standard error. The command goes on if that fails.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(text));
}

/// Prints a note on standard error if a wait takes longer than a second. Dropped when the wait is
/// over.
pub struct Patience {
    _over: Sender<()>,
}

impl Patience {
    /// Starts the wait.
    pub fn start(text: String) -> Self {
        let (sender, end_receiver) = channel::<()>();
        // If no thread starts, only the note is lost.
        let _ = thread::Builder::new().spawn(move || {
            if end_receiver.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                note(&text);
            }
        });
        Self { _over: sender }
    }
}

/// Prints a value as JSON on standard output, for scripts.
pub fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Prints a value as JSON, or as this line for people.
pub fn json_or_line(as_json: bool, value: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    if as_json { json(value) } else { line(text) }
}

/// Prints a value as one line of JSON, or as this line for people.
pub fn row(as_json: bool, value: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    if as_json { line(&value.to_string()) } else { line(text) }
}

/// Formats a share in whole percents.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Formats a number of bytes for people.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// Makes a progress bar on standard error (hidden if that is no terminal).
pub fn bar(len: usize, label: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:30} {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(len as u64).with_message(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Makes a bar that follows a connection's traffic, of `bytes` expected; the bar also moves within
/// one material.
pub fn traffic_bar(byte_counter: Arc<AtomicU64>, label: &str, bytes: u64) -> ProgressBar {
    let bar = bar(bytes as usize, label);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {bar:30} {percent} % of {total_bytes} {elapsed}") {
        bar.set_style(style);
    }
    let (start, followed) = (byte_counter.load(Ordering::Relaxed), bar.downgrade());
    thread::spawn(move || {
        // The loop ends when the last other handle of the bar is dropped.
        while let Some(bar) = followed.upgrade().filter(|bar| !bar.is_finished()) {
            bar.set_position((byte_counter.load(Ordering::Relaxed) - start).min(bytes));
            drop(bar);
            thread::sleep(Duration::from_millis(100));
        }
    });
    bar
}

/// Shows the running phase in a bar, with its progress and remaining time; `keys` are the bytes
/// that a setup sends.
pub fn tell_phases(bar: &ProgressBar, progress: Arc<Progress>, keys: u64) {
    let (usual, followed) = (bar.message(), bar.downgrade());
    thread::spawn(move || {
        let mut phases = PhasesText { keys, ..PhasesText::default() };
        while let Some(bar) = followed.upgrade().filter(|bar| !bar.is_finished()) {
            progress.take().iter().for_each(|step| phases.note(step, Instant::now()));
            let waits = progress.queued().map(|queued| format!("waiting for its turn, {queued} jobs are queued"));
            bar.set_message(waits.or_else(|| phases.text()).unwrap_or_else(|| usual.clone()));
            drop(bar);
            thread::sleep(Duration::from_millis(200));
        }
    });
}

#[derive(Default)]
struct PhasesText {
    keys: u64,
    /// By phase: when and where it was first seen, and its text.
    running: [Option<PhaseText>; 3],
}

struct PhaseText {
    since: Instant,
    first: f64,
    text: String,
}

impl PhasesText {
    fn note(&mut self, step: &tacit_client::Step, now: Instant) {
        let tacit_client::Step { phase, fraction } = *step;
        let slot = &mut self.running[phase as usize];
        if fraction >= 1.0 {
            *slot = None;
            return;
        }
        let name = match phase {
            Phase::Setup => format!("setup: sending keys, {}", bytes(self.keys)),
            Phase::Offline | Phase::Online => phase.name().to_owned(),
        };
        match slot {
            Some(PhaseText { since, first, text }) if fraction > *first => {
                let left_s =
                    now.saturating_duration_since(*since).as_secs_f64() * (1.0 - fraction) / (fraction - *first);
                *text = format!("{name}, {:.0} %, {left_s:.0} s left", 100.0 * fraction);
            }
            _ => *slot = Some(PhaseText { since: now, first: fraction, text: name }),
        }
    }

    /// Joins the texts of all running phases; none if no phase runs.
    fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self.running.iter().flatten().map(|phase| phase.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Shows the progress of an import or a lowering on standard error (hidden if that is no terminal).
pub fn watch() -> (Watch, ProgressBar) {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let step_bar = bar.clone();
    let watch = Watch::new(move |Step { what, done, of }| {
        step_bar.set_message(match of {
            Some(of) => format!("{what} {}/{of}", done + 1),
            None if done > 0 => format!("{what} {done}"),
            None => what.to_owned(),
        });
        true
    });
    (watch, bar)
}

/// Formats a line of a table of phases.
pub fn phase_line(name: &str, report: &PhaseReport) -> String {
    figures_line(name, &phase_figures(report))
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

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_client::Step;

    #[test]
    fn phases_show_their_remaining_time() {
        let start = Instant::now();
        let mut phases = PhasesText { keys: 2_000_000, ..PhasesText::default() };
        let mut text_at = |phase, fraction, seconds| {
            phases.note(&Step { phase, fraction }, start + Duration::from_secs(seconds));
            phases.text()
        };
        assert_eq!(text_at(Phase::Setup, 0.0, 0).as_deref(), Some("setup: sending keys, 2000.0 kB"));
        assert_eq!(text_at(Phase::Setup, 0.25, 10).as_deref(), Some("setup: sending keys, 2000.0 kB, 25 %, 30 s left"));
        assert_eq!(text_at(Phase::Setup, 1.0, 40), None);
        assert_eq!(text_at(Phase::Offline, 0.0, 40).as_deref(), Some("offline"));
        assert_eq!(text_at(Phase::Offline, 0.5, 44).as_deref(), Some("offline, 50 %, 4 s left"));
        // The next input's phase has begun, and the end of the last was not seen.
        assert_eq!(text_at(Phase::Offline, 0.0, 50).as_deref(), Some("offline"));
        // The offline phase runs in parallel with the online phase of the batch before.
        assert_eq!(text_at(Phase::Online, 0.1, 50).as_deref(), Some("offline; online"));
        assert_eq!(text_at(Phase::Online, 0.6, 55).as_deref(), Some("offline; online, 60 %, 4 s left"));
        assert_eq!(text_at(Phase::Offline, 1.0, 56).as_deref(), Some("online, 60 %, 4 s left"));
    }
}
