//! From samples to joules: integration, idle baseline, net energy with its uncertainty, and each party's
//! part.
//!
//! Net energy is gross energy minus idle power times duration ([PM24] section 4). All uncertainties
//! are standard uncertainties (one standard deviation). They cover noise, drift and resolution of
//! the sensor, but not its calibration: a sensor that reads 3 % too much does so in both figures.
use crate::record::{EnergyFigure, Sample};
use crate::source::Provenance;
use std::collections::BTreeMap;
use tacit_measure::device::Mode;

#[must_use]
pub(crate) fn trapezoid(seconds: f64, from_w: f64, to_w: f64) -> f64 {
    seconds.max(0.0) * (from_w + to_w) / 2.0
}

/// Idle power of a host, from one source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// Mean power, watts.
    pub mean_w: f64,
    /// Standard deviation of single samples, watts.
    pub sd_w: f64,
    /// Number of samples.
    pub n: usize,
    /// Duration of the samples, seconds.
    pub seconds: f64,
    /// Mean after the measurement minus mean before it, watts; 0 for a single baseline.
    pub drift_w: f64,
    /// Standard uncertainty of the mean from noise, watts; accounts for correlation between
    /// neighbouring samples.
    pub mean_sd_w: f64,
    /// Smallest step of the sensor, watts; 0 if unknown.
    pub resolution_w: f64,
}

impl Baseline {
    /// A baseline from mean powers of consecutive intervals: (length in seconds, watts).
    /// `resolution_w` is the smallest step of the sensor, 0 if unknown. `None` for fewer than two
    /// intervals of positive length.
    #[must_use]
    pub fn from_power(intervals: &[(f64, f64)], resolution_w: f64) -> Option<Self> {
        let intervals: Vec<(f64, f64)> =
            intervals.iter().copied().filter(|(dt, w)| *dt > 0.0 && w.is_finite()).collect();
        if intervals.len() < 2 {
            return None;
        }
        let seconds: f64 = intervals.iter().map(|(dt, _)| dt).sum();
        let mean_w = intervals.iter().map(|(dt, w)| dt * w).sum::<f64>() / seconds;
        let n = intervals.len();
        let deviations: Vec<f64> = intervals.iter().map(|(_, w)| w - mean_w).collect();
        let variance = deviations.iter().map(|d| d * d).sum::<f64>() / (n - 1) as f64;
        let mean_sd_w = (variance * correlation_time(&deviations) / n as f64).sqrt();
        Some(Self { mean_w, sd_w: variance.sqrt(), n, seconds, drift_w: 0.0, mean_sd_w, resolution_w })
    }

    /// A baseline from the samples of an idle record: the counted rails of source `name`. The
    /// smallest step between any two readings of a rail is the sensor's resolution.
    #[must_use]
    pub fn from_samples(samples: &[Sample], name: &str, counted: &[bool]) -> Option<Self> {
        let curve = energy_curve(samples, name, counted);
        let intervals: Vec<(f64, f64)> =
            curve.windows(2).map(|w| (w[1].0 - w[0].0, (w[1].1 - w[0].1) / (w[1].0 - w[0].0))).collect();
        let rails = counted.iter().enumerate().filter(|(_, counted)| **counted);
        let steps = rails.map(|(rail, _)| smallest_step(samples, name, rail).powi(2));
        Self::from_power(&intervals, steps.sum::<f64>().sqrt())
    }

    /// Joins the baselines before and after a measurement: their mean, and the drift between them.
    #[must_use]
    pub fn around(before: Self, after: Self) -> Self {
        Self {
            mean_w: (before.mean_w + after.mean_w) / 2.0,
            sd_w: ((before.sd_w.powi(2) + after.sd_w.powi(2)) / 2.0).sqrt(),
            n: before.n + after.n,
            seconds: before.seconds + after.seconds,
            drift_w: after.mean_w - before.mean_w,
            mean_sd_w: before.mean_sd_w.hypot(after.mean_sd_w) / 2.0,
            resolution_w: before.resolution_w.max(after.resolution_w),
        }
    }

