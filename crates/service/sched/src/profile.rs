//! The profile table: expected duration and memory of a job.
//!
//! Cells are keyed by (model, phase, batch, threads); a [`ModelId`] stands for one (model, back
//! end, link class). A cell holds [`WINDOW`] measurements, the first of which may come from a file.
//! Its estimate is the **median** time and the **maximum** memory. A median of nine ignores four
//! outliers and follows a lasting change after five jobs; the maximum keeps the memory reservation
//! on the safe side.
//!
//! A client also influences how long its jobs take, so one slow client, malicious or not, must not
//! determine the estimate of its class. The cell therefore takes the median of each client, then
//! the median of these **clients'** medians (the lower of two). A full window drops the oldest
//! measurement of the client with the most measurements.
//!
//! The estimate of a cell without measurements is derived from the nearest measured cell with the
//! model's assumed [`Speedup`]. The first measurement replaces it.

use crate::ids::{ClientId, JobPhase, ModelId};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Measurements kept per cell.
pub const WINDOW: usize = 9;
/// Finished jobs per phase of a model whose estimates are recorded, for [`ErrorReport`].
pub const ERROR_WINDOW: usize = 64;

/// Assumed effect of threads on a job's time, for thread counts without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speedup {
    /// Threads do not help.
    None,
    /// Amdahl's law with this share of the work parallel, in [0, 1].
    Amdahl(f64),
}

impl Speedup {
    /// Time on `threads` threads divided by time on one.
    pub fn factor(self, threads: u32) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Amdahl(parallel) => {
                let parallel = parallel.clamp(0.0, 1.0);
                (1.0 - parallel) + parallel / f64::from(threads.max(1))
            }
        }
    }
}

/// One measurement, or one line of a profile file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Wall time.
    pub time: Span,
    /// Peak memory in bytes.
    pub memory: u64,
}

/// A measurement and the client whose job it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurement.
    pub sample: Sample,
    /// The client; `None` for samples from a file and for jobs without a client.
    pub from: Option<ClientId>,
}

impl From<Sample> for Measured {
    fn from(sample: Sample) -> Self {
        Self { sample, from: None }
    }
}

/// Estimate for one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Expected wall time.
    pub time: Span,
    /// Memory to reserve, in bytes.
    pub memory: u64,
}

/// Quality of the table's estimates for one phase of one model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// Jobs that were compared with their estimate, at most [`ERROR_WINDOW`].
    pub jobs: usize,
    /// Mean of the expected times.
    pub expected: Span,
    /// Mean of the actual times.
    pub actual: Span,
    /// Median of |actual - estimate| / actual.
    pub median: f64,
    /// 95th percentile of the same.
    pub p95: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    batch: u32,
    threads: u32,
    window: VecDeque<Measured>,
}

/// Up to [`WINDOW`] times of one client.
#[derive(Default)]
struct Times {
    times: [Span; WINDOW],
    len: usize,
}

impl Times {
    fn push(&mut self, time: Span) {
        if let Some(slot) = self.times.get_mut(self.len) {
            *slot = time;
            self.len += 1;
        }
    }

    fn sorted(&mut self) -> &[Span] {
        let times = &mut self.times[..self.len];
        times.sort_unstable();
        times
    }
}

impl Cell {
    fn estimate(&self) -> Estimate {
        // Measurements without a client count only until there is one with a client.
        let has_client = self.window.iter().any(|m| m.from.is_some());
        let counted = || self.window.iter().filter(|m| m.from.is_some() || !has_client);
        let mut medians = Times::default();
        for (index, first) in counted().enumerate() {
            if counted().take(index).all(|earlier| earlier.from != first.from) {
                let mut client_times = Times::default();
                counted().filter(|m| m.from == first.from).for_each(|m| client_times.push(m.sample.time));
                let middle = client_times.len / 2;
                medians.push(client_times.sorted()[middle]);
            }
        }
        let medians = medians.sorted();
        let time = medians.get(medians.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let memory = self.window.iter().map(|m| m.sample.memory).max().unwrap_or(0);
        Estimate { time, memory }
    }

    /// Adds a measurement. A full window drops the oldest of the client that has most.
    fn push(&mut self, measured: Measured) {
        if self.window.len() == WINDOW {
            let max_count = self.window.iter().map(|m| self.count(m.from)).max();
            let oldest = self.window.iter().position(|m| Some(self.count(m.from)) == max_count);
            self.window.remove(oldest.unwrap_or(0));
        }
        self.window.push_back(measured);
    }

    fn count(&self, from: Option<ClientId>) -> usize {
        self.window.iter().filter(|m| m.from == from).count()
    }
}

/// Measurements of one phase of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PhaseTable {
    speedup: Speedup,
    cells: Vec<Cell>,
    compared: VecDeque<Compared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Compared {
    /// Estimate when the job started.
    expected: Span,
    /// Actual duration, above zero.
    actual: Span,
}

impl Compared {
    fn error(self) -> f64 {
        (self.actual.secs() - self.expected.secs()).abs() / self.actual.secs()
    }
}

impl PhaseTable {
    fn new(speedup: Speedup) -> Self {
        Self { speedup, cells: Vec::new(), compared: VecDeque::new() }
    }

