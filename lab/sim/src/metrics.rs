//! The paper's metrics, of one run and over seeds.

use crate::engine::Run;
use crate::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeMap;
use tacit_sched::{InputReport, Outcome};

/// Metrics of a set of inputs. Times in seconds; only inputs that were done count, except in
/// `outcomes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Inputs that were done.
    pub done: usize,
    /// D: mean of finish minus arrival.
    pub input_delay: f64,
    /// W: mean of T_on start minus arrival.
    pub waiting_time: f64,
    /// Median of the input delay.
    pub p50: f64,
    /// 95th percentile of the input delay.
    pub p95: f64,
    /// 99th percentile of the input delay.
    pub p99: f64,
    /// Longest input delay.
    pub max: f64,
}

/// Metrics of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Over all inputs.
    pub all: Metrics,
    /// By model name.
    pub models: BTreeMap<String, Metrics>,
    /// Inputs by final state.
    pub outcomes: BTreeMap<String, usize>,
    /// Done inputs per second of makespan.
    pub throughput: f64,
    /// First arrival to last end.
    pub makespan: f64,
    /// Share of the cores' time that jobs held.
    pub core_use: f64,
    /// Share of the memory that jobs held, over time.
    pub memory_use: f64,
    /// Requests refused on arrival.
    pub refused: usize,
}

/// Nearest-rank percentile of ascending values; zero for an empty list.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    values.sum::<f64>() / n
}

impl Metrics {
    /// Computes the metrics of these inputs.
    pub fn from_reports(reports: &[&InputReport]) -> Self {
        let done: Vec<&&InputReport> = reports.iter().filter(|r| r.outcome == Outcome::Done).collect();
        let mut delays: Vec<f64> = done.iter().map(|r| r.ended.since(r.arrived).secs()).collect();
        let waits = done.iter().map(|r| r.on.started.map_or(0.0, |s| s.since(r.arrived).secs()));
        let waiting_time = mean(waits);
        let input_delay = mean(delays.iter().copied());
        delays.sort_unstable_by(tacit_floats::rising);
        Self {
            done: delays.len(),
            input_delay,
            waiting_time,
            p50: percentile(&delays, 50.0),
            p95: percentile(&delays, 95.0),
            p99: percentile(&delays, 99.0),
            max: delays.last().copied().unwrap_or(0.0),
        }
    }
}

impl Summary {
    /// Computes the metrics of a run of this scenario.
    pub fn from_run(run: &Run, scenario: &Scenario) -> Self {
        let (mix, capacity) = (&scenario.workload.mix, scenario.config.capacity);
        let mut outcomes = BTreeMap::new();
        let mut by_model: Vec<Vec<&InputReport>> = vec![Vec::new(); mix.counts.len()];
        for report in &run.reports {
            let name = format!("{:?}", report.outcome).to_lowercase();
            *outcomes.entry(name).or_insert(0) += 1;
            if let Some(list) = by_model.get_mut(report.model.0 as usize) {
                list.push(report);
            }
        }
        let metrics = Metrics::from_reports(&run.reports.iter().collect::<Vec<_>>());
        let makespan = run.last.since(run.first).secs();
        Self {
            throughput: per(metrics.done as f64, makespan),
            makespan,
            core_use: per(run.core_seconds, makespan * f64::from(capacity.cores)),
            memory_use: per(run.byte_seconds, makespan * capacity.memory as f64),
            refused: run.refused.len(),
            models: mix
                .counts
                .iter()
                .zip(&by_model)
                .map(|(c, list)| (c.0.clone(), Metrics::from_reports(list)))
                .collect(),
            all: metrics,
            outcomes,
        }
    }
}

/// Returns `x / y`; 0 for `y` of 0.
fn per(x: f64, y: f64) -> f64 {
    if y > 0.0 { x / y } else { 0.0 }
}

/// Mean of a figure over seeds with the half-width of its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Mean.
    pub mean: f64,
    /// Half-width; zero for a single seed.
    pub half: f64,
}

impl Interval {
    /// The interval of one figure per seed.
    pub fn from_values(values: &[f64]) -> Self {
        let n = values.len();
        let mean = mean(values.iter().copied());
        if n < 2 {
            return Self { mean, half: 0.0 };
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        Self { mean, half: student_t(n - 1) * (variance / n as f64).sqrt() }
    }
}

/// The 97.5 % quantile of Student's t, to about one percent.
fn student_t(freedom: usize) -> f64 {
    const SMALL: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match SMALL.get(freedom.saturating_sub(1)) {
        Some(&t) => t,
        None => 1.96 + 2.5 / freedom as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), 50.0);
        assert_eq!(percentile(&values, 99.0), 99.0);
        assert_eq!(percentile(&values[..1], 99.0), 1.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }

    #[test]
    fn interval_of_known_values() {
        let interval = Interval::from_values(&[1.0, 2.0, 3.0, 4.0]);
        assert!((interval.mean - 2.5).abs() < 1e-12);
        // s = 1.29099, t(3) = 3.182: 3.182 * 1.29099 / 2
        assert!((interval.half - 2.054).abs() < 1e-3, "{interval:?}");
        assert!((student_t(19) - 2.093).abs() < 0.01);
    }
}
