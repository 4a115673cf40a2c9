//! The plan of a campaign: cells, their order, the rest of an interrupted campaign, and the
//! expected duration.
use super::checked::Experiment;
use crate::campaign::Run;
use crate::transport::TransportKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One combination of link, transport, workload and pace, as indices into the experiment's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Index into [`Experiment::links`].
    pub link: usize,
    /// Index into [`Experiment::transports`].
    pub transport: usize,
    /// Index into [`Experiment::workloads`].
    pub workload: usize,
    /// Index into [`Experiment::paces`].
    pub pace: usize,
}

/// One planned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its cell.
    pub cell: Cell,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Whether the result is discarded.
    pub warm_up: bool,
}

/// All cells, in the order of the experiment's lists: links outermost.
#[must_use]
pub fn cells(experiment: &Experiment) -> Vec<Cell> {
    let mut cells = vec![];
    for link in 0..experiment.links().len() {
        for transport in 0..experiment.transports().len() {
            for workload in 0..experiment.workloads().len() {
                cells.extend((0..experiment.paces().len()).map(|pace| Cell { link, transport, workload, pace }));
            }
        }
    }
    cells
}

/// A cell's labels, as in [`Run::cell`]. Includes the pace if the experiment has any.
#[must_use]
pub fn labels(experiment: &Experiment, cell: Cell) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("link".to_owned(), experiment.links()[cell.link].name.clone()),
        ("transport".to_owned(), experiment.transports()[cell.transport].to_string()),
        ("workload".to_owned(), experiment.workloads()[cell.workload].name.clone()),
    ]);
    if experiment.paces().iter().any(Option::is_some) {
        let pace = experiment.paces()[cell.pace].map_or("none".into(), |p| p.to_string());
        labels.insert("pace".to_owned(), pace);
    }
    labels
}

/// A job's file name; the cell number is the index in [`cells`].
#[must_use]
pub fn file_stem(experiment: &Experiment, job: &Job) -> String {
    let number = cells(experiment).iter().position(|c| *c == job.cell).unwrap_or(0);
    let kind = if job.warm_up { 'w' } else { 'r' };
    format!("c{number:03}-{kind}{:02}", job.repetition)
}

/// The jobs that are left, in order; failed ones are repeated.
///
/// Repetition by repetition, all cells. With `randomise` the seed gives each repetition its own
/// order of cells (a randomised block design: slow drift of the machine affects all cells alike).
/// The order does not depend on where the campaign was interrupted, but may depend on the version
/// of `fastrand`. A cell's warm-up runs directly precede its first run of this session.
#[must_use]
pub fn remaining(experiment: &Experiment, done: &[Run]) -> Vec<Job> {
    let spec = experiment.spec();
    let finished: BTreeSet<(&BTreeMap<String, String>, u32)> =
        done.iter().filter(|r| r.failure.is_none()).map(|r| (&r.cell, r.repetition)).collect();
    let (cells, mut warm) = (cells(experiment), BTreeSet::new());
    let mut random = fastrand::Rng::with_seed(spec.seed.unwrap_or(0));
    let mut jobs = vec![];
    let wanted_counts: BTreeMap<Cell, u32> = cells.iter().map(|cell| (*cell, repetitions(experiment, *cell))).collect();
    for repetition in 0..spec.repetitions {
        let mut order = cells.clone();
        if spec.randomise {
            random.shuffle(&mut order);
        }
        for cell in order {
            if repetition >= wanted_counts[&cell] || finished.contains(&(&labels(experiment, cell), repetition)) {
                continue;
            }
            if warm.insert(cell) {
                jobs.extend((0..spec.warm_up).map(|i| Job { cell, repetition: i, warm_up: true }));
            }
            jobs.push(Job { cell, repetition, warm_up: false });
        }
    }
    jobs
}

/// Measured runs of a cell: fewer for long runs, none if the cell is left to a prediction.
#[must_use]
pub fn repetitions(experiment: &Experiment, cell: Cell) -> u32 {
    let (spec, long) = (experiment.spec(), length(experiment, cell).as_secs_f64());
    let exceeded = spec.fewer.iter().rfind(|fewer| long > fewer.above_s);
    exceeded.map_or(spec.repetitions, |fewer| fewer.repetitions)
}

/// Expected time of a run's programs.
#[must_use]
pub fn length(experiment: &Experiment, cell: Cell) -> Duration {
    let (link, workload) = (&experiment.links()[cell.link], &experiment.workloads()[cell.workload]);
    let mut seconds = workload.takes.as_secs_f64();
    let mut slowest = experiment.paces()[cell.pace].map_or(f64::INFINITY, |p| p.bits_per_second() as f64);
    if let Some(link) = &link.spec {
        seconds += workload.round_trips * link.rtt().as_secs_f64();
        for rate in [link.up(), link.down()].into_iter().flatten() {
            slowest = slowest.min(rate.bits_per_second() as f64);
        }
    }
    seconds += workload.moves_bytes as f64 * 8.0 / slowest;
    Duration::from_secs_f64(seconds.min(1e9))
}

/// Expected time of one run, with set-up and pauses.
#[must_use]
pub fn estimate(experiment: &Experiment, cell: Cell) -> Duration {
    let (spec, link) = (experiment.spec(), &experiment.links()[cell.link]);
    // Namespaces, processes, the last samples.
    let mut around = 0.3 + spec.cool_down_s;
    around += if link.spec.is_some() { spec.measure_s } else { 0.0 };
    around += if experiment.transports()[cell.transport].is_tunnelled() { 0.5 } else { 0.0 };
    length(experiment, cell) + Duration::from_secs_f64(around)
}

/// Estimates the remaining time; measured durations of a cell's runs replace its estimate.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// By (link, transport, workload, pace): total seconds and number.
    measured: BTreeMap<Cell, (f64, u32)>,
}

impl Clock {
    /// Records the duration of a run of `cell`, with set-up and pauses.
    pub fn record(&mut self, cell: Cell, took: Duration) {
        let entry = self.measured.entry(cell).or_default();
        *entry = (entry.0 + took.as_secs_f64(), entry.1 + 1);
    }

    /// Expected time of `jobs`.
    #[must_use]
    pub fn remaining_time(&self, experiment: &Experiment, jobs: &[Job]) -> Duration {
        let times = jobs.iter().map(|job| match self.measured.get(&job.cell) {
            Some((seconds, n)) => Duration::from_secs_f64(seconds / f64::from(*n)),
            None => estimate(experiment, job.cell),
        });
        times.sum()
    }
}

/// Expected time of the session: `jobs`, and the idle baselines.
#[must_use]
pub fn total(experiment: &Experiment, jobs: &[Job]) -> Duration {
    Clock::default().remaining_time(experiment, jobs) + 2 * Duration::from_secs_f64(experiment.spec().idle_s)
}

/// Whether any cell needs root rights for network namespaces.
#[must_use]
pub fn needs_root(experiment: &Experiment) -> bool {
    experiment.links().iter().any(|l| l.spec.is_some())
        || experiment.transports().iter().copied().any(TransportKind::is_tunnelled)
}

#[cfg(test)]
mod tests;
