//! `tacit lab run`
use super::{inputs, live};
use crate::print;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tacit_lab::campaign::Run;
use tacit_lab::compare::describe;
use tacit_lab::experiment::{BUILT_IN, BuiltIn, Event, Experiment, ExperimentSpec, LinkText, Outcome, Settings, plan};

/// Runs an experiment: every cell (link x transport x workload x pace) as often as it says, each run
/// measured, everything kept in DIR.
///
/// An experiment is a TOML file (docs/lab.md, "Experiments") or the name of a built-in one. The same command
/// continues a campaign that was interrupted, and repeats failed runs. Ctrl-C ends it cleanly. Links need
/// root.
///
/// Examples: sudo tacit lab run pm24-bandwidth -o sweep
///           sudo tacit lab run pm24-inference --model squeezenet.tacit --input photo.npy -o squeezenet
///           tacit lab run idle --seconds 60 -o idle
///           tacit lab run pm24-bandwidth --show > mine.toml; sudo tacit lab run mine.toml -o mine
///           tacit lab run ss26-live -o ss26
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    of_its_own: Option<OfItsOwn>,
    /// A TOML file or the name of a built-in experiment (--list)
    #[arg(required_unless_present = "list")]
    experiment: Option<String>,
    /// Folder of the campaign: made, or continued
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["list", "show", "dry_run"])]
    output: Option<PathBuf>,
    /// Measured runs of each cell
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// See whether everything works: two repetitions, short baselines, no pauses
    #[arg(long)]
    quick: bool,
    /// These links instead of the experiment's: its own names, presets, or none
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    links: Vec<String>,
    /// Only these workloads of the experiment
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<String>,
    /// These transports instead of the experiment's: plain, tls, wireguard, tls+wireguard
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    transports: Vec<String>,
    /// What {seconds} stands for: how long timed workloads last
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Sampling interval, seconds
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
    /// Power source, as in `tacit lab sensors`; may be given several times, the first is the primary one
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// Device profile for modelled joules where there is no sensor: NAME or NAME/MODE; `none` for no joules
    #[arg(long, value_name = "PROFILE")]
    device: Option<String>,
    /// Decides the order of the runs
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Model for private inference: .tacit or ONNX; with pm24-bandwidth, inference takes the place of its
    /// workloads
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Input for private inference: an image or .npy; without one, seeded values in the model's range
    #[arg(long, value_name = "FILE", requires = "model")]
    input: Option<PathBuf>,
    /// Print one JSON object per run, and one at the end
    #[arg(long)]
    json: bool,
    /// List the built-in experiments
    #[arg(long, conflicts_with_all = ["show", "dry_run"])]
    list: bool,
    /// Print the experiment as TOML, options applied and defaults filled in, and end
    #[arg(long)]
    show: bool,
    /// Print the plan with its time, and end
    #[arg(long)]
    dry_run: bool,
}

/// Experiments that are no matrix of links and commands: each has its own options.
#[derive(clap::Subcommand)]
enum OfItsOwn {
    Ss26Live(Box<live::Args>),
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(OfItsOwn::Ss26Live(args)) = &args.of_its_own {
        return live::run(args);
    }
    if args.list {
        return list(args.json);
    }
    let spec = load(args)?;
    if args.show {
        Experiment::new(spec.clone())?;
        return if args.json { print::json(&json!(spec)) } else { print::text(&spec.to_toml()?) };
    }
    let experiment = Experiment::new(spec)?;
    let jobs = plan::remaining(&experiment, &[]);
    if args.dry_run {
        return show_plan(&experiment, &jobs, args.json);
    }
    let dir = args.output.as_deref().context("give the campaign's folder with -o DIR")?;
    if experiment.spec().values.contains_key("model") {
        inputs::prepare(dir, args.model.as_deref(), args.input.as_deref())?;
    }
    carry_out(&experiment, dir, args.json)
}

