//! A recorded course of power, replayed against the sampler's clock.
use super::csv;
use super::mlperf::EnergyTrace;
use super::trace::Trace;
use super::{Provenance, Source, SourceInfo, Usage, Value, tegrastats};
use crate::MeterError;
use std::path::Path;

/// Largest accepted file: 16 million samples, which take 2 GB of memory.
const MAX_FILE: u64 = 64 << 20;

/// Reads a file by its content: an `mlperf_tiny` energy trace (first byte 0xF1), a CSV file (header
/// `time_s,watts` or `time_s,joules`), otherwise a tegrastats log, whose lines without a time are
/// `interval_s` apart.
///
/// # Errors
/// [`MeterError::io`], or [`MeterError::malformed`] naming the line.
pub fn load(path: &Path, interval_s: f64) -> Result<Trace, MeterError> {
    let size = std::fs::metadata(path).map_err(MeterError::io(path))?.len();
    if size > MAX_FILE {
        let detail = format!("{size} bytes are too many for a trace, at most {MAX_FILE}");
        return Err(MeterError::malformed(path.display().to_string(), detail));
    }
    let bytes = std::fs::read(path).map_err(MeterError::io(path))?;
    parse(&bytes, interval_s).map_err(|error| error.behind(&format!("{}: ", path.display())))
}

/// Reads a file's content, see [`load`].
///
/// # Errors
/// [`MeterError::malformed`] naming the line.
pub fn parse(bytes: &[u8], interval_s: f64) -> Result<Trace, MeterError> {
    if bytes.first() == Some(&super::mlperf::MAGIC) {
        return EnergyTrace::parse(bytes)?.trace();
    }
    let text = String::from_utf8_lossy(bytes);
    if csv::has_header(&text) { csv::parse(&text) } else { tegrastats::parse_log(&text, interval_s) }
}

/// Replays a trace: at the sampler's time `t` it returns the joules of the trace's first `t`
/// seconds. They count as modelled: no sensor measures the present work.
pub struct Replay {
    info: SourceInfo,
    trace: Trace,
}

impl Replay {
    /// A source named `name`.
    pub fn new(name: impl Into<String>, trace: Trace) -> Self {
        let (name, rails) = (name.into(), trace.rails().to_vec());
        let info = SourceInfo { name, provenance: Provenance::Modelled, rails, min_interval_ms: 1 };
        Self { info, trace }
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
