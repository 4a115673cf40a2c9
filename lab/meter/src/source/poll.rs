//! Sensors that are too slow for the sampler's thread: another thread polls them, and reads return
//! the newest value.
use super::{Source, SourceInfo, Usage, Value};
use crate::MeterError;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A slow reading: watts or joules of each rail.
pub(crate) type Reader = Box<dyn FnMut() -> Result<Vec<Value>, MeterError> + Send>;

struct Latest {
    outcome: Result<Vec<Value>, String>,
    at: Instant,
}

pub(crate) struct Polled {
    info: SourceInfo,
    remedy: &'static str,
    latest: Arc<Mutex<Latest>>,
    stale: Duration,
    /// Dropped with the source, which ends the thread.
    _alive: Sender<()>,
}

impl Polled {
    /// Starts polling every `info.min_interval_ms`; `first` is a reading that was just taken.
    pub(crate) fn start(info: SourceInfo, remedy: &'static str, first: Vec<Value>, mut reader: Reader) -> Self {
        let interval = Duration::from_millis(u64::from(info.min_interval_ms));
        let latest = Arc::new(Mutex::new(Latest { outcome: Ok(first), at: Instant::now() }));
        let (alive, ended) = channel::<()>();
        let writer = latest.clone();
        std::thread::spawn(move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let outcome = reader().map_err(|error| error.to_string());
                *lock(&writer) = Latest { outcome, at: Instant::now() };
            }
        });
        Self { info, remedy, latest, stale: interval * 3 + Duration::from_secs(2), _alive: alive }
    }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source for Polled {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, _: &Usage) -> Result<Vec<Value>, MeterError> {
        let latest = lock(&self.latest);
        match &latest.outcome {
            Ok(_) if latest.at.elapsed() > self.stale => Ok(vec![Value::Missing; self.info.rails.len()]),
            Ok(values) => Ok(values.clone()),
            Err(reason) => Err(MeterError::Source {
                name: self.info.name.clone(),
                reason: reason.clone(),
                remedy: self.remedy.into(),
            }),
        }
    }
}
