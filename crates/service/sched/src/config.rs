//! The scheduler's configuration: the machine, the limits, the models.

use crate::error::SchedError;
use crate::profile::PhaseSpec;
use crate::resources::Resources;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Limits and choices. [`Config::new`] gives defaults for everything except the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The machine at start.
    pub capacity: Resources,
    /// Most inputs in one request.
    pub max_inputs: u32,
    /// Most inputs of one client that have not ended, announced ones included.
    pub max_queued: u32,
    /// Time after which a notice without a request expires.
    pub notice_ttl: Span,
    /// Most attempts at the T_pre of one input, at least 1. T_on is never retried.
    pub pre_attempts: u32,
    /// Largest share of the cores that one request may hold, in (0, 1]; 1 is no limit.
    pub batch_share: f64,
    /// Thread counts that T_pre may get, ascending, at least one.
    pub pre_threads: Vec<u32>,
    /// Thread counts that T_on may get, ascending, at least one.
    pub on_threads: Vec<u32>,
    /// Stock of ready material; `None` makes material only for inputs that were requested or
    /// announced.
    pub pool: Option<PoolConfig>,
}

/// Limits and targets of the pools of ready material.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolConfig {
    /// Smallest stock of every unbound model, even before the first request.
    pub min_stock: u32,
    /// Stock to cover: arrivals during one T_pre, times this, plus two standard deviations (Poisson).
    pub cover: f64,
    /// Most of the cores that refills may hold, in (0, 1].
    pub core_share: f64,
    /// Most of the memory that refills may hold, in (0, 1].
    pub memory_share: f64,
    /// Most of the disk that stock and refills may hold, in (0, 1].
    pub disk_share: f64,
    /// Time constant of the arrival-rate estimate.
    pub rate_window: Span,
    /// Also keep stock for each client of a model whose material is bound to its client, sized by
    /// that client's own rate.
    pub per_client: bool,
    /// Shortest time whose arrivals the stock covers, where one T_pre takes less.
    #[serde(default)]
    pub horizon: Span,
    /// Most materials that all pools hold together, running refills included.
    #[serde(default = "u32_max")]
    pub most: u32,
    /// Most bytes of disk that all pools hold together, running refills included.
    #[serde(default = "u64_max")]
    pub disk: u64,
}

fn u32_max() -> u32 {
    u32::MAX
}

fn u64_max() -> u64 {
    u64::MAX
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            min_stock: 1,
            cover: 1.0,
            core_share: 0.75,
            memory_share: 0.75,
            disk_share: 0.9,
            rate_window: Span::from_millis(600_000),
            per_client: false,
            horizon: Span::ZERO,
            most: u32::MAX,
            disk: u64::MAX,
        }
    }
}

impl Config {
    /// Defaults for a machine: one thread a job, no pool, no limit on a batch's share.
    pub fn new(capacity: Resources) -> Self {
        Self {
            capacity,
            max_inputs: 4096,
            max_queued: 65_536,
            notice_ttl: Span::from_millis(600_000),
            pre_attempts: 2,
            batch_share: 1.0,
            pre_threads: vec![1],
            on_threads: vec![1],
            pool: None,
        }
    }

    /// 1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to `cores`, and `cores` itself: the usual thread counts for
    /// moldable jobs.
    pub fn thread_counts(cores: u32) -> Vec<u32> {
        let steps = (0..14).flat_map(|i| [1u32 << i, 3 << i]);
        let mut counts: Vec<u32> = steps.filter(|&t| t < cores).collect();
        counts.push(cores.max(1));
        counts.sort_unstable();
        counts
    }

    pub(crate) fn check(&self) -> Result<(), SchedError> {
        share("batch_share", self.batch_share)?;
        at_least_one("max_inputs", self.max_inputs)?;
        at_least_one("max_queued", self.max_queued)?;
        at_least_one("pre_attempts", self.pre_attempts)?;
        for (what, counts) in [("pre_threads", &self.pre_threads), ("on_threads", &self.on_threads)] {
            at_least_one(what, counts.first().copied().unwrap_or(0))?;
            if !counts.windows(2).all(|w| w[0] < w[1]) || counts.len() > MAX_OPTIONS {
                let value = format!("{counts:?}");
                return Err(SchedError::OutOfRange { what, value, allowed: "1 to 32 ascending thread counts" });
            }
        }
        if let Some(pool) = &self.pool {
            share("pool.core_share", pool.core_share)?;
            share("pool.memory_share", pool.memory_share)?;
            share("pool.disk_share", pool.disk_share)?;
            at_least_one("pool.rate_window (ns)", pool.rate_window.0.min(1) as u32)?;
        }
        Ok(())
    }
}

fn share(what: &'static str, value: f64) -> Result<(), SchedError> {
    if value > 0.0 && value <= 1.0 {
        return Ok(());
    }
    Err(SchedError::OutOfRange { what, value: value.to_string(), allowed: "above 0, at most 1" })
}

fn at_least_one(what: &'static str, value: u32) -> Result<(), SchedError> {
    if value >= 1 {
        return Ok(());
    }
    Err(SchedError::OutOfRange { what, value: value.to_string(), allowed: "at least 1" })
}

/// Most thread counts of one phase.
pub const MAX_OPTIONS: usize = 32;

/// Whether material fits any client or only the client that took part in making it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundTo {
    /// Any client (`fss`: a dealer makes it).
    Unbound,
    /// The client that took part in making it (`cheetah`, `sci-he`).
    Client,
}

/// A model on one back end over one link class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Model name.
    pub name: String,
    /// Back end name.
    pub backend: String,
    /// Link class, for example `loopback`, `lan`, `wan`.
    pub link: String,
    /// Which clients may use its material.
    pub binding: BoundTo,
    /// Disk for one material, in bytes.
    pub material_bytes: u64,
    /// Whether its T_pre is a dealing: a third party makes the material, so the job takes one of
    /// [`Resources::dealings`] and no core.
    #[serde(default)]
    pub dealt: bool,
    /// T_pre; `None` where inputs need no material.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<PhaseSpec>,
    /// T_on.
    pub on: PhaseSpec,
}