    /// Standard uncertainty of the idle power during the measurement, watts: noise, drift and
    /// resolution. The last two are rectangular distributions, of the idle power between `before`
    /// and `after` and of the value within a sensor step.
    #[must_use]
    pub fn uncertainty_w(&self) -> f64 {
        (self.mean_sd_w.powi(2) + (self.drift_w.powi(2) + self.resolution_w.powi(2)) / 12.0).sqrt()
    }

    /// Standard uncertainty of the energy of `duration_s` from the same noise, joules.
    fn noise_j(&self, duration_s: f64) -> f64 {
        self.mean_sd_w * (self.seconds * duration_s).sqrt()
    }
}

/// Number of samples that count as one independent sample: 1 for white noise, more for correlated
/// neighbours. The sum of autocorrelations ends at the first lag that is at least five times the
/// estimate so far (Sokal's window); the result lies in [1, n].
fn correlation_time(deviations: &[f64]) -> f64 {
    let n = deviations.len();
    let variance: f64 = deviations.iter().map(|d| d * d).sum();
    if variance <= 0.0 {
        return 1.0;
    }
    let mut time = 1.0;
    // Longer lags cost more time than they improve the estimate.
    for lag in 1..n.min(1000) {
        let covariance: f64 = deviations[lag..].iter().zip(deviations).map(|(a, b)| a * b).sum();
        time += 2.0 * covariance / variance;
        if lag as f64 >= 5.0 * time {
            break;
        }
    }
    time.clamp(1.0, n as f64)
}

/// Smallest difference between two readings of a rail that differ by more than rounding, watts; 0 if none do.
fn smallest_step(samples: &[Sample], name: &str, rail: usize) -> f64 {
    smallest_difference(samples.iter().filter_map(|s| s.power.get(name)?.get(rail)?.w).collect())
}

/// Smallest difference between two values that differ by more than rounding; 0 if none do.
pub(crate) fn smallest_difference(mut values: Vec<f64>) -> f64 {
    values.sort_by(tacit_floats::rising);
    let rounding = values.last().map_or(0.0, |max| max.abs() * 1e-9);
    let steps = values.windows(2).map(|w| w[1] - w[0]).filter(|step| *step > rounding);
    steps.reduce(tacit_floats::smaller).unwrap_or(0.0)
}

/// (time, joules since the start) over the counted rails of a source, from the samples with a value
/// of the source.
#[must_use]
pub fn energy_curve(samples: &[Sample], name: &str, counted: &[bool]) -> Vec<(f64, f64)> {
    let mut curve: Vec<(f64, f64)> = Vec::with_capacity(samples.len());
    let mut first_reading = None;
    for sample in samples {
        let Some(rails) = sample.power.get(name) else { continue };
        let mut rails = rails.iter().zip(counted).filter(|(_, counted)| **counted).map(|(rail, _)| rail);
        let joules: f64 = rails.clone().map(|rail| rail.j).sum();
        if rails.any(|rail| rail.w.is_none()) {
            // A counter's first reading has no power yet, but its energy starts there.
            first_reading = (sample.t, joules).into();
            continue;
        }
        if let (Some(start), true) = (first_reading, curve.is_empty() && joules > 0.0) {
            curve.push(start);
        }
        if curve.last().is_none_or(|last| sample.t > last.0) {
            curve.push((sample.t, joules));
        }
    }
    curve
}

/// Gross energy as a figure; without a baseline, there is no net energy.
#[must_use]
pub fn gross(gross_j: f64, duration_s: f64, provenance: Provenance) -> EnergyFigure {
    let mean_w = if duration_s > 0.0 { gross_j / duration_s } else { 0.0 };
    EnergyFigure { provenance, gross_j, idle_j: None, net_j: None, net_sd_j: None, mean_w, below_noise: false }
}

/// Subtracts the idle energy.
#[must_use]
pub fn net(gross_j: f64, baseline: &Baseline, duration_s: f64, provenance: Provenance) -> EnergyFigure {
    let idle_j = baseline.mean_w * duration_s;
    let net_j = gross_j - idle_j;
    let net_sd_j = (baseline.uncertainty_w() * duration_s).hypot(baseline.noise_j(duration_s));
    EnergyFigure {
        idle_j: Some(idle_j),
        net_j: Some(net_j),
        net_sd_j: Some(net_sd_j),
        below_noise: net_j.abs() < 2.0 * net_sd_j,
        ..gross(gross_j, duration_s, provenance)
    }
}

