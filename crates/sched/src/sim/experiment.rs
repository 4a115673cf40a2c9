//! One cell of an experiment: a workload, a machine and a way to schedule, over seeds.

use super::bounds::{Ahead, Bounds};
use super::engine::{Run, Scenario};
use super::metrics::{Interval, Summary};
use super::profile::ProfileFile;
use super::workload::{Arrivals, Mix, Workload};
use crate::config::{Binding, Config, PoolConfig};
use crate::error::SchedError;
use crate::ids::ClientId;
use crate::policy::PolicySpec;
use crate::profile::Speedup;
use crate::resources::Resources;
use serde::Serialize;
use std::ops::Range;

/// Stock of ready material in an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stock {
    /// No pool.
    None,
    /// A pool that is empty at the start and knows no rates.
    Cold,
    /// A pool that starts with the stock for the mean rate, as after a restart.
    Full,
}

/// What varies over the cells of an experiment. The defaults are the issue's: P = 48, M = 256 GiB, 2 TB of disk, one thread a job.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name in tables.
    pub label: String,
    /// Policy.
    pub policy: PolicySpec,
    /// Cores.
    pub cores: u32,
    /// Threads that T_pre may get.
    pub pre_threads: Vec<u32>,
    /// Threads that T_on may get.
    pub on_threads: Vec<u32>,
    /// Assumed speed-up of T_pre (not in the profile).
    pub pre_speedup: Speedup,
    /// Assumed speed-up of T_on (not in the profile).
    pub on_speedup: Speedup,
    /// Pools.
    pub stock: Stock,
    /// Requests.
    pub workload: Workload,
    /// Noise of job times, see [`Scenario::spread`].
    pub spread: f64,
    /// Error of the first estimates, see [`Scenario::bias`].
    pub bias: Vec<f64>,
    /// Largest share of the cores for one request.
    pub batch_share: f64,
}

impl Setting {
    /// The defaults.
    pub fn new(policy: PolicySpec, cores: u32, workload: Workload) -> Setting {
        Setting {
            label: crate::policy::Policy::name(&policy),
            policy,
            cores,
            pre_threads: vec![1],
            on_threads: vec![1],
            pre_speedup: Speedup::None,
            on_speedup: Speedup::Amdahl(0.95),
            stock: Stock::None,
            workload,
            spread: 1.0,
            bias: Vec::new(),
            batch_share: 1.0,
        }
    }

    /// The paper's baseline: one request at a time, T_pre on one core, T_on on all.
    pub fn sequential(cores: u32, workload: Workload) -> Setting {
        Setting { on_threads: vec![cores], ..Setting::new(PolicySpec::Sequential, cores, workload) }
    }

    /// This setting as something to run.
    ///
    /// # Errors
    /// [`SchedError::UnknownModel`] where the profile lacks a model of the mix.
    pub fn scenario(&self, profile: &ProfileFile) -> Result<Scenario, SchedError> {
        let names: Vec<&str> = self.workload.mix.counts.iter().map(|c| c.0.as_str()).collect();
        let binding = if self.stock == Stock::None { Binding::Client } else { Binding::Unbound };
        let models = profile.specs(&names, binding, self.pre_speedup, self.on_speedup)?;
        let mut config = Config::new(machine(self.cores));
        config.pre_threads = self.pre_threads.clone();
        config.on_threads = self.on_threads.clone();
        config.batch_share = self.batch_share;
        config.max_inputs = 1 << 20;
        config.max_queued = u32::MAX;
        config.pool = (self.stock != Stock::None).then(PoolConfig::default);
        Ok(Scenario {
            config,
            models,
            policy: self.policy.clone(),
            workload: self.workload.clone(),
            trace: None,
            spread: self.spread,
            bias: self.bias.clone(),
            failures: 0.0,
            warm: self.stock == Stock::Full,
            timeline: false,
        })
    }

    /// Plays these seeds.
    ///
    /// # Errors
    /// As [`Setting::scenario`], and a configuration that the scheduler refuses.
    pub fn measure(&self, profile: &ProfileFile, seeds: &Range<u64>) -> Result<Cell, SchedError> {
        self.play(profile, seeds, |_, _, _| None)
    }

    /// Plays these seeds; with the lower bound of each, found where it is not known.
    ///
    /// # Errors
    /// As [`Setting::measure`].
    pub fn measure_bounded(
        &self,
        profile: &ProfileFile,
        seeds: &Range<u64>,
        known: Option<&[f64]>,
    ) -> Result<Cell, SchedError> {
        self.play(profile, seeds, |i, scenario, run| {
            known.and_then(|known| known.get(i).copied()).or_else(|| Some(self.bound(scenario, run)))
        })
    }

    fn play(
        &self,
        profile: &ProfileFile,
        seeds: &Range<u64>,
        bound: impl Fn(usize, &Scenario, &Run) -> Option<f64>,
    ) -> Result<Cell, SchedError> {
        let scenario = self.scenario(profile)?;
        let mut columns = Columns::default();
        for (i, seed) in seeds.clone().enumerate() {
            let run = scenario.run(seed)?;
            columns.add(self, &scenario, &run);
            columns.bounds.extend(bound(i, &scenario, &run));
        }
        Ok(columns.cell(self))
    }

    /// A lower bound on D, for these requests and any policy.
    fn bound(&self, scenario: &Scenario, run: &Run) -> f64 {
        let ahead = match self.stock {
            Stock::None => Ahead::Notices,
            Stock::Cold | Stock::Full => Ahead::Pool { stock: &run.stock },
        };
        Bounds::of(&run.arrivals, &scenario.models, &scenario.config, ahead).best()
    }

