//! Sweeps of [SS26] section 6 under its Algorithm 1: batch sizes, threads, and ageing switched off.

use crate::error::SimError;
use crate::metrics::{Interval, Summary};
use crate::profile::ProfileFile;
use crate::scenario::Scenario;
use crate::workload::{Batches, Workload};
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;
use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::Speedup;

/// Cores of the paper's server.
const CORES: u32 = 48;
/// Inputs per second of the sweeps over batches and threads.
const INPUT_RATE: f64 = 1.0;
/// Batch sizes of the paper's sweep.
const BATCHES: [u32; 5] = [1, 2, 4, 8, 16];
/// Threads of a T_on.
const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Parallel share of a T_on; assumed, since the profile has one thread only.
const PARALLEL: Speedup = Speedup::Amdahl(0.95);

/// Figures of one point of a sweep. Times in seconds, with 95 % confidence intervals over the seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `batch`, `threads` or `ageing`.
    pub sweep: String,
    /// Policy.
    pub policy: String,
    /// Inputs of a request, threads of a T_on, or cores.
    pub value: u32,
    /// D of all inputs.
    pub delay: Interval,
    /// W of all inputs.
    pub waiting: Interval,
    /// W of the inputs of M1, the smallest network.
    pub m1_waiting: Interval,
    /// 99th percentile of the delay of VGG-16, the largest network.
    pub vgg16_p99: Interval,
    /// Inputs per second.
    pub throughput: Interval,
}

/// Runs all sweeps on the mixed workload.
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn sweeps(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Vec<Row>, SimError> {
    let mut rows = Vec::new();
    for policy in ["ss26:fcfs", "ss26:priority"] {
        for batch in BATCHES {
            let mut workload = mixed_workload(INPUT_RATE / f64::from(batch))?;
            workload.requests /= batch as usize;
            workload.batches = Batches::Fixed(batch);
            rows.push(measure("batch", batch, &Scenario::new(profile, policy.parse()?, CORES, workload)?, seeds)?);
        }
    }
    for policy in ["ss26:fcfs", "ss26:priority"] {
        for threads in THREADS {
            let scenario = Scenario::new(profile, policy.parse()?, CORES, mixed_workload(INPUT_RATE)?)?;
            rows.push(measure("threads", threads, &scenario.with_on_threads(vec![threads], PARALLEL), seeds)?);
        }
    }
    for cores in [CORES, CORES / 3] {
        for policy in ["ss26:priority:1", "ss26:priority:0.1", "ss26:priority:0.01", "ss26:priority:0", "ss26:fcfs"] {
            let scenario = Scenario::new(profile, policy.parse::<PolicySpec>()?, cores, mixed_workload(INPUT_RATE)?)?;
            rows.push(measure("ageing", cores, &scenario, seeds)?);
        }
    }
    Ok(rows)
}

fn mixed_workload(rate: f64) -> Result<Workload, SimError> {
    Workload::paper("swiftsnni-mixed", rate, 0.0)
}

/// Simulates these seeds.
fn measure(sweep: &str, value: u32, scenario: &Scenario, seeds: &Range<u64>) -> Result<Row, SimError> {
    let summaries: Result<Vec<Summary>, SimError> =
        seeds.clone().map(|seed| Ok(Summary::from_run(&scenario.run(seed)?, scenario))).collect();
    let summaries = summaries?;
    let over = |figure: fn(&Summary) -> f64| Interval::from_values(&summaries.iter().map(figure).collect::<Vec<_>>());
    Ok(Row {
        sweep: sweep.into(),
        policy: tacit_sched::policy::Policy::name(&scenario.policy),
        value,
        delay: over(|s| s.all.input_delay),
        waiting: over(|s| s.all.waiting_time),
        m1_waiting: over(|s| s.models.get("m1").map_or(0.0, |m| m.waiting_time)),
        vgg16_p99: over(|s| s.models.get("vgg16").map_or(0.0, |m| m.p99)),
        throughput: over(|s| s.throughput),
    })
}

/// The rows as a Markdown table.
pub fn print(rows: &[Row]) -> String {
    let mut text = String::from(
        "| sweep | policy | value | D | W | W of M1 | p99 of VGG-16 | inputs/s |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} ± {:.1} | {:.1} | {:.1} ± {:.1} | {:.0} ± {:.0} | {:.3} |",
            row.sweep,
            row.policy,
            row.value,
            row.delay.mean,
            row.delay.half,
            row.waiting.mean,
            row.m1_waiting.mean,
            row.m1_waiting.half,
            row.vgg16_p99.mean,
            row.vgg16_p99.half,
            row.throughput.mean,
        );
    }
    text
}
