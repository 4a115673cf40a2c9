//! The campaign: idle baseline, runs in their order, idle baseline.
use super::bench::Bench;
use super::checked::Experiment;
use super::meter::Meter;
use super::plan::{self, Clock, Job};
use super::program::pause;
use super::reuse::take_over;
use super::spec::ExperimentSpec;
use crate::LabError;
use crate::campaign::{self, Campaign, Folder, Idle, Run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of consecutive failures that ends the campaign: all runs are affected.
const MAX_FAILURES: u32 = 5;

/// Progress of the runner.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The campaign begins.
    Begin {
        /// Runs to do, warm-up included.
        runs: usize,
        /// Measured runs of an earlier session.
        done: usize,
        /// Estimated time.
        estimate: Duration,
    },
    /// An idle baseline begins: `before` or `after`.
    Idle(&'a str),
    /// A run begins.
    Run {
        /// Its cell's labels.
        cell: &'a BTreeMap<String, String>,
        /// Repetition, from 0.
        repetition: u32,
        /// Whether it will be discarded.
        warm_up: bool,
        /// Estimated time until the end of the campaign.
        left: Duration,
    },
    /// A run is over.
    Over {
        /// The written run, or for a warm-up the discarded one.
        run: &'a Run,
        /// Whether it is discarded.
        warm_up: bool,
    },
    /// A remark.
    Note(String),
}

/// Result of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Existing measured runs, of this session and earlier ones.
    pub done: usize,
    /// Runs that failed in this session.
    pub failed: usize,
    /// Remaining runs, failed ones included.
    pub left: usize,
    /// Whether the user stopped the campaign.
    pub stopped: bool,
    /// Whether consecutive failures ended the campaign.
    pub given_up: bool,
}

/// Folder and programs of a campaign.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The campaign's folder; created if missing, continued if it holds this experiment.
    pub dir: PathBuf,
    /// The program for `tacit` in command lines.
    pub program: PathBuf,
    /// Versions to record with the machine's facts.
    pub versions: BTreeMap<String, String>,
    /// Folders of campaigns whose runs of the same cells, on an equal machine, are taken over
    /// before the first run.
    pub from: Vec<PathBuf>,
}

