//! Tests whether a source responds to load: its power must rise when all cores are busy.
use super::exercise::{Exercise, Load, Watched, watch};
use super::{Source, SourceInfo};
use crate::MeterError;
use crate::energy::smallest_difference;
use serde::Serialize;
use std::time::Duration;

/// Most busy cores of a machine at rest that is quiet enough for the test.
const MAX_REST_SHARE: f64 = 0.25;

/// Number and times of the readings.
#[derive(Clone, Copy, Debug)]
pub struct SelfTest {
    /// Readings at rest, and as many under load; at least 3.
    pub readings: u32,
    /// Time between readings; a slower sensor gets its own interval.
    pub interval: Duration,
    /// Time after a change of load before readings begin; at least two intervals of the sensor.
    pub settle: Duration,
}

impl Default for SelfTest {
    /// About 6 seconds, or 26 for a sensor with one reading a second.
    fn default() -> Self {
        Self { readings: 10, interval: Duration::from_millis(200), settle: Duration::from_millis(500) }
    }
}

/// Mean and spread of readings, watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Mean.
    pub mean_w: f64,
    /// Standard deviation of one reading.
    pub sd_w: f64,
    /// Readings.
    pub n: usize,
}

/// Result of a self-test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTestReport {
    /// Level at rest.
    pub idle: Level,
    /// Level with all cores busy.
    pub load: Level,
    /// Smallest difference between two readings, watts: the sensor's resolution if it is coarse.
    pub resolution_w: f64,
}

impl SelfTestReport {
    /// Whether the resolution is more than a twentieth of the idle power.
    pub fn is_coarse(&self) -> bool {
        self.resolution_w > self.idle.mean_w.abs() / 20.0
    }
}

fn level(watts: &[f64]) -> Level {
    let n = watts.len();
    let mean_w = watts.iter().sum::<f64>() / n.max(1) as f64;
    let squares: f64 = watts.iter().map(|w| (w - mean_w).powi(2)).sum();
    Level { mean_w, sd_w: (squares / n.saturating_sub(1).max(1) as f64).sqrt(), n }
}

/// Reads the source with the machine at rest and with all cores busy.
///
/// # Errors
/// [`MeterError::Source`] if the source has no value most of the time, is constant, or rises under
/// load by no more than twice the standard uncertainty of the difference; [`MeterError::io`] if
/// processor times cannot be read.
pub fn self_test(
    source: &mut dyn Source,
    machine: &mut dyn Exercise,
    plan: &SelfTest,
) -> Result<SelfTestReport, MeterError> {
    let own_interval = Duration::from_millis(u64::from(source.info().min_interval_ms));
    let plan = SelfTest {
        readings: plan.readings.max(3),
        interval: plan.interval.max(own_interval),
        settle: plan.settle.max(own_interval * 2),
    };
    let idle = stretch(source, machine, &plan, 0)?;
    let cores = machine.cores();
    let busy = stretch(source, machine, &plan, cores);
    machine.load(Load::default())?;
    judge(source.info(), cores, &idle, &busy?, plan.readings)
}

/// Reads the source while this many cores are busy.
fn stretch(
    source: &mut dyn Source,
    machine: &mut dyn Exercise,
    plan: &SelfTest,
    cores: u32,
) -> Result<Watched, MeterError> {
    machine.load(Load { cores, network: false })?;
    machine.wait(plan.settle);
    watch(source, machine, plan.interval, plan.readings)
}

fn judge(
    info: &SourceInfo,
    cores: u32,
    idle: &Watched,
    busy: &Watched,
    readings: u32,
) -> Result<SelfTestReport, MeterError> {
    let enough = (readings as usize).div_ceil(2).max(2);
    if idle.watts.len() < enough || busy.watts.len() < enough {
        let sample_count = idle.watts.len() + busy.watts.len();
        let reason = idle.error.as_ref().or(busy.error.as_ref()).map_or(String::new(), |e| format!(" ({e})"));
        let reason = format!("only {sample_count} of {} readings had a value{reason}", 2 * readings);
        return Err(refusal(info, reason, "look after the sensor"));
    }
    let all_watts = [&idle.watts[..], &busy.watts].concat();
    let resolution_w = smallest_difference(all_watts);
    let report = SelfTestReport { idle: level(&idle.watts), load: level(&busy.watts), resolution_w };
    let connected = "check that it measures this machine's supply and is not frozen; another source may do";
    if report.resolution_w == 0.0 {
        let reason = format!("it stands still at {:.3} W, at rest and with all cores busy", report.idle.mean_w);
        return Err(refusal(info, reason, connected));
    }
    let rounding = 2.0 * report.resolution_w.powi(2) / 12.0;
    let uncertainty = (mean_variance(&report.idle) + mean_variance(&report.load) + rounding).sqrt();
    let rise = report.load.mean_w - report.idle.mean_w;
    if rise <= 2.0 * uncertainty {
        let (idle_w, load_w) = (report.idle.mean_w, report.load.mean_w);
        let reason =
            format!("its power does not rise under load: {idle_w:.3} W at rest, {load_w:.3} W with all cores busy");
        let share = idle.used.cpu_s / idle.used.elapsed.as_secs_f64().max(1e-3) / f64::from(cores.max(1));
        if share > MAX_REST_SHARE {
            let percent = share * 100.0;
            let reason = format!("{reason}; but the machine was {percent:.0} % busy at rest");
            return Err(refusal(info, reason, "stop other work and try again"));
        }
        return Err(refusal(info, reason, connected));
    }
    Ok(report)
}

fn refusal(info: &SourceInfo, reason: String, remedy: &str) -> MeterError {
    MeterError::Source { name: info.name.clone(), reason, remedy: remedy.into() }
}

fn mean_variance(level: &Level) -> f64 {
    level.sd_w.powi(2) / level.n as f64
}
