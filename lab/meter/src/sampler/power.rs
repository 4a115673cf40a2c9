//! Integration of a source's values to joules.
use crate::MeterError;
use crate::energy::trapezoid;
use crate::record::RailSample;
use crate::source::{Source, Usage, Value};
use std::time::Duration;
use tacit_measure::clock::monotonic_ns;

/// One source and the energy of its rails so far.
pub(super) struct Metered {
    pub(super) source: Box<dyn Source>,
    rails: Vec<Rail>,
    /// Time of the last reading, seconds since the start.
    read_at: Option<f64>,
    failing: bool,
    complained: bool,
}

#[derive(Clone, Copy, Default)]
struct Rail {
    /// First and last value with their times, seconds.
    first: Option<f64>,
    last: Option<(f64, Value)>,
    joules: f64,
}

impl Metered {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        let rails = vec![Rail::default(); source.info().rails.len()];
        Self { source, rails, read_at: None, failing: false, complained: false }
    }

    /// Whether the source may be read again at `now` (seconds since the start).
    pub(super) fn is_due(&self, now: f64) -> bool {
        // A tenth of slack: an interval equal to the source's own must not skip every other reading.
        let min_gap_s = f64::from(self.source.info().min_interval_ms) * 0.9e-3;
        self.read_at.is_none_or(|t| now - t >= min_gap_s)
    }

    /// Reads the source. Returns a remark for the record when a failure begins or ends.
    pub(super) fn read(&mut self, usage: &Usage, started_ns: u64) -> (Option<Vec<RailSample>>, Option<String>) {
        let begin = seconds_since(started_ns);
        let read = self.source.read(usage);
        // The value is from some moment within the call.
        let t = (begin + seconds_since(started_ns)) / 2.0;
        self.read_at = Some(t);
        match read.and_then(|values| self.checked(values)) {
            Ok(values) => {
                let recovered = std::mem::take(&mut self.failing);
                let remark = recovered.then(|| format!("power source {} works again", self.source.info().name));
                let odd = self.oddity(&values);
                (Some(self.rails.iter_mut().zip(values).map(|(rail, v)| rail.take(t, v)).collect()), remark.or(odd))
            }
            Err(error) => {
                let is_new = !std::mem::replace(&mut self.failing, true);
                (None, is_new.then(|| format!("{error}; trying again")))
            }
        }
    }

    fn checked(&self, values: Vec<Value>) -> Result<Vec<Value>, MeterError> {
        if values.len() == self.rails.len() {
            return Ok(values);
        }
        let info = self.source.info();
        let detail = format!("{} values for {} rails", values.len(), info.rails.len());
        Err(MeterError::malformed(format!("power source {}", info.name), detail))
    }

    /// Describes the first value that is not a number, or a counter that runs backwards.
    fn oddity(&mut self, values: &[Value]) -> Option<String> {
        let odd = self.rails.iter().zip(values).position(|(rail, value)| match (value, rail.last) {
            (Value::Joules(current), Some((_, Value::Joules(last)))) => !(current.is_finite() && *current >= last),
            (Value::Joules(v) | Value::Watts(v), _) => !v.is_finite(),
            (Value::Missing, _) => false,
        })?;
        if std::mem::replace(&mut self.complained, true) {
            return None;
        }
        let info = self.source.info();
        Some(format!(
            "power source {}, rail {}: impossible value {:?}, taken as missing",
            info.name, info.rails[odd].name, values[odd]
        ))
    }

    /// Joules of the counted rails, and the observed seconds; `None` if no counted rail ever gave a
    /// value.
    pub(super) fn energy(&self) -> Option<(f64, f64)> {
        let spans = self.counted_rails().map(|r| Some(r.last?.0 - r.first?));
        let span = spans.collect::<Option<Vec<f64>>>()?.into_iter().reduce(tacit_floats::smaller)?;
        Some((self.counted_rails().map(|r| r.joules).sum(), span)).filter(|(_, span)| *span > 0.0)
    }

    fn counted_rails(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().zip(&self.source.info().rails).filter(|(_, r)| r.counted).map(|(rail, _)| rail)
    }
}

impl Rail {
    /// Adds a value read at time `t`. The trapezoid between its ends bridges a gap, never 0 W.
    fn take(&mut self, t: f64, value: Value) -> RailSample {
        let w = match (value, self.last) {
            (Value::Watts(w), last) if w.is_finite() => {
                if let Some((previous_s, Value::Watts(before))) = last {
                    self.joules += trapezoid(t - previous_s, before, w);
                }
                Some(w)
            }
            (Value::Joules(current), Some((previous_s, Value::Joules(before))))
                if current.is_finite() && current >= before =>
            {
                self.joules += current - before;
                (t > previous_s).then(|| (current - before) / (t - previous_s))
            }
            (Value::Joules(current), None) if current.is_finite() => None,
            _ => return RailSample { w: None, j: self.joules },
        };
        self.first.get_or_insert(t);
        self.last = Some((t, value));
        RailSample { w, j: self.joules }
    }
}

pub(super) fn usage(t: f64, cpu_s: f64, bytes: u64) -> Usage {
    Usage { elapsed: Duration::from_secs_f64(t.max(0.0)), cpu_s, bytes }
}

fn seconds_since(started_ns: u64) -> f64 {
    monotonic_ns().saturating_sub(started_ns) as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrates_power_at_irregular_times() {
        let (mut rail, mut last) = (Rail::default(), None);
        // 2 W + 10 W/s: the trapezoid is exact.
        for t in [0.1, 0.15, 0.4, 0.41, 1.1] {
            last = Some(rail.take(t, Value::Watts(2.0 + 10.0 * t)));
        }
        let last = last.unwrap();
        assert!((last.j - (2.0 + 6.0)).abs() < 1e-12, "{last:?}");
        assert!(last.w == Some(13.0), "{last:?}");
        assert_eq!((rail.first, rail.last.map(|(t, _)| t)), (Some(0.1), Some(1.1)));
    }

    #[test]
    fn differences_counters() {
        let mut rail = Rail::default();
        let mut take = |t, joules| rail.take(t, Value::Joules(joules));
        assert_eq!(take(1.0, 500.0), RailSample { w: None, j: 0.0 });
        assert_eq!(take(1.5, 503.0), RailSample { w: Some(6.0), j: 3.0 });
        assert_eq!(take(3.5, 504.0), RailSample { w: Some(0.5), j: 4.0 });
        // It ran backwards.
        assert_eq!(take(4.0, 100.0), RailSample { w: None, j: 4.0 });
    }

    #[test]
    fn bridges_gap_linearly() {
        let mut rail = Rail::default();
        let readings = [Value::Watts(4.0), Value::Missing, Value::Missing, Value::Watts(6.0)];
        for (t, value) in [0.0, 1.0, 9.0, 10.0].into_iter().zip(readings) {
            rail.take(t, value);
        }
        assert_eq!(rail.joules, 50.0);
    }
}