/// Runs an experiment, or the rest of it. Setting `stop` ends it soon: the next session repeats the
/// run in progress.
///
/// # Errors
/// [`LabError::Spec`] if the folder holds another experiment or a command's program does not exist;
/// [`LabError::Unavailable`] without the rights that links need; [`LabError::Io`] and
/// [`LabError::Meter`] if a write fails: all earlier runs are on disk.
pub fn run(
    experiment: &Experiment,
    settings: &Settings,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, LabError> {
    check_programs(experiment)?;
    let mut folder = Folder::open(&settings.dir)?;
    let (experiment, mut done) = resume(experiment, &settings.dir)?;
    let dir = settings.dir.canonicalize().map_err(LabError::io(&settings.dir))?;
    let machine = tacit_meter::machine::facts(&tacit_measure::usage::Roots::default(), &settings.versions);
    if !settings.from.is_empty() {
        begin(&mut folder, &dir, &experiment, &machine)?;
    }
    for source_dir in &settings.from {
        let taken_count = take_over(&experiment, &machine, &mut folder, &mut done, source_dir)?;
        tell(Event::Note(format!("{taken_count} runs taken over from {}", source_dir.display())));
    }
    let jobs = plan::remaining(&experiment, &done);
    let finished = done.iter().filter(|r| r.failure.is_none()).count();
    tell(Event::Begin { runs: jobs.len(), done: finished, estimate: plan::total(&experiment, &jobs) });
    if jobs.is_empty() {
        return Ok(Outcome { done: finished, ..Outcome::default() });
    }
    let meter = Meter::open(experiment.spec(), machine.clone(), &mut |note| tell(Event::Note(note)))?;
    begin(&mut folder, &dir, &experiment, &machine)?;
    tell(Event::Note(meter.describe()));
    let mut bench = Bench { experiment: &experiment, dir: &dir, program: &settings.program, meter, stop };
    let mut outcome = drive(&experiment, &jobs, &mut folder, stop, &mut |what| conduct(&mut bench, what), tell)?;
    outcome.done += finished;
    Ok(outcome)
}

enum Step<'a> {
    Job(&'a Job),
    Idle(&'a str, usize),
}

enum StepResult {
    Run(Box<Run>),
    Idle(Idle),
    Stopped,
}

fn conduct(bench: &mut Bench<'_>, step: Step<'_>) -> Result<StepResult, LabError> {
    match step {
        Step::Job(job) => bench.conduct(job).map(|r| r.map_or(StepResult::Stopped, |r| StepResult::Run(Box::new(r)))),
        Step::Idle(when, number) => bench.idle(when, number).map(|i| i.map_or(StepResult::Stopped, StepResult::Idle)),
    }
}

/// Performs the jobs with `conduct` (tests replace it and need neither root nor time).
fn drive(
    experiment: &Experiment,
    jobs: &[Job],
    folder: &mut Folder,
    stop: &AtomicBool,
    conduct: &mut dyn FnMut(Step<'_>) -> Result<StepResult, LabError>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, LabError> {
    let measured = jobs.iter().filter(|j| !j.warm_up).count();
    let (mut outcome, mut clock, mut in_a_row) =
        (Outcome { left: measured, ..Outcome::default() }, Clock::default(), 0);
    let cool_down = Duration::from_secs_f64(experiment.spec().cool_down_s);
    let before = idle(experiment, folder, "before", conduct, tell)?;
    outcome.stopped = stop.load(Ordering::Relaxed);
    for (i, job) in jobs.iter().enumerate() {
        if outcome.stopped {
            return Ok(outcome);
        }
        let (started, cell) = (Instant::now(), plan::labels(experiment, job.cell));
        let (repetition, warm_up, left_time) =
            (job.repetition, job.warm_up, clock.remaining_time(experiment, &jobs[i..]));
        tell(Event::Run { cell: &cell, repetition, warm_up, left: left_time });
        if !pause(cool_down, stop) {
            outcome.stopped = true;
            continue;
        }
        let StepResult::Run(run) = conduct(Step::Job(job))? else {
            outcome.stopped = true;
            continue;
        };
        clock.record(job.cell, started.elapsed());
        if !warm_up {
            folder.append(&run)?;
        }
        tell(Event::Over { run: &run, warm_up });
        if run.failure.is_some() {
            outcome.failed += 1;
            in_a_row += 1;
        } else {
            in_a_row = 0;
            outcome.done += usize::from(!warm_up);
            outcome.left -= usize::from(!warm_up);
        }
        if in_a_row >= MAX_FAILURES {
            outcome.given_up = true;
            return Ok(outcome);
        }
    }
    if outcome.stopped {
        return Ok(outcome);
    }
    if let (Some(before), Some(after)) = (before, idle(experiment, folder, "after", conduct, tell)?) {
        drift(&before, &after).into_iter().for_each(|note| tell(Event::Note(note)));
    }
    outcome.stopped = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

fn idle(
    experiment: &Experiment,
    folder: &Folder,
    when: &str,
    conduct: &mut dyn FnMut(Step<'_>) -> Result<StepResult, LabError>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Option<Idle>, LabError> {
    if experiment.spec().idle_s <= 0.0 {
        return Ok(None);
    }
    tell(Event::Idle(when));
    match conduct(Step::Idle(when, folder.count_idle()?))? {
        StepResult::Idle(idle) => {
            folder.append_idle(&idle)?;
            Ok(Some(idle))
        }
        StepResult::Run(_) | StepResult::Stopped => Ok(None),
    }
}

/// Change of idle power during the campaign, by source.
fn drift(before: &Idle, after: &Idle) -> Vec<String> {
    let notes = before.power.iter().filter_map(|(name, b)| {
        let a = after.power.get(name)?;
        let sd = a.mean_sd_w.hypot(b.mean_sd_w);
        let drift = a.mean_w - b.mean_w;
        let weight = if drift.abs() > 2.0 * sd { "more than its noise" } else { "within its noise" };
        Some(format!(
            "idle power by {name}: {:.3} W before, {:.3} W after; drift {drift:+.3} W is {weight} (standard uncertainty {sd:.3} W)",
            b.mean_w, a.mean_w
        ))
    });
    notes.collect()
}

fn resume(experiment: &Experiment, dir: &Path) -> Result<(Experiment, Vec<Run>), LabError> {
    if !campaign::is_there(dir) {
        return Ok((experiment.clone().with_seed(fastrand::u64(..)), vec![]));
    }
    let loaded = campaign::load(dir)?;
    let subject = dir.display().to_string();
    let saved_spec = ExperimentSpec::from_toml(&subject, &loaded.campaign.spec)?;
    let own_spec = experiment.clone().with_seed(saved_spec.seed.unwrap_or(0) << 1);
    let differences = saved_spec.differences(own_spec.spec());
    if !differences.is_empty() {
        let detail = format!(
            "holds a campaign of another experiment: {}. Choose another folder, or run the experiment that is there to finish it",
            differences.join("; ")
        );
        return Err(LabError::spec(subject, detail));
    }
    Ok((own_spec, loaded.runs))
}

/// Writes the campaign's description, if missing.
fn begin(
    folder: &mut Folder,
    dir: &Path,
    experiment: &Experiment,
    machine: &BTreeMap<String, String>,
) -> Result<(), LabError> {
    if campaign::is_there(dir) {
        return Ok(());
    }
    let spec = experiment.spec();
    folder.begin(&Campaign::new(spec.name.clone(), spec.description.clone(), spec.to_toml()?, machine.clone()))
}

/// Checks before the first measurement that the commands' programs exist.
fn check_programs(experiment: &Experiment) -> Result<(), LabError> {
    for (i, workload) in experiment.workloads().iter().enumerate() {
        for (part, command) in [
            ("client", Some(&workload.client)),
            ("server", workload.server.as_ref()),
            ("dealer", workload.dealer.as_ref()),
        ] {
            let Some(program) = command.map(|c| c.program()) else { continue };
            // Placeholders are filled in later; `tacit` is this program.
            if program == "tacit" || program.contains('{') || is_program(program) {
                continue;
            }
            let subject = format!("workloads[{i}].{part}");
            let detail =
                format!("there is no program `{program}`; give an absolute path, or install it where PATH says");
            return Err(LabError::spec(subject, detail));
        }
    }
    Ok(())
}

fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_absolute() && Path::new(name).is_file();
    }
    std::env::var_os("PATH").is_some_and(|paths| std::env::split_paths(&paths).any(|dir| dir.join(name).is_file()))
}

#[cfg(test)]
mod tests;
