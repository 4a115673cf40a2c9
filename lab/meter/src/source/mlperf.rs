//! Energy traces of the MLPerf Tiny EnergyRunner (`trace1-energy.bin`, `trace1-timestamps.json`).
//!
//! The binary file is the byte 0xF1, the sampling rate in hertz as f32, then one f32 per sample: microjoules
//! during that sample. All little endian. The JSON file is an array of the edges between measuring windows in
//! seconds.
use super::Rail;
use super::trace::{Kind, Trace};
use crate::MeterError;

/// First byte of a trace.
pub(crate) const MAGIC: u8 = 0xF1;
/// Largest accepted sample, microjoules: more than 5 kW at 1 Hz is invalid.
const MAX_SAMPLE: f32 = 5e9;

/// A trace: energy per sample at a fixed rate.
#[derive(Clone, Debug, PartialEq)]
pub struct EnergyTrace {
    rate_hz: f64,
    microjoules: Vec<f32>,
}

impl EnergyTrace {
    /// Reads the binary file's content.
    ///
    /// # Errors
    /// [`MeterError::malformed`] if the first byte, the rate, a sample or the length is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, MeterError> {
        let Some((&[MAGIC, a, b, c, d], samples)) = bytes.split_first_chunk::<5>() else {
            return Err(malformed("it does not begin with the byte 0xF1 and a sampling rate"));
        };
        let rate = f32::from_le_bytes([a, b, c, d]);
        if !(1e-3..=1e7).contains(&rate) {
            return Err(malformed(format!("sampling rate {rate} Hz, expected 0.001 to 10,000,000")));
        }
        let (words, remainder) = samples.as_chunks::<4>();
        if !remainder.is_empty() {
            return Err(malformed(format!("it ends within sample {}", words.len())));
        }
        let microjoules: Vec<f32> = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
        if let Some(bad_index) = microjoules.iter().position(|uj| !(0.0..=MAX_SAMPLE).contains(uj)) {
            return Err(malformed(format!("sample {bad_index} is {} uJ", microjoules[bad_index])));
        }
        Ok(Self { rate_hz: f64::from(rate), microjoules })
    }

    /// Samples per second.
    pub fn rate_hz(&self) -> f64 {
        self.rate_hz
    }

    /// Number of samples.
    pub fn samples(&self) -> usize {
        self.microjoules.len()
    }

    /// Joules between two times, in whole samples with rounded limits; times outside count as the
    /// nearer end.
    pub fn joules_between(&self, from_s: f64, to_s: f64) -> f64 {
        let window = self.microjoules.get(self.index(from_s)..self.index(to_s)).unwrap_or_default();
        window.iter().map(|&uj| f64::from(uj)).sum::<f64>() * 1e-6
    }

    fn index(&self, t: f64) -> usize {
        // The cast saturates.
        ((t * self.rate_hz).round() as usize).min(self.samples())
    }

    /// The trace as a course of cumulative energy.
    ///
    /// # Errors
    /// [`MeterError::malformed`]; never for a trace from [`EnergyTrace::parse`].
    pub fn trace(&self) -> Result<Trace, MeterError> {
        let mut sum = 0.0;
        let mut joules = vec![vec![0.0]];
        joules.extend(self.microjoules.iter().map(|&uj| {
            sum += f64::from(uj) * 1e-6;
            vec![sum]
        }));
        let times = (0..joules.len()).map(|i| i as f64 / self.rate_hz).collect();
        Trace::new(vec![Rail::counted("board")], Kind::Joules, times, joules)
    }
}

fn malformed(detail: impl Into<String>) -> MeterError {
    MeterError::malformed("mlperf energy trace", detail)
}

/// Reads the edges between windows, seconds.
///
/// # Errors
/// [`MeterError::malformed`] if the text is not a JSON array of finite, rising, non-negative
/// numbers.
pub fn parse_timestamps(text: &str) -> Result<Vec<f64>, MeterError> {
    let subject = "mlperf time stamps";
    let times: Vec<f64> = serde_json::from_str(text)
        .map_err(|e| MeterError::malformed(subject, format!("{e}; expected an array of seconds")))?;
    if !times.is_sorted() || times.iter().any(|t| !(0.0..1e9).contains(t)) {
        return Err(MeterError::malformed(subject, "times must be seconds that do not go back"));
    }
    Ok(times)
}