/// Runs what is left of an experiment in `dir`, with progress on standard error; an error if something is
/// left then.
pub(super) fn carry_out(experiment: &Experiment, dir: &Path, as_json: bool) -> anyhow::Result<()> {
    let settings = Settings {
        dir: dir.to_owned(),
        program: std::env::current_exe().context("finding this program")?,
        versions: BTreeMap::from([("tacit".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let wish = stop.clone();
    ctrlc::set_handler(move || {
        if !wish.swap(true, Ordering::SeqCst) {
            print::note("stopping: what was measured is kept; the same command goes on from here");
        }
    })?;
    let mut printer = Printer::new(as_json, stop.clone());
    let outcome = tacit_lab::experiment::run(experiment, &settings, &stop, &mut |event| printer.tell(event))?;
    printer.finish()?;
    conclude(&outcome, dir, as_json)
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for built_in in BUILT_IN {
        let experiment = built_in.experiment()?;
        let time = plan::total(&experiment, &plan::remaining(&experiment, &[]));
        rows.push((built_in.name, time, experiment.spec().description.clone()));
    }
    rows.push(("ss26-live", live::ABOUT_TIME, format!("{} (options of its own)", live::ABOUT)));
    if as_json {
        let one = |(name, time, about): &(&str, Duration, String)| json!({ "name": name, "seconds": time.as_secs(), "description": about });
        return print::json(&rows.iter().map(one).collect());
    }
    rows.iter().try_for_each(|(name, time, about)| print::line(&format!("{name:<16} about {:<7} {about}", span(*time))))
}

/// The experiment with the command line's options applied.
fn load(args: &Args) -> anyhow::Result<ExperimentSpec> {
    let name = args.experiment.as_deref().context("name an experiment; --list shows the built-in ones")?;
    let mut spec = match (name, &args.model) {
        ("pm24-bandwidth", Some(_)) => BuiltIn::find("pm24-inference")?.spec()?,
        _ if name.ends_with(".toml") => {
            let text = std::fs::read_to_string(name).with_context(|| format!("reading {name}"))?;
            ExperimentSpec::from_toml(name, &text)?
        }
        _ => BuiltIn::find(name)?.spec()?,
    };
    if args.model.is_some() && !spec.values.contains_key("model") {
        bail!("{name} runs no model: its commands do not use {{model}}");
    }
    if args.quick {
        spec.make_quick();
    }
    override_lists(args, &mut spec)?;
    spec.repetitions = args.repetitions.unwrap_or(spec.repetitions);
    spec.seconds = args.seconds.unwrap_or(spec.seconds);
    spec.interval_s = args.interval.unwrap_or(spec.interval_s);
    spec.seed = args.seed.or(spec.seed);
    if !args.sources.is_empty() {
        spec.sources.clone_from(&args.sources);
    }
    match args.device.as_deref() {
        Some("none") => spec.device = None,
        Some(device) => spec.device = Some(device.to_owned()),
        None => {}
    }
    Ok(spec)
}

fn override_lists(args: &Args, spec: &mut ExperimentSpec) -> anyhow::Result<()> {
    if !args.transports.is_empty() {
        spec.transports.clone_from(&args.transports);
    }
    if !args.links.is_empty() {
        let own = |name: &String| {
            let named = |l: &&LinkText| matches!(l, LinkText::Table(t) if t.name.as_ref() == Some(name));
            spec.links.iter().find(named).cloned().unwrap_or_else(|| LinkText::Name(name.clone()))
        };
        spec.links = args.links.iter().map(own).collect();
    }
    for name in &args.workloads {
        if !spec.workloads.iter().any(|w| w.name == *name) {
            let known: Vec<&str> = spec.workloads.iter().map(|w| w.name.as_str()).collect();
            bail!("{} has no workload `{name}`; it has {}", spec.name, known.join(", "));
        }
    }
    if !args.workloads.is_empty() {
        spec.workloads.retain(|w| args.workloads.contains(&w.name));
    }
    Ok(())
}

pub(super) fn show_plan(experiment: &Experiment, jobs: &[plan::Job], as_json: bool) -> anyhow::Result<()> {
    let spec = experiment.spec();
    if as_json {
        let of = |cell| jobs.iter().filter(|j| j.cell == cell).count();
        let one = |cell| {
            let each = plan::estimate(experiment, cell).as_secs_f64();
            json!({ "cell": plan::labels(experiment, cell), "runs": of(cell), "seconds_each": each })
        };
        let cells: Vec<_> = plan::cells(experiment).into_iter().map(one).collect();
        return print::json(&json!({
            "name": spec.name, "description": spec.description, "cells": cells, "runs": jobs.len(),
            "seconds": plan::total(experiment, jobs).as_secs_f64(), "root": plan::needs_root(experiment),
        }));
    }
    print::line(&format!("{}: {}", spec.name, spec.description))?;
    for cell in plan::cells(experiment) {
        let runs = jobs.iter().filter(|j| j.cell == cell).count() as u32;
        let each = plan::estimate(experiment, cell);
        let name = describe(&plan::labels(experiment, cell));
        print::line(&format!("  {name:<40} {runs:>3} runs of about {}, {} in all", span(each), span(each * runs)))?;
    }
    let (runs, total) = (jobs.len(), span(plan::total(experiment, jobs)));
    print::line(&format!("{runs} runs (warm-up included) and two idle baselines of {} s: about {total}", spec.idle_s))?;
    if plan::needs_root(experiment) {
        print::line("links are made in network namespaces: run it as root")?;
    }
    Ok(())
}

/// A length of time for people.
fn span(time: Duration) -> String {
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
    /// Output that cannot be written ends the campaign.
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
                self.say(&format!("{runs} runs to do{already}: about {}", span(estimate)));
            }
            Event::Idle(when) => self.bar.set_message(format!("idle baseline, {when}")),
            Event::Run { cell, repetition, warm_up, left } => {
                let kind = if warm_up { "warm-up" } else { "run" };
                self.bar.set_message(format!("{}, {kind} {repetition}; {} left", describe(cell), span(left)));
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

/// A run in one line.
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
        bail!("ended: five runs in a row failed; what their programs printed is in {dir}/logs");
    }
    if stopped {
        bail!("stopped with {left} runs left; the same command goes on from here");
    }
    if left > 0 {
        bail!("{failed} runs failed; what their programs printed is in {dir}/logs; the same command repeats them");
    }
    Ok(())
}
