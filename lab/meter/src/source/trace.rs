//! A recorded course of energy.
use super::Rail;
use crate::MeterError;

/// The kind of a trace's samples.
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
    /// One entry per time, with one value per rail.
    joules: Vec<Vec<f64>>,
}

impl Trace {
    /// A trace with `times` in seconds and `samples`, one per time with one value per rail. Power
    /// is integrated by the trapezoidal rule.
    ///
    /// # Errors
    /// [`MeterError::malformed`] if there are no samples, lengths differ, a number is not finite,
    /// or time or energy decreases.
    pub fn new(rails: Vec<Rail>, kind: Kind, times: Vec<f64>, samples: Vec<Vec<f64>>) -> Result<Self, MeterError> {
        let Some(&start) = times.first() else {
            return Err(malformed("it has no samples"));
        };
        if times.len() != samples.len() || samples.iter().any(|s| s.len() != rails.len()) {
            return Err(malformed("times, samples and rails differ in number"));
        }
        if times.iter().chain(samples.iter().flatten()).any(|x| !x.is_finite()) {
            return Err(malformed("a number is not finite"));
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
                    return Err(malformed(format!("time goes back from {time} s to {} s", times[i])));
                }
                if energy.iter().zip(sum).any(|(current, previous)| current < previous) {
                    return Err(malformed(format!("energy falls at {} s", times[i])));
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

    /// Joules of each rail from the first sample to `time` seconds after it, linear between
    /// samples; `None` after the last one.
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
}

fn malformed(detail: impl Into<String>) -> MeterError {
    MeterError::malformed("power trace", detail)
}
