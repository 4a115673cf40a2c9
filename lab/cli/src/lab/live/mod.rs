//! `tacit lab run ss26-live`: runs the policies of [SS26] on a real server with real clients.
//! Simulates the same arrivals with what the server has learned, for comparison.
mod clients;
mod dealer;
mod pin;
mod profile;
mod program;
mod results;
mod server;
mod settings;
mod stage;
mod watch;

use super::conduct::{stopping, versions};
use super::nets;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use profile::Profile;
use serde_json::json;
use settings::{Cell, NAME, Settings, Traffic};
use stage::Stage;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tacit_cli::lowering::Lowering;
use tacit_cli::print;
use tacit_experiments::campaign::{self, Campaign, Folder, Run};
use tacit_experiments::experiment::Scratch;

pub const ABOUT: &str = "the policies of [SS26] on a real server with real clients, and simulated beside it";
/// Expected duration with default options.
pub const ABOUT_TIME: Duration = Duration::from_secs(30 * 60);
/// The campaign ends after this many failed cells in a row.
const MAX_FAILURES: usize = 3;
const QUICK_REQUESTS: usize = 16;

/// Run the policies of [SS26] live: for each policy and workload a real server with real clients
///
/// Beside each cell the command runs the simulator, on the profile just learned and with the same
/// arrivals. First every network runs alone, which gives the first estimates of every server and
/// the rate of the requests. D, W and counts are the server's own. Server and clients have a core
/// each. The command needs no root.
///
/// The same command continues an interrupted campaign, and keeps finished cells. Ctrl-C ends the
/// campaign and keeps finished cells. The campaign takes about half an hour, with `--quick` a few
/// minutes.
///
/// Examples: tacit lab run ss26-live -o ss26
///           tacit lab run ss26-live --quick -o try
///           tacit lab run ss26-live --policies fcfs,srt --workloads light --requests 60 -o mine
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the campaign, to make or to continue
    #[arg(short, long, value_name = "DIR", visible_alias = "out", help_heading = "Output")]
    output: PathBuf,
    #[command(flatten)]
    traffic: Traffic,
    /// Networks in the roles of the paper's M1, HiNet, M2, AlexNet and VGG-16: digits, names of the
    /// zoo, or files. The last network takes all remaining roles [default: digits,lenet,m2,resnet32
    /// and a large one]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    nets: Vec<String>,
    /// Largest network, after those of --nets: a file (.onnx, .tacit), or none [default: SqueezeNet
    /// of ../shared/data, if the file exists]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    model: Option<String>,
    /// Print one JSON object per cell, and one at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    lowering: Lowering,
    /// Jobs that the server may run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(help_heading = "Server")]
    cores: u32,
    /// Cores of a larger simulated machine, which replays the recorded jobs
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    #[arg(help_heading = "Server", hide_short_help = true)]
    slots: u32,
    /// Leave the choice of cores for server and clients to the system
    #[arg(long, help_heading = "Device", hide_short_help = true)]
    no_pin: bool,
    /// Seed of the requests and their times
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Input", hide_short_help = true)]
    seed: u64,
    /// Try the campaign: 16 requests a cell, small networks only
    #[arg(long, help_heading = "Limits")]
    quick: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let (nets, lacking) = nets::choose(&args.nets, args.model.as_deref(), args.quick)?;
    let (cores, unpinned) = match (args.no_pin, pin::cores()) {
        (false, Ok(cores)) => (Some(cores), None),
        (false, Err(reason)) => (None, Some(format!("server and clients share the cores of this machine: {reason}"))),
        (true, _) => (None, None),
    };
    let traffic =
        Traffic { requests: args.traffic.requests.or(args.quick.then_some(QUICK_REQUESTS)), ..args.traffic.clone() };
    let settings = Settings {
        backend: args.lowering.backend.clone(),
        options: args.lowering.options()?,
        nets: nets.iter().map(|net| net.name.clone()).collect(),
        traffic,
        cores: args.cores,
        slots: args.slots,
        pinned: cores.is_some(),
        seed: args.seed,
    };
    settings.check()?;
    let mut folder = Folder::open(&args.output)?;
    let done = resume(&settings, &args.output)?;
    lacking.iter().chain(&unpinned).for_each(|note| print::note(&format!("note: {note}")));
    let models = nets::prepare(&args.output, &nets, &args.lowering)?;
    if !campaign::is_there(&args.output) {
        folder.begin(&header(&settings)?)?;
    }
    let (stop, scratch, requests) = (stopping("cells")?, Scratch::new()?, AtomicUsize::new(0));
    let dir = args.output.canonicalize().with_context(|| args.output.display().to_string())?;
    let models: Vec<PathBuf> = models.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?;
    let stage = Stage {
        settings: &settings,
        lowering: &args.lowering,
        dir: &dir,
        models: &models,
        cores,
        scratch: &scratch,
        stop: &stop,
        done: &requests,
    };
    let outcome = Campaigning { stage, folder: &mut folder, runs: done, as_json: args.json }.carry_out()?;
    conclude(&settings, &outcome, &args.output, args.json)
}

