//! Shared by commands that run experiments: the plan, the runs with their progress, and the
//! conclusion.
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tacit_cli::print;
use tacit_experiments::campaign::{Run, describe};
use tacit_experiments::experiment::{Event, Experiment, Outcome, Settings, plan};

/// Returns a flag that Ctrl-C sets from now on. A note then says that finished `parts` are kept.
pub fn stopping(parts: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let wish = stop.clone();
    ctrlc::set_handler(move || {
        if !wish.swap(true, Ordering::SeqCst) {
            print::note(&format!("stopping: finished {parts} are kept; the same command continues the campaign"));
        }
    })?;
    Ok(stop)
}

pub fn versions() -> BTreeMap<String, String> {
    BTreeMap::from([("tacit".to_owned(), env!("CARGO_PKG_VERSION").to_owned())])
}

/// Takes over runs of the campaigns `from`, then runs the rest of an experiment in `dir` with
/// progress on standard error. Fails if runs are left at the end.
pub fn carry_out(
    experiment: &Experiment,
    dir: &Path,
    from: &[PathBuf],
    as_json: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let settings = Settings {
        dir: dir.to_owned(),
        program: tacit_cli::program::find_program("tacit")?,
        versions: versions(),
        from: from.to_owned(),
    };
    let mut printer = Printer::new(as_json, stop.clone());
    let outcome = tacit_experiments::experiment::run(experiment, &settings, stop, &mut |event| printer.tell(event))?;
    printer.finish()?;
    conclude(&outcome, dir, as_json)
}

pub fn show_plan(experiment: &Experiment, jobs: &[plan::Job], as_json: bool) -> anyhow::Result<()> {
    let spec = experiment.spec();
    if as_json {
        let cells = plan::cells(experiment).into_iter().map(|cell| {
            let duration = plan::estimate(experiment, cell).as_secs_f64();
            let runs = jobs.iter().filter(|j| j.cell == cell).count();
            json!({ "cell": plan::labels(experiment, cell), "runs": runs, "seconds_each": duration })
        });
        return print::json(&json!({
            "name": spec.name, "description": spec.description, "cells": cells.collect::<Vec<_>>(), "runs": jobs.len(),
            "seconds": plan::total(experiment, jobs).as_secs_f64(), "root": plan::needs_root(experiment),
        }));
    }
    print::line(&format!("{}: {}", spec.name, spec.description))?;
    for cell in plan::cells(experiment) {
        let runs = jobs.iter().filter(|j| j.cell == cell).count() as u32;
        let duration = plan::estimate(experiment, cell);
        let name = describe(&plan::labels(experiment, cell));
        print::line(&match runs {
            0 => format!("  {name:<40}  no run: one would take about {}", format_span(duration)),
            _ => format!(
                "  {name:<40} {runs:>3} runs of about {}, {} in all",
                format_span(duration),
                format_span(duration * runs)
            ),
        })?;
    }
    let (runs, total) = (jobs.len(), format_span(plan::total(experiment, jobs)));
    print::line(&format!("{runs} runs (warm-up included) and two idle baselines of {} s: about {total}", spec.idle_s))?;
    if plan::needs_root(experiment) {
        print::line("links are made in network namespaces: run it as root")?;
    }
    Ok(())
}

pub fn format_span(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        s @ 10..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s.div_ceil(60)),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// Progress on standard error; with `--json`, runs on standard output.
struct Printer {
    bar: ProgressBar,
    json: bool,
    /// The first error in writing output; it ends the campaign.
    unwritten: Option<anyhow::Error>,
    stop: Arc<AtomicBool>,
}

impl Printer {
    fn new(json: bool, stop: Arc<AtomicBool>) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} {elapsed} {msg}");
        Self { bar: style.map_or(bar.clone(), |s| bar.with_style(s)), json, unwritten: None, stop }
    }

    fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Begin { runs, done, estimate } => {
                self.bar.set_length(runs as u64);
                self.bar.enable_steady_tick(Duration::from_millis(500));
                let already = if done > 0 { format!(", {done} are there already") } else { String::new() };
                self.say(&format!("{runs} runs to do{already}: about {}", format_span(estimate)));
            }
            Event::Idle(when) => self.bar.set_message(format!("idle baseline, {when}")),
            Event::Run { cell, repetition, warm_up, left } => {
                let kind = if warm_up { "warm-up" } else { "run" };
                self.bar.set_message(format!("{}, {kind} {repetition}; {} left", describe(cell), format_span(left)));
            }
            Event::Over { run, warm_up } => {
                self.bar.inc(1);
                if self.json && !warm_up {
                    if let Err(error) = self.bar.suspend(|| print::line(&json!(run).to_string())) {
                        self.unwritten.get_or_insert(error);
                        self.stop.store(true, Ordering::SeqCst);
                    }
                } else {
                    self.say(&line(run, warm_up));
                }
            }
            Event::Note(note) => self.say(&note),
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| print::note(text));
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        self.unwritten.take().map_or(Ok(()), Err)
    }
}

fn line(run: &Run, warm_up: bool) -> String {
    let name = format!("{} #{}{}", describe(&run.cell), run.repetition, if warm_up { " (warm-up)" } else { "" });
    if let Some(failure) = &run.failure {
        return format!("{name}: FAILED: {failure}");
    }
    let mut text = format!("{name}:");
    if let Some(latency) = run.results.get("latency_s") {
        text += &format!(" {latency:.3} s");
    }
    if let Some(goodput) = run.results.get("goodput_bps") {
        text += &format!(", {:.2} Mbit/s", goodput / 1e6);
    }
    for (party, used) in &run.parties {
        text += &format!(", {party} {:.2} s CPU, {}", used.user_s + used.system_s, print::bytes(used.rss_bytes));
        if let Some(energy) = run.energy.get(party) {
            let joules =
                energy.net_j.map_or_else(|| format!("{:.3} J gross", energy.gross_j), |j| format!("{j:.3} J net"));
            text += &format!(", {joules}{}", if energy.below_noise { " (below noise)" } else { "" });
        }
    }
    text
}

fn conclude(outcome: &Outcome, dir: &Path, as_json: bool) -> anyhow::Result<()> {
    let Outcome { done, failed, left, stopped, given_up } = *outcome;
    let dir = dir.display();
    if as_json {
        let text = json!({"done": done, "failed": failed, "left": left, "stopped": stopped, "given_up": given_up});
        print::line(&text.to_string())?;
    } else {
        print::note(&format!("{done} runs in {dir}; see them with `tacit lab report {dir}`"));
    }
    if given_up {
        bail!("ended: five runs in a row failed; the output of their programs is in {dir}/logs");
    }
    if stopped {
        bail!("stopped with {left} runs left; the same command continues the campaign");
    }
    if left > 0 {
        bail!("{failed} runs failed; the output of their programs is in {dir}/logs; the same command repeats the runs");
    }
    Ok(())
}
