//! The subject of a simulation: a machine, models, a policy, and the requests.

use crate::error::SimError;
use crate::profile::ProfileFile;
use crate::workload::{Arrival, Workload};
use serde::Serialize;
use tacit_sched::demand::HORIZON;
use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::Speedup;
use tacit_sched::{BoundTo, Config, ModelSpec, PoolConfig, Resources, Span};

/// Stock of ready material.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stock {
    /// No pool.
    None,
    /// Stock of each client's own, filled by its rate on idle cores: material stays bound to its
    /// client.
    Own,
    /// A pool that is empty at the start and has no rates.
    Cold,
    /// A pool that starts with the stock for the mean rate, as after a restart.
    Full,
}

/// True times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time of T_pre; `None` uses the model's. The same holds for T_on.
    pub pre: Option<Span>,
    /// Time of T_on.
    pub on: Option<Span>,
    /// Time from the end of T_pre until its client comes for T_on, if the request has arrived by
    /// then; in between, the request has no place in the queue. `None`: the client comes at once.
    pub gap: Option<Span>,
}

/// One simulated situation. `models` is the truth; the scheduler's initial estimates are `models`
/// times `bias`.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The scheduler's configuration, machine included.
    pub config: Config,
    /// True job times, memory and speed-ups, in the order of the workload's mix.
    pub models: Vec<ModelSpec>,
    /// Policy.
    pub policy: PolicySpec,
    /// Requests.
    pub workload: Workload,
    /// Requests from a trace, instead of the workload's own.
    pub trace: Option<Vec<Arrival>>,
    /// Pools; set by [`Scenario::with_stock`].
    pub(crate) stock: Stock,
    /// Each job takes its true time times `spread` to the power of a uniform number in [-1, 1]; 1 is no
    /// noise.
    pub spread: f64,
    /// First estimates are the truth times this factor, by model; missing entries are 1.
    pub bias: Vec<f64>,
    /// Probability that a job fails (at the end of its time).
    pub failures: f64,
    /// True times of each request, instead of its model's (a recorded run).
    pub recorded: Option<Vec<RequestTimes>>,
    /// Whether to store job records and queue samples (for the picture).
    pub timeline: bool,
}

impl Scenario {
    /// The setting of [SS26] on a machine with 256 GiB of memory and 2 TB of disk: one thread a
    /// job, no pool. Only `sequential` runs T_on on all cores, with the speed-up that is assumed
    /// for all multi-threaded jobs: Amdahl with 95 % parallel.
    ///
    /// # Errors
    /// [`SimError::UnknownModel`] if the profile lacks a model of the mix.
    pub fn new(profile: &ProfileFile, policy: PolicySpec, cores: u32, workload: Workload) -> Result<Self, SimError> {
        let names = workload.mix.counts.iter().map(|(name, _)| name);
        let models = names.map(|name| profile.model(name, Speedup::None, Speedup::Amdahl(0.95)));
        let mut config = Config::new(Resources { cores, memory: 256 << 30, disk: 2_000_000_000_000, dealings: 0 });
        config.max_inputs = 1 << 20;
        config.max_queued = u32::MAX;
        if policy == PolicySpec::Sequential {
            config.on_threads = vec![cores];
        }
        Ok(Self::on_machine(config, models.collect::<Result<_, _>>()?, policy, workload))
    }

    /// Any machine, without pools or noise. Models come in the order of the workload's mix.
    pub fn on_machine(config: Config, models: Vec<ModelSpec>, policy: PolicySpec, workload: Workload) -> Self {
        Self {
            config,
            models,
            policy,
            workload,
            trace: None,
            stock: Stock::None,
            spread: 1.0,
            bias: Vec::new(),
            failures: 0.0,
            recorded: None,
            timeline: false,
        }
    }

    /// Sets the pools; with any except [`Stock::Own`], material is not bound to its client.
    pub fn with_stock(mut self, stock: Stock) -> Self {
        let is_bound = matches!(stock, Stock::None | Stock::Own);
        let binding = if is_bound { BoundTo::Client } else { BoundTo::Unbound };
        self.models.iter_mut().for_each(|model| model.binding = binding);
        let pool = PoolConfig { per_client: true, horizon: HORIZON, ..PoolConfig::default() };
        self.config.pool = match stock {
            Stock::None => None,
            Stock::Own => Some(pool),
            Stock::Cold | Stock::Full => Some(PoolConfig::default()),
        };
        self.stock = stock;
        self
    }

    /// A dealer makes all material, `dealings` at once: T_pre takes no core, and the time in the
    /// profile.
    pub fn with_dealings(mut self, dealings: u32) -> Self {
        self.models.iter_mut().for_each(|model| model.dealt = true);
        self.config.capacity.dealings = dealings;
        self
    }

    /// Allows these thread counts for T_on, with this assumed speed-up.
    pub fn with_on_threads(mut self, threads: Vec<u32>, speedup: Speedup) -> Self {
        self.models.iter_mut().for_each(|model| model.on.speedup = speedup);
        self.config.on_threads = threads;
        self
    }

    /// Allows these thread counts for T_pre, with this assumed speed-up.
    pub fn with_pre_threads(mut self, threads: Vec<u32>, speedup: Speedup) -> Self {
        self.models.iter_mut().filter_map(|model| model.pre.as_mut()).for_each(|pre| pre.speedup = speedup);
        self.config.pre_threads = threads;
        self
    }
}