fn resume(settings: &Settings, dir: &Path) -> anyhow::Result<Vec<Run>> {
    if !campaign::is_there(dir) {
        return Ok(vec![]);
    }
    let loaded = campaign::load(dir)?;
    let differences = settings::differences(&loaded.campaign.spec, &settings.to_toml()?);
    if loaded.campaign.experiment != NAME || !differences.is_empty() {
        bail!(
            "{} holds a campaign of another experiment: {}. Choose another folder, or run the experiment that is there to finish it",
            dir.display(),
            if loaded.campaign.experiment == NAME { differences.join("; ") } else { loaded.campaign.experiment }
        );
    }
    Ok(loaded.runs)
}

fn header(settings: &Settings) -> anyhow::Result<Campaign> {
    let machine = tacit_meter::machine::facts(&tacit_measure::usage::Roots::default(), &versions());
    Ok(Campaign::new(NAME.into(), ABOUT.into(), settings.to_toml()?, machine))
}

struct Campaigning<'a> {
    stage: Stage<'a>,
    folder: &'a mut Folder,
    /// All runs of this session and earlier ones.
    runs: Vec<Run>,
    as_json: bool,
}

struct Outcome {
    runs: Vec<Run>,
    failed: usize,
    remaining: usize,
    stopped: bool,
}