/// Divides a host's energy among its parties by their processor seconds.
///
/// Energy above idle belongs to the parties and to `others_s`: processor seconds of work that runs
/// only for the measurement and is not in the idle baseline. Only the parties share idle energy, in
/// equal parts if none used processor time. A modelled figure stays modelled, any other becomes
/// attributed. The uncertainty combines that of the host's net energy, divided alike, and that of
/// each party's processor time (`cpu_sd_s`, seconds).
#[must_use]
pub fn attribute(
    host: &EnergyFigure,
    cpu_s: &BTreeMap<String, f64>,
    cpu_sd_s: f64,
    others_s: f64,
) -> BTreeMap<String, EnergyFigure> {
    let parties: f64 = cpu_s.values().sum();
    let total_s = parties + others_s.max(0.0);
    let provenance = match host.provenance {
        Provenance::Modelled => Provenance::Modelled,
        Provenance::Measured | Provenance::Attributed => Provenance::Attributed,
    };
    let equal = 1.0 / cpu_s.len() as f64;
    let shared = cpu_s.iter().map(|(party, &cpu)| {
        let share = if total_s > 0.0 { cpu / total_s } else { equal };
        // The spread of c / (c + d + others), with the same uncertainty for c and each d, and the
        // others' time known; zero for a single party.
        let spread = ((1.0 - share).powi(2) + (cpu_s.len() - 1) as f64 * share.powi(2)).sqrt();
        let share_sd = if total_s > 0.0 { (cpu_sd_s / total_s * spread).min(1.0) } else { 0.0 };
        let net_j = host.net_j.map(|net| net * share);
        let net_sd_j = host.net_j.zip(host.net_sd_j).map(|(net, sd)| (sd * share).hypot(net * share_sd));
        let idle_share = if parties > 0.0 { cpu / parties } else { equal };
        let idle_j = host.idle_j.map(|idle| idle * idle_share);
        let gross_j = idle_j.zip(net_j).map_or(host.gross_j * share, |(idle, net)| idle + net);
        let figure = EnergyFigure {
            provenance,
            gross_j,
            idle_j,
            net_j,
            net_sd_j,
            mean_w: if host.gross_j > 0.0 { host.mean_w * gross_j / host.gross_j } else { 0.0 },
            below_noise: net_j.zip(net_sd_j).is_some_and(|(net, sd)| net.abs() < 2.0 * sd),
        };
        (party.clone(), figure)
    });
    shared.collect()
}

/// Coefficients of the energy model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// Power of the idle device, watts.
    pub base_w: f64,
    /// Joules per processor second: power of a busy core above idle, watts.
    pub core_w: f64,
    /// Joules per byte sent or received.
    pub byte_j: f64,
    /// Relative standard uncertainty of `core_w` and `byte_j`; 0 if unknown.
    pub relative_sd: f64,
}

impl From<&Mode> for Coefficients {
    /// The coefficients of a device profile's power mode; profiles state no uncertainty.
    fn from(mode: &Mode) -> Self {
        let (base_w, core_w, byte_j) = (mode.base_w.value, mode.w_per_core.value, mode.j_per_byte.value);
        Self { base_w, core_w, byte_j, relative_sd: 0.0 }
    }
}

/// A party's modelled energy, as if on its own device: the base power counts in gross energy and
/// not in net energy.
#[must_use]
pub fn modelled(cpu_s: f64, bytes: f64, duration_s: f64, coefficients: &Coefficients) -> EnergyFigure {
    let Coefficients { base_w, core_w, byte_j, relative_sd } = *coefficients;
    let (idle_j, net_j) = (base_w * duration_s, cpu_s * core_w + bytes * byte_j);
    EnergyFigure {
        idle_j: Some(idle_j),
        net_j: Some(net_j),
        net_sd_j: (relative_sd > 0.0).then_some(net_j * relative_sd),
        below_noise: net_j < 2.0 * net_j * relative_sd,
        ..gross(idle_j + net_j, duration_s, Provenance::Modelled)
    }
}

#[cfg(test)]
mod tests;
