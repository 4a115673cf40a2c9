//! A run as JSON: every input with its times, threads and where it waited, and the metrics.

use super::engine::{Run, Scenario};
use super::metrics::Summary;
use crate::message::{InputReport, Outcome, Source};
use serde::Serialize;

/// One input of a run; times in seconds since the start of the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct InputLine {
    /// Request number.
    pub request: u64,
    /// Place in the batch.
    pub index: u32,
    /// Client number.
    pub client: u64,
    /// Model name.
    pub model: String,
    /// Final state.
    pub outcome: Outcome,
    /// Where its material came from.
    pub source: Source,
    /// Arrival of the request.
    pub arrived: f64,
    /// T_pre start.
    pub pre_start: Option<f64>,
    /// T_pre finish.
    pub pre_finish: Option<f64>,
    /// Threads of T_pre.
    pub pre_threads: u32,
    /// T_on start.
    pub on_start: Option<f64>,
    /// T_on finish.
    pub on_finish: Option<f64>,
    /// Threads of T_on.
    pub on_threads: u32,
    /// Seconds after arrival spent in Q_pre (T_pre not started).
    pub in_pre_queue: f64,
    /// Seconds after arrival while its T_pre ran (in Q_waiting, for an announced input).
    pub in_pre: f64,
    /// Seconds in Q_ready (T_on not started).
    pub in_ready_queue: f64,
    /// End.
    pub ended: f64,
}

impl InputLine {
    fn of(report: &InputReport, scenario: &Scenario, run: &Run) -> InputLine {
        let arrived = report.arrived.secs();
        let ended = report.ended.secs();
        let secs = |t: Option<crate::time::Time>| t.map(|t| t.secs());
        // A phase that never came lasts until the end; one that came before the request costs it nothing.
        let after = |t: Option<f64>| t.unwrap_or(ended).max(arrived);
        let pre_start = secs(report.pre.started);
        let pre_finish = secs(report.pre.finished);
        let on_start = secs(report.on.started);
        let pooled = report.source == Source::Pool && pre_start.is_none();
        let begin = if pooled { arrived } else { after(pre_start) };
        let ready = if pooled { arrived } else { after(pre_finish) };
        InputLine {
            request: report.input.request.0,
            index: report.input.index,
            client: run.arrivals[report.input.request.0 as usize].client,
            model: scenario.models[report.model.0 as usize].name.clone(),
            outcome: report.outcome,
            source: report.source,
            arrived,
            pre_start,
            pre_finish,
            pre_threads: report.pre.threads,
            on_start,
            on_finish: secs(report.on.finished),
            on_threads: report.on.threads,
            in_pre_queue: begin - arrived,
            in_pre: ready - begin,
            in_ready_queue: after(on_start) - ready,
            ended,
        }
    }
}

/// A run's file.
#[derive(Clone, Debug, Serialize)]
pub struct RunFile {
    /// Policy.
    pub policy: String,
    /// Workload.
    pub workload: String,
    /// Seed.
    pub seed: u64,
    /// Cores of the machine.
    pub cores: u32,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// Events handled.
    pub events: u64,
    /// Metrics.
    pub summary: Summary,
    /// Inputs, in the order in which they ended.
    pub inputs: Vec<InputLine>,
}

impl RunFile {
    /// Of a run of this scenario and seed.
    pub fn of(scenario: &Scenario, seed: u64, run: &Run) -> RunFile {
        let capacity = scenario.config.capacity;
        RunFile {
            policy: crate::policy::Policy::name(&scenario.policy),
            workload: scenario.workload.mix.name.clone(),
            seed,
            cores: capacity.cores,
            memory: capacity.memory,
            events: run.events,
            summary: Summary::of(run, &scenario.workload.mix, capacity.cores, capacity.memory),
            inputs: run.reports.iter().map(|r| InputLine::of(r, scenario, run)).collect(),
        }
    }
}