    /// Whether the same seeds have the same bounds here and there: everything is the same but the policy.
    pub fn asks_the_same(&self, other: &Setting) -> bool {
        let open = !matches!(self.workload.arrivals, Arrivals::Closed { .. });
        let threads = |s: &Setting| (s.cores, s.pre_threads.clone(), s.on_threads.clone(), s.stock);
        let speedups = |s: &Setting| (s.pre_speedup, s.on_speedup);
        open && threads(self) == threads(other) && speedups(self) == speedups(other) && self.workload == other.workload
    }
}

/// The machine: M = 256 GiB, 2 TB of disk.
pub fn machine(cores: u32) -> Resources {
    Resources { cores, memory: 256 << 30, disk: 2_000_000_000_000 }
}

/// The paper's workload at a Poisson rate.
///
/// # Errors
/// [`SchedError::UnknownWorkload`].
pub fn paper_workload(name: &str, rate: f64, notices: f64) -> Result<Workload, SchedError> {
    Ok(Workload::new(Mix::named(name)?, Arrivals::Poisson(rate), notices))
}

/// Figures of one cell over its seeds, each with its 95 % confidence interval. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Setting.
    pub label: String,
    /// Workload.
    pub workload: String,
    /// Requests per second; 0 for arrivals that have no single rate.
    pub rate: f64,
    /// Share of announced requests.
    pub notices: f64,
    /// Cores.
    pub cores: u32,
    /// Pool.
    pub stock: Stock,
    /// D.
    pub delay: Interval,
    /// W.
    pub waiting: Interval,
    /// Percentiles of the input delay.
    pub p50: Interval,
    /// 95th.
    pub p95: Interval,
    /// 99th.
    pub p99: Interval,
    /// 99th percentile for VGG-16; zero where the workload has none.
    pub vgg16_p99: Interval,
    /// Inputs per second.
    pub throughput: Interval,
    /// First arrival to last end.
    pub makespan: Interval,
    /// Lower bound on D, where it was asked for.
    pub bound: Option<Interval>,
    /// D over the bound.
    pub ratio: Option<Interval>,
    /// The bound of each seed; empty where it was not asked for.
    pub bounds: Vec<f64>,
    /// Offered one-thread core-seconds over P times the arrival span.
    pub offered: Interval,
    /// Share of core time that jobs held.
    pub core_use: Interval,
    /// Share of memory that jobs held.
    pub memory_use: Interval,
    /// D of each seed, to compare settings seed by seed.
    pub delays: Vec<f64>,
    /// D by client group: all clients but client 0, for the fair-share experiment.
    pub others_delay: Interval,
}

#[derive(Default)]
struct Columns {
    rows: Vec<[f64; 12]>,
    bounds: Vec<f64>,
}

impl Columns {
    fn add(&mut self, setting: &Setting, scenario: &Scenario, run: &Run) {
        let mix = &setting.workload.mix;
        let capacity = scenario.config.capacity;
        let s = Summary::of(run, mix, capacity.cores, capacity.memory);
        let span = run.arrivals.last().map_or(0.0, |a| a.at.secs()) - run.first.secs();
        let offered: f64 = run
            .arrivals
            .iter()
            .map(|a| {
                let model = &scenario.models[a.model as usize];
                (model.pre.first.time + model.on.first.time).secs() * f64::from(a.inputs)
            })
            .sum();
        let others: Vec<_> = run.reports.iter().filter(|r| r.client != ClientId::numbered(0)).collect();
        let others = super::metrics::Metrics::of(&others).input_delay;
        let vgg = s.models.get("vgg16").map_or(0.0, |m| m.p99);
        let offered = offered / (f64::from(capacity.cores) * span.max(1e-9));
        let all = &s.all;
        self.rows.push([
            all.input_delay,
            all.waiting_time,
            all.p50,
            all.p95,
            all.p99,
            vgg,
            s.throughput,
            s.makespan,
            offered,
            s.core_use,
            s.memory_use,
            others,
        ]);
    }

    fn cell(&self, setting: &Setting) -> Cell {
        let bounded = !self.bounds.is_empty();
        let ratios: Vec<f64> =
            self.rows.iter().zip(&self.bounds).map(|(row, bound)| row[0] / bound.max(1e-9)).collect();
        let column = |i: usize| Interval::of(&self.rows.iter().map(|r| r[i]).collect::<Vec<_>>());
        let rate = match setting.workload.arrivals {
            Arrivals::Poisson(rate) | Arrivals::Bursts { rate, .. } | Arrivals::Diurnal { rate, .. } => rate,
            Arrivals::Closed { .. } => 0.0,
        };
        Cell {
            label: setting.label.clone(),
            workload: setting.workload.mix.name.clone(),
            rate,
            notices: setting.workload.notice_share,
            cores: setting.cores,
            stock: setting.stock,
            delay: column(0),
            waiting: column(1),
            p50: column(2),
            p95: column(3),
            p99: column(4),
            vgg16_p99: column(5),
            throughput: column(6),
            makespan: column(7),
            bound: bounded.then(|| Interval::of(&self.bounds)),
            ratio: bounded.then(|| Interval::of(&ratios)),
            bounds: self.bounds.clone(),
            offered: column(8),
            core_use: column(9),
            memory_use: column(10),
            delays: self.rows.iter().map(|r| r[0]).collect(),
            others_delay: column(11),
        }
    }
}