impl Campaigning<'_> {
    fn carry_out(mut self) -> anyhow::Result<Outcome> {
        let cells = self.stage.settings.cells();
        let todo = cells.into_iter().enumerate().filter(|(_, cell)| results::find_finished(&self.runs, cell).is_none());
        let todo: Vec<(usize, Cell)> = todo.collect();
        let mut outcome = Outcome { runs: vec![], failed: 0, remaining: todo.len(), stopped: false };
        let learned = self.stage.dir.join("profile");
        let profile = if todo.is_empty() { None } else { self.profile(&learned)? };
        let (mut in_a_row, total) = (0, todo.len());
        for (index, (number, cell)) in todo.into_iter().enumerate() {
            let Some(profile) = &profile else { break };
            let stem = format!("c{number:03}");
            let message = format!("cell {} of {total}: {}", index + 1, cell.name());
            let run = self
                .run_with_progress(&message, profile.requests, |stage| stage.cell(&cell, &stem, profile, &learned))?;
            let Some(run) = run else { break };
            self.folder.append(&run)?;
            outcome.remaining -= usize::from(run.failure.is_none());
            in_a_row = if run.failure.is_some() { in_a_row + 1 } else { 0 };
            outcome.failed += usize::from(run.failure.is_some());
            self.tell(&cell, &run)?;
            self.runs.retain(|old| old.cell != run.cell);
            self.runs.push(run);
            if in_a_row >= MAX_FAILURES {
                break;
            }
        }
        outcome.stopped = self.stage.stop.load(Ordering::Relaxed);
        outcome.runs = self.runs;
        Ok(outcome)
    }

    /// Measures each network alone, or reads the folder's profile; none if stopped.
    fn profile(&mut self, learned: &Path) -> anyhow::Result<Option<Profile>> {
        let (settings, dir) = (self.stage.settings, self.stage.dir);
        let profile = match Profile::read(dir)? {
            Some(profile) => profile,
            None => {
                let runs = profile::runs(settings.nets.len()).len();
                let Some(measured) =
                    self.run_with_progress("networks alone", runs, |stage| stage.measure_alone(learned))?
                else {
                    return Ok(None);
                };
                measured.write(dir)?;
                measured
            }
        };
        for net_profile in &profile.nets {
            let offline = net_profile.pre_s.map_or("none".to_owned(), |s| format!("{s:.3} s"));
            print::note(&format!("{}: offline {offline}, online {:.3} s alone", net_profile.net, net_profile.on_s));
        }
        for (workload, rate) in &profile.rates {
            print::note(&format!("{workload}: {} requests a cell, {rate:.3} a second", profile.requests));
        }
        profile.note(settings).iter().for_each(|note| print::note(&format!("note: {note}")));
        Ok(Some(profile))
    }

    /// Runs `work` with progress on standard error.
    fn run_with_progress<T>(
        &mut self,
        name: &str,
        requests: usize,
        work: impl FnOnce(&Stage<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.stage.done.store(0, Ordering::Relaxed);
        let style = ProgressStyle::with_template("{spinner} {msg} {bar:24} {pos}/{len} {elapsed}");
        let bar = ProgressBar::new(requests as u64).with_message(name.to_owned());
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
        let is_over = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    bar.set_position(self.stage.done.load(Ordering::Relaxed) as u64);
                    bar.tick();
                    thread::sleep(Duration::from_millis(200));
                }
            });
            let result = work(&self.stage);
            is_over.store(true, Ordering::Relaxed);
            result
        });
        bar.finish_and_clear();
        result
    }

    fn tell(&self, cell: &Cell, run: &Run) -> anyhow::Result<()> {
        if self.as_json {
            return print::line(&json!(run).to_string());
        }
        let [d, w, makespan, simulated] = ["delay_s", "waiting_s", "makespan_s", "simulated.delay_s"]
            .map(|key| run.results.get(key).copied().unwrap_or(f64::NAN));
        print::note(&match &run.failure {
            Some(failure) => format!("{}: FAILED: {failure}", cell.name()),
            None => format!(
                "{}: D {d:.3} s, W {w:.3} s, makespan {makespan:.1} s; simulated D {simulated:.3} s",
                cell.name()
            ),
        });
        Ok(())
    }
}

fn conclude(settings: &Settings, outcome: &Outcome, dir: &Path, as_json: bool) -> anyhow::Result<()> {
    let Outcome { runs, failed, remaining, stopped } = outcome;
    let rows = results::rows(&settings.cells(), runs);
    let dir = dir.display();
    if as_json {
        let cells: Vec<_> = rows.iter().map(results::Row::json).collect();
        let summary =
            json!({"done": rows.len(), "failed": failed, "left": remaining, "stopped": stopped, "cells": cells});
        print::line(&summary.to_string())?;
    } else {
        print::text(&results::table(&rows, settings.slots))?;
        print::note(&format!("{} cells in {dir}; see them with `tacit lab report {dir}`", rows.len()));
    }
    if *stopped {
        bail!("stopped with {remaining} cells left; the same command continues the campaign");
    }
    if *remaining > 0 {
        bail!(
            "{failed} cells failed, {remaining} are left; the servers' messages are in {dir}/logs; the same command repeats the cells"
        );
    }
    Ok(())
}
