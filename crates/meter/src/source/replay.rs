//! A recorded course of power, played back against the sampler's clock.
use super::csv;
use super::mlperf::EnergyTrace;
use super::{Provenance, Rail, Source, SourceInfo, Usage, Value, tegrastats};
use crate::MeterError;
use std::path::Path;

/// Largest file that is read: 16 million samples, which take 2 GB of memory.
const MAX_FILE: u64 = 64 << 20;

/// What a trace's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Power at the time of the sample, watts.
    Watts,
    /// Cumulative energy, joules.
    Joules,
}

/// A recorded course of energy: for each rail the joules since the first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    rails: Vec<Rail>,
    /// Seconds since the first sample, not decreasing.
    times: Vec<f64>,
    /// One entry per time, in it one per rail.
    joules: Vec<Vec<f64>>,
}

impl Trace {
    /// `times` in seconds, `samples` one per time with one value per rail. Power is integrated by the trapezoidal rule.
    ///
    /// # Errors
    /// [`MeterError::Malformed`] if there are no samples, lengths differ, a number is not finite, time or energy goes back.
    pub fn new(rails: Vec<Rail>, kind: Kind, times: Vec<f64>, samples: Vec<Vec<f64>>) -> Result<Self, MeterError> {
        let malformed = |detail: String| Err(MeterError::Malformed { what: "power trace".into(), detail });
        let Some(&start) = times.first() else {
            return malformed("it has no samples".into());
        };
        if times.len() != samples.len() || samples.iter().any(|s| s.len() != rails.len()) {
            return malformed("times, samples and rails differ in number".into());
        }
        if times.iter().chain(samples.iter().flatten()).any(|x| !x.is_finite()) {
            return malformed("a number is not finite".into());
        }
        let mut joules: Vec<Vec<f64>> = Vec::with_capacity(samples.len());
        for (i, sample) in samples.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| (times[i], &samples[i], &joules[i]));
            let energy = sample.iter().enumerate().map(|(rail, value)| match (kind, before) {
                (_, None) => 0.0,
                (Kind::Joules, _) => value - samples[0][rail],
                (Kind::Watts, Some((time, last, sum))) => sum[rail] + (times[i] - time) * (value + last[rail]) / 2.0,
            });
            let energy: Vec<f64> = energy.collect();
            if let Some((time, _, sum)) = before {
                if times[i] < time {
                    return malformed(format!("time goes back from {time} s to {} s", times[i]));
                }
                if energy.iter().zip(sum).any(|(now, then)| now < then) {
                    return malformed(format!("energy falls at {} s", times[i]));
                }
            }
            joules.push(energy);
        }
        Ok(Self { rails, times: times.iter().map(|t| t - start).collect(), joules })
    }

    /// Its rails.
    pub fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.times.last().copied().unwrap_or(0.0)
    }

    /// Joules of each rail from the first sample to `time` seconds after it, between samples linear; `None` after the last one.
    pub fn joules_at(&self, time: f64) -> Option<Vec<f64>> {
        let next = self.times.partition_point(|&t| t <= time);
        let (before, after) = (next.checked_sub(1)?, next);
        if after == self.times.len() {
            return (time <= self.duration_s()).then(|| self.joules[before].clone());
        }
        let share = (time - self.times[before]) / (self.times[after] - self.times[before]);
        let between = self.joules[before].iter().zip(&self.joules[after]);
        Some(between.map(|(a, b)| a + (b - a) * share).collect())
    }

    /// Reads a file by its content: an `mlperf_tiny` energy trace (first byte 0xF1), a CSV file (header `time_s,watts` or
    /// `time_s,joules`), else a tegrastats log, whose lines are `interval_s` apart where they have no time of their own.
    ///
    /// # Errors
    /// [`MeterError::Io`], or [`MeterError::Malformed`] naming the line.
    pub fn load(path: &Path, interval_s: f64) -> Result<Self, MeterError> {
        let size = std::fs::metadata(path).map_err(MeterError::io(path))?.len();
        if size > MAX_FILE {
            let detail = format!("{size} bytes are too many for a trace, at most {MAX_FILE}");
            return Err(MeterError::Malformed { what: path.display().to_string(), detail });
        }
        let bytes = std::fs::read(path).map_err(MeterError::io(path))?;
        Self::parse(&bytes, interval_s).map_err(|error| match error {
            MeterError::Malformed { what, detail } => {
                MeterError::Malformed { what: format!("{}: {what}", path.display()), detail }
            }
            other => other,
        })
    }

    /// Reads a file's content, see [`Trace::load`].
    ///
    /// # Errors
    /// [`MeterError::Malformed`] naming the line.
    pub fn parse(bytes: &[u8], interval_s: f64) -> Result<Self, MeterError> {
        if bytes.first() == Some(&super::mlperf::MAGIC) {
            return EnergyTrace::parse(bytes)?.trace();
        }
        let text = String::from_utf8_lossy(bytes);
        if csv::has_header(&text) { csv::parse(&text) } else { tegrastats::parse_log(&text, interval_s) }
    }
}

/// Plays a trace back: at the sampler's time `t` it tells the joules of the trace's first `t` seconds. No sensor saw what runs meanwhile, so
/// its joules are modelled, whatever the trace was taken with.
pub struct Replay {
    info: SourceInfo,
    trace: Trace,
}

impl Replay {
    /// A source named `name`.
    pub fn new(name: impl Into<String>, trace: Trace) -> Self {
        let rails = trace.rails.clone();
        Self {
            info: SourceInfo { name: name.into(), provenance: Provenance::Modelled, rails, min_interval_ms: 1 },
            trace,
        }
    }
}

impl Source for Replay {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, usage: &Usage) -> Result<Vec<Value>, MeterError> {
        let Some(joules) = self.trace.joules_at(usage.elapsed.as_secs_f64()) else {
            let reason = format!("the trace ended after {:.3} s", self.trace.duration_s());
            let remedy = "measure for a shorter time or take a longer trace".into();
            return Err(MeterError::Source { name: self.info.name.clone(), reason, remedy });
        };
        Ok(joules.into_iter().map(Value::Joules).collect())
    }
}
