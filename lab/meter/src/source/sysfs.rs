//! A source made of small files with one number each.
use super::counter::{Counter, MAX_WATTS};
use super::tree::Tree;
use super::{Source, SourceInfo, Usage, Value};
use crate::MeterError;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a rail's value is found.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// `value / per_watt` watts.
    Power { path: String, per_watt: f64 },
    /// `volt * curr` microwatts (millivolts and milliamperes).
    Product { volt: String, curr: String },
    /// A cumulative counter.
    Energy { path: String, counter: Counter },
}

/// Explains an I/O error to the user: cause and remedy.
pub(crate) type Explain = fn(&io::Error, path: &str) -> (String, String);

pub(crate) struct SysfsSource {
    info: SourceInfo,
    tree: Arc<dyn Tree>,
    readings: Vec<Reading>,
    explain: Explain,
    last: Option<(Instant, Duration)>,
}

enum Fault {
    /// The file cannot be read now.
    Unread(String, io::Error),
    /// The file has invalid content.
    Wrong(String),
}

impl SysfsSource {
    /// `readings` in the order of `info.rails`.
    pub(crate) fn new(info: SourceInfo, tree: Arc<dyn Tree>, readings: Vec<Reading>, explain: Explain) -> Self {
        Self { info, tree, readings, explain, last: None }
    }

    /// Time since the last read: by the sampler's clock, or by this one's.
    fn time_since_read(&mut self, usage: &Usage) -> Duration {
        let now = (Instant::now(), usage.elapsed);
        let last = self.last.replace(now).unwrap_or(now);
        now.0.duration_since(last.0).max(now.1.saturating_sub(last.1))
    }
}

/// Reads a file's first word as a number; older drivers append a unit.
fn number<T: std::str::FromStr>(tree: &dyn Tree, path: &str) -> Result<T, Fault> {
    let text = tree.read(path).map_err(|error| Fault::Unread(path.to_string(), error))?;
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|_| Fault::Wrong(format!("{path} holds {:?}, not a whole number", shorten(&text))))
}

/// The beginning of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

impl Reading {
    fn take(&mut self, tree: &dyn Tree, passed: Duration) -> Result<Value, Fault> {
        let watts = match self {
            Self::Power { path, per_watt } => number::<i64>(tree, path)? as f64 / *per_watt,
            Self::Product { volt, curr } => number::<i64>(tree, volt)? as f64 * number::<i64>(tree, curr)? as f64 / 1e6,
            Self::Energy { path, counter } => {
                return match number(tree, path) {
                    Ok(raw) => counter
                        .advance(raw, passed)
                        .map(Value::Joules)
                        .map_err(|problem| Fault::Wrong(format!("{path}: {problem}"))),
                    Err(fault) => {
                        counter.missing();
                        Err(fault)
                    }
                };
            }
        };
        if watts.abs() > MAX_WATTS {
            return Err(Fault::Wrong(format!("{watts:.0} W is more than any rail draws")));
        }
        Ok(Value::Watts(watts))
    }
}

impl Source for SysfsSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    /// A rail that cannot be read is `Missing`. Invalid content on a counted rail is an error, so
    /// that the total does not silently omit it; the other rails continue with the next read.
    fn read(&mut self, usage: &Usage) -> Result<Vec<Value>, MeterError> {
        let passed = self.time_since_read(usage);
        let (mut values, mut invalid, mut unread) = (Vec::with_capacity(self.readings.len()), None, None);
        for (reading, rail) in self.readings.iter_mut().zip(&self.info.rails) {
            values.push(match reading.take(&*self.tree, passed) {
                Ok(value) => value,
                Err(Fault::Wrong(detail)) => {
                    if rail.counted {
                        invalid.get_or_insert(MeterError::malformed(
                            format!("power source {}, rail {}", self.info.name, rail.name),
                            detail,
                        ));
                    }
                    Value::Missing
                }
                Err(Fault::Unread(path, error)) => {
                    unread.get_or_insert((path, error));
                    Value::Missing
                }
            });
        }
        if let Some(error) = invalid {
            return Err(error);
        }
        match unread {
            Some((path, error)) if values.iter().all(|v| *v == Value::Missing) => {
                let (reason, remedy) = (self.explain)(&error, &path);
                Err(MeterError::Source { name: self.info.name.clone(), reason, remedy })
            }
            _ => Ok(values),
        }
    }
}

/// The explanation for any sensor file.
pub(crate) fn explain(error: &io::Error, path: &str) -> (String, String) {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("run as root, or allow reading: sudo chmod a+r {path}"),
        io::ErrorKind::NotFound => "the device is gone: plug it in again or load its driver again".to_string(),
        _ => "look into the kernel log (dmesg) for the sensor's driver".to_string(),
    };
    (format!("{path}: {error}"), remedy)
}
