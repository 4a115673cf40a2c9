//! A run as JSON: machine and models, every input with its times, threads and waits, the metrics,
//! and the data of the picture.

use crate::engine::{JobRecord, QueueSample, Run};
use crate::metrics::Summary;
use crate::scenario::{Scenario, Stock};
use serde::Serialize;
use tacit_sched::policy::Policy;
use tacit_sched::{InputReport, Outcome, PhaseSpec, Source, Time};

/// One way to run a phase.
#[derive(Clone, Debug, Serialize)]
struct Way {
    threads: u32,
    secs: f64,
    memory: u64,
}

/// A model with its true figures, and its material in stock at time zero.
#[derive(Clone, Debug, Serialize)]
struct Model {
    name: String,
    pre: Vec<Way>,
    on: Vec<Way>,
    stock: u32,
}

/// One input of a run; times in seconds since the start of the simulation.
#[derive(Clone, Debug, Serialize)]
struct Input {
    request: u64,
    /// Index in the batch.
    index: u32,
    client: u64,
    model: String,
    outcome: Outcome,
    source: Source,
    arrived: f64,
    /// Time between its notice and its arrival.
    lead: Option<f64>,
    pre_start: Option<f64>,
    pre_finish: Option<f64>,
    pre_threads: u32,
    on_start: Option<f64>,
    on_finish: Option<f64>,
    on_threads: u32,
    /// Seconds after arrival spent in Q_pre (T_pre not started).
    in_pre_queue: f64,
    /// Seconds after arrival while its T_pre ran (in Q_waiting, for an announced input).
    in_pre: f64,
    /// Seconds in Q_ready (T_on not started).
    in_ready_queue: f64,
    ended: f64,
}

/// A run's file, the input of `python -m tacit.report` and `docs/scripts/delay_bound.py`. Times in
/// seconds, memory in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct RunFile<'a> {
    /// Always `tacit-simulation`.
    format: &'static str,
    /// Version of the format.
    version: u32,
    /// Policy.
    pub policy: String,
    /// Figures.
    pub summary: Summary,
    workload: &'a str,
    rate: f64,
    seed: u64,
    cores: u32,
    memory: u64,
    pool: Stock,
    spread: f64,
    events: u64,
    models: Vec<Model>,
    /// In the order of their ends.
    inputs: Vec<Input>,
    jobs: &'a [JobRecord],
    samples: &'a [QueueSample],
}

fn ways(phase: &PhaseSpec, threads: &[u32]) -> Vec<Way> {
    let ways = threads.iter().map(|&threads| {
        let secs = phase.first.time.scaled(phase.speedup.factor(threads)).secs();
        Way { threads, secs, memory: phase.first.memory }
    });
    ways.collect()
}

impl Input {
    fn from_report(report: &InputReport, scenario: &Scenario, run: &Run) -> Self {
        let arrived = report.arrived.secs();
        let ended_s = report.ended.secs();
        let pre_start = secs(report.pre.started);
        let pre_finish = secs(report.pre.finished);
        let on_start = secs(report.on.started);
        let pooled = report.source == Source::Pool && pre_start.is_none();
        // A phase that never started lasts until the end; one before the request costs the request
        // nothing.
        let [begin_s, ready_s, on_begin] = [pre_start, pre_finish, on_start].map(|t| t.unwrap_or(ended_s).max(arrived));
        let (begin_s, ready_s) = if pooled { (arrived, arrived) } else { (begin_s, ready_s) };
        let arrival = &run.arrivals[report.input.request.0 as usize];
        Self {
            request: report.input.request.0,
            index: report.input.index,
            client: arrival.client,
            model: scenario.models[report.model.0 as usize].name.clone(),
            outcome: report.outcome,
            source: report.source,
            arrived,
            lead: arrival.lead.map(|lead| lead.secs()),
            pre_start,
            pre_finish,
            pre_threads: report.pre.threads,
            on_start,
            on_finish: secs(report.on.finished),
            on_threads: report.on.threads,
            in_pre_queue: begin_s - arrived,
            in_pre: ready_s - begin_s,
            in_ready_queue: on_begin - ready_s,
            ended: ended_s,
        }
    }
}

fn secs(time: Option<Time>) -> Option<f64> {
    time.map(|time| time.secs())
}

impl RunFile<'_> {
    /// The file for a run of this scenario and seed.
    pub fn from_run<'a>(scenario: &'a Scenario, seed: u64, run: &'a Run) -> RunFile<'a> {
        let config = &scenario.config;
        let models = scenario.models.iter().enumerate().map(|(i, model)| Model {
            name: model.name.clone(),
            pre: model.pre.as_ref().map_or_else(Vec::new, |pre| ways(pre, &config.pre_threads)),
            on: ways(&model.on, &config.on_threads),
            stock: run.stock.get(i).copied().unwrap_or(0),
        });
        RunFile {
            format: "tacit-simulation",
            version: 1,
            policy: scenario.policy.name(),
            summary: Summary::from_run(run, scenario),
            workload: &scenario.workload.mix.name,
            rate: scenario.workload.arrivals.rate(),
            seed,
            cores: config.capacity.cores,
            memory: config.capacity.memory,
            pool: scenario.stock,
            spread: scenario.spread,
            events: run.events,
            models: models.collect(),
            inputs: run.reports.iter().map(|report| Input::from_report(report, scenario, run)).collect(),
            jobs: &run.jobs,
            samples: &run.samples,
        }
    }
}