    /// Adds a measurement; returns whether an estimate may have changed.
    fn push(&mut self, batch: u32, threads: u32, measured: Measured) -> bool {
        let old_estimate = self.measured(batch, threads).map(Cell::estimate);
        let cell = match self.cells.iter().position(|c| c.batch == batch && c.threads == threads) {
            Some(index) => &mut self.cells[index],
            None => {
                self.cells.push(Cell { batch, threads, window: VecDeque::with_capacity(WINDOW) });
                let last = self.cells.len() - 1;
                &mut self.cells[last]
            }
        };
        cell.push(measured);
        old_estimate != Some(cell.estimate())
    }

    fn measured(&self, batch: u32, threads: u32) -> Option<&Cell> {
        self.cells.iter().find(|c| c.batch == batch && c.threads == threads)
    }

    /// The estimate of the cell itself where measured, else of the nearest cell: same threads
    /// first, then nearest batch, then nearest thread count.
    fn estimate(&self, batch: u32, threads: u32) -> Option<Estimate> {
        if let Some(cell) = self.measured(batch, threads) {
            return Some(cell.estimate());
        }
        let near = self.cells.iter().min_by_key(|c| {
            let other_threads = c.threads != threads;
            (other_threads, distance(c.batch, batch), distance(c.threads, threads), c.threads)
        })?;
        let measured = near.estimate();
        let ratio = self.speedup.factor(threads) / self.speedup.factor(near.threads);
        Some(Estimate { time: measured.time.scaled(ratio), memory: measured.memory })
    }
}

/// Initial estimate of one phase of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpec {
    /// Time and memory on one thread.
    pub first: Sample,
    /// Assumed effect of more threads.
    pub speedup: Speedup,
}

/// Durations and peak memory of every model's two phases; learns from finished jobs.
///
/// Serialises to a file unchanged, so a restarted server continues with the learned values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileTable {
    /// Indexed by [`JobPhase`].
    models: Vec<[PhaseTable; 2]>,
}

impl ProfileTable {
    /// A table without models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model with the initial estimates of its phases (batch 1). `pre` is `None` for a model
    /// without T_pre. The id is the index of the model.
    pub fn add_model(&mut self, pre: Option<PhaseSpec>, on: PhaseSpec) -> ModelId {
        let mut tables = [PhaseTable::new(pre.map_or(Speedup::None, |pre| pre.speedup)), PhaseTable::new(on.speedup)];
        if let Some(pre) = pre {
            tables[0].push(1, 1, pre.first.into());
        }
        tables[1].push(1, 1, on.first.into());
        self.models.push(tables);
        ModelId(self.models.len() as u32 - 1)
    }

    /// Number of models.
    pub fn models(&self) -> usize {
        self.models.len()
    }

    /// Learns from a finished job and records the error of `estimate`, the expected time when the
    /// job started. Returns whether an estimate of this model may have changed.
    pub fn learn(
        &mut self,
        model: ModelId,
        phase: JobPhase,
        batch: u32,
        threads: u32,
        actual: impl Into<Measured>,
        estimate: Span,
    ) -> bool {
        let measured = actual.into();
        let actual = measured.sample;
        let Some(tables) = self.models.get_mut(model.0 as usize) else {
            return false;
        };
        let table = &mut tables[phase as usize];
        let is_changed = table.push(batch_bucket(batch), threads, measured);
        if actual.time > Span::ZERO {
            if table.compared.len() == ERROR_WINDOW {
                table.compared.pop_front();
            }
            table.compared.push_back(Compared { expected: estimate, actual: actual.time });
        }
        is_changed
    }

