//! One cell of an experiment: a scenario over seeds.

use crate::engine::Run;
use crate::error::SimError;
use crate::metrics::{Interval, Metrics, Summary};
use crate::scenario::{Scenario, Stock};
use serde::Serialize;
use std::ops::Range;
use tacit_sched::{ClientId, Span};

/// Figures of one cell over its seeds, each with its 95 % confidence interval. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Name in tables.
    pub label: String,
    /// Workload.
    pub workload: String,
    /// Requests per second; 0 for a closed loop.
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
    /// 99th percentile for VGG-16; zero if the workload has none.
    pub vgg16_p99: Interval,
    /// Inputs per second.
    pub throughput: Interval,
    /// First arrival to last end.
    pub makespan: Interval,
    /// Offered one-thread core-seconds over P times the arrival span.
    pub offered: Interval,
    /// Share of core time that jobs held.
    pub core_use: Interval,
    /// Share of memory that jobs held.
    pub memory_use: Interval,
    /// D of each seed, to compare cells seed by seed.
    pub delays: Vec<f64>,
    /// D of all clients except client 0, for the fair-share experiment.
    pub others_delay: Interval,
}

struct Row {
    summary: Summary,
    offered: f64,
    others_delay: f64,
}

impl Row {
    fn from_run(run: &Run, scenario: &Scenario) -> Self {
        let span = run.arrivals.last().map_or(0.0, |a| a.at.secs()) - run.first.secs();
        let work = run.arrivals.iter().map(|a| {
            let model = &scenario.models[a.model as usize];
            (model.pre.map_or(Span::ZERO, |pre| pre.first.time) + model.on.first.time).secs() * f64::from(a.inputs)
        });
        let others: Vec<_> = run.reports.iter().filter(|r| r.client != ClientId::numbered(0)).collect();
        Self {
            summary: Summary::from_run(run, scenario),
            offered: work.sum::<f64>() / (f64::from(scenario.config.capacity.cores) * span.max(1e-9)),
            others_delay: Metrics::from_reports(&others).input_delay,
        }
    }
}

impl Cell {
    /// Simulates these seeds.
    ///
    /// # Errors
    /// [`SimError::Scheduler`] if the scheduler refuses the configuration.
    pub fn measure(label: &str, scenario: &Scenario, seeds: &Range<u64>) -> Result<Self, SimError> {
        let rows: Result<Vec<Row>, SimError> =
            seeds.clone().map(|seed| Ok(Row::from_run(&scenario.run(seed)?, scenario))).collect();
        let rows = rows?;
        let workload = &scenario.workload;
        Ok(Self {
            label: label.to_owned(),
            workload: workload.mix.name.clone(),
            rate: workload.arrivals.rate(),
            notices: workload.notice_share,
            cores: scenario.config.capacity.cores,
            stock: scenario.stock,
            delay: over(&rows, |r| r.summary.all.input_delay),
            waiting: over(&rows, |r| r.summary.all.waiting_time),
            p50: over(&rows, |r| r.summary.all.p50),
            p95: over(&rows, |r| r.summary.all.p95),
            p99: over(&rows, |r| r.summary.all.p99),
            vgg16_p99: over(&rows, |r| r.summary.models.get("vgg16").map_or(0.0, |m| m.p99)),
            throughput: over(&rows, |r| r.summary.throughput),
            makespan: over(&rows, |r| r.summary.makespan),
            offered: over(&rows, |r| r.offered),
            core_use: over(&rows, |r| r.summary.core_use),
            memory_use: over(&rows, |r| r.summary.memory_use),
            delays: rows.iter().map(|r| r.summary.all.input_delay).collect(),
            others_delay: over(&rows, |r| r.others_delay),
        })
    }
}

fn over(rows: &[Row], figure: fn(&Row) -> f64) -> Interval {
    Interval::from_values(&rows.iter().map(figure).collect::<Vec<_>>())
}