    /// Expected time and memory; `None` for an unknown model and for the T_pre of a model without
    /// one.
    pub fn estimate(&self, model: ModelId, phase: JobPhase, batch: u32, threads: u32) -> Option<Estimate> {
        self.models.get(model.0 as usize)?[phase as usize].estimate(batch_bucket(batch), threads)
    }

    /// The error of recent estimates; `None` before the first finished job.
    pub fn error(&self, model: ModelId, phase: JobPhase) -> Option<ErrorReport> {
        let jobs = &self.models.get(model.0 as usize)?[phase as usize].compared;
        let mut sorted: Vec<f64> = jobs.iter().map(|job| job.error()).collect();
        sorted.sort_unstable_by(tacit_floats::rising);
        let last = sorted.len().checked_sub(1)?;
        let (expected, actual) = (mean(jobs, |job| job.expected), mean(jobs, |job| job.actual));
        Some(ErrorReport {
            jobs: sorted.len(),
            expected,
            actual,
            median: sorted[last / 2],
            p95: sorted[last * 95 / 100],
        })
    }
}

/// The batch size of a cell: `batch` rounded up to a power of two. Inputs of one batch run side by
/// side and share the link.
pub fn batch_bucket(batch: u32) -> u32 {
    batch.clamp(1, 1 << 20).next_power_of_two()
}

fn distance(a: u32, b: u32) -> u32 {
    a.max(1).ilog2().abs_diff(b.max(1).ilog2())
}

fn mean(jobs: &VecDeque<Compared>, select: fn(&Compared) -> Span) -> Span {
    Span::from_secs(jobs.iter().map(|job| select(job).secs()).sum::<f64>() / jobs.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobPhase::{On, Pre};

    fn sample(secs: f64, memory: u64) -> Sample {
        Sample { time: Span::from_secs(secs), memory }
    }

    /// A table with one model, [`MODEL`], whose phases take `secs`.
    fn table(secs: f64) -> ProfileTable {
        let mut table = ProfileTable::new();
        let [pre, on] =
            [Speedup::None, Speedup::Amdahl(0.95)].map(|speedup| PhaseSpec { first: sample(secs, 100), speedup });
        assert_eq!(table.add_model(Some(pre), on), MODEL);
        table
    }

    const MODEL: ModelId = ModelId(0);

    impl ProfileTable {
        fn secs(&self, phase: JobPhase, batch: u32, threads: u32) -> f64 {
            self.estimate(MODEL, phase, batch, threads).unwrap().time.secs()
        }

        /// Learns a job on one thread that was expected to take `expected_s` seconds.
        fn learn_job(&mut self, phase: JobPhase, actual: impl Into<Measured>, expected_s: f64) {
            self.learn(MODEL, phase, 1, 1, actual, Span::from_secs(expected_s));
        }

        /// Learns `n` T_pre of this mean time with 5 % spread; returns the relative errors of the estimates.
        fn feed(&mut self, n: u64, mean: f64) -> Vec<f64> {
            let mut rng = fastrand::Rng::with_seed(n);
            let errors = (0..n).map(|_| {
                let expected = self.secs(Pre, 1, 1);
                let actual = mean * (0.95 + 0.1 * rng.f64());
                self.learn_job(Pre, sample(actual, 100), expected);
                (actual - expected).abs() / actual
            });
            errors.collect()
        }
    }

    #[test]
    fn median_error_is_at_most_5_percent_after_20_jobs_of_5_percent_spread() {
        let mut table = table(3.0); // the file was wrong by 3x
        table.feed(20, 1.0);
        let mut later = table.feed(200, 1.0);
        later.sort_unstable_by(f64::total_cmp);
        assert!(later[100] <= 0.05, "median error {}", later[100]);
        assert!(table.error(MODEL, Pre).unwrap().median <= 0.05);
    }

    #[test]
    fn follows_a_step_of_2x_within_10_jobs() {
        for step in [2.0, 0.5] {
            let mut table = table(1.0);
            table.feed(50, 1.0);
            table.feed(10, step);
            let now = table.secs(Pre, 1, 1);
            assert!((now / step - 1.0).abs() <= 0.10, "estimate {now} after a step to {step}");
        }
    }

    #[test]
    fn compares_jobs_with_their_estimates() {
        let mut table = table(1.0);
        assert_eq!(table.error(MODEL, On), None);
        for (expected, actual) in [(1.0, 2.0), (3.0, 2.0), (2.0, 2.0), (4.0, 8.0)] {
            table.learn_job(On, sample(actual, 1), expected);
        }
        // Jobs without duration do not count.
        table.learn_job(On, sample(0.0, 1), 9.0);
        let report = table.error(MODEL, On).unwrap();
        assert_eq!((report.jobs, report.expected.secs(), report.actual.secs()), (4, 2.5, 3.5));
        assert_eq!((report.median, report.p95), (0.5, 0.5));
        assert_eq!(table.error(MODEL, Pre), None);
        for _ in 0..2 * ERROR_WINDOW {
            table.learn_job(On, sample(1.0, 1), 1.0);
        }
        let report = table.error(MODEL, On).unwrap();
        assert_eq!((report.jobs, report.p95), (ERROR_WINDOW, 0.0));
    }

    #[test]
    fn outliers_raise_the_memory_and_not_the_time() {
        let mut table = table(1.0);
        table.feed(20, 1.0);
        for _ in 0..3 {
            table.learn_job(Pre, sample(500.0, 900), 1.0);
        }
        let now = table.estimate(MODEL, Pre, 1, 1).unwrap();
        assert!((now.time.secs() - 1.0).abs() < 0.05);
        assert_eq!(now.memory, 900);
    }

    fn measured(client: u64, secs: f64) -> Measured {
        Measured { sample: sample(secs, 100), from: Some(ClientId::numbered(client)) }
    }

    #[test]
    fn one_slow_client_does_not_set_the_estimate_of_its_class() {
        let mut shared = table(1.0);
        let mut learn = |measured: Measured| {
            shared.learn_job(Pre, measured, 1.0);
            shared.secs(Pre, 1, 1)
        };
        for _ in 0..50 {
            learn(measured(7, 400.0));
        }
        assert!(learn(measured(1, 1.0)) < 1.1);
        // Ten jobs of the slow client for each of two others.
        for _ in 0..20 {
            (0..10).for_each(|_| assert!(learn(measured(7, 400.0)) < 1.3));
            assert!(learn(measured(1, 1.0)) < 1.3);
            assert!(learn(measured(2, 1.2)) < 1.3);
        }
        // A lasting change of two clients is followed.
        for _ in 0..20 {
            learn(measured(1, 5.0));
            learn(measured(2, 5.0));
        }
        assert!((learn(measured(1, 5.0)) - 5.0).abs() < 0.01);
        let mut alone = table(1.0);
        alone.learn_job(Pre, measured(7, 4.0), 1.0);
        assert!((alone.secs(Pre, 1, 1) - 4.0).abs() < 0.01);
    }

    #[test]
    fn many_clients_of_one_job_each_are_followed() {
        let mut table = table(1.0);
        for (client, secs) in (0..100).zip([1.0, 2.0, 3.0].into_iter().cycle()) {
            table.learn_job(On, measured(client, secs), 1.0);
        }
        assert!((table.secs(On, 1, 1) - 2.0).abs() < 0.01);
    }

    #[test]
    fn unmeasured_threads_follow_the_law_until_they_are_measured() {
        let mut table = table(10.0);
        assert!((table.secs(On, 1, 16) - 10.0 * (0.05 + 0.95 / 16.0)).abs() < 1e-6);
        assert_eq!(table.secs(Pre, 1, 16), 10.0);
        table.learn(MODEL, On, 1, 16, sample(4.0, 7), Span::from_secs(4.0));
        assert_eq!(table.secs(On, 1, 16), 4.0);
        // Another batch with the same threads is nearer than another thread count with the same batch.
        assert_eq!(table.secs(On, 8, 16), 4.0);
    }

    #[test]
    fn a_table_from_a_file_has_the_same_estimates() {
        let mut table = table(1.0);
        table.feed(12, 1.0);
        let text = serde_json::to_string(&table).unwrap();
        let restored: ProfileTable = serde_json::from_str(&text).unwrap();
        assert_eq!(restored.estimate(MODEL, Pre, 1, 1), table.estimate(MODEL, Pre, 1, 1));
        assert!(table.estimate(ModelId(9), Pre, 1, 1).is_none());
    }
}
