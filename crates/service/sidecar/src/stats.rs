//! Counts of one model's requests, for the statistics extension of the protocol.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often an event occurred, and its total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Total {
    /// Number of events.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Total {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.ns += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Totals by stage of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Requests that were answered.
    pub success: Total,
    /// Requests that failed.
    pub fail: Total,
    /// Waiting for a worker.
    pub queue: Total,
    /// Checking and normalising inputs.
    pub compute_input: Total,
    /// The private inference: making material if needed, and the online phase.
    pub compute_infer: Total,
    /// Making the outputs.
    pub compute_output: Total,
    /// There is no cache: always zero.
    pub cache_hit: Total,
    /// Always zero.
    pub cache_miss: Total,
}

/// All counts of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// When the last request was answered, in milliseconds since 1970.
    pub last_inference: u64,
    /// Inputs answered.
    pub inference_count: u64,
    /// Runs of the model; a batch is one run.
    pub execution_count: u64,
    /// Total times.
    pub inference_stats: Totals,
    /// Private inferences by batch size.
    pub batches: BTreeMap<usize, Total>,
}

/// Time of one request by stage.
pub(crate) struct Times {
    pub inputs: u64,
    pub accepted: Duration,
    pub queued: Duration,
    /// Size and duration of each batch.
    pub runs: Vec<(usize, Duration)>,
    pub finished: Duration,
    /// From the request to its answer.
    pub total: Duration,
}

#[derive(Default)]
pub(crate) struct Stats(Mutex<Counts>);

impl Stats {
    pub(crate) fn record_success(&self, times: &Times) {
        let mut counts = self.lock();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        counts.last_inference = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        counts.inference_count += times.inputs;
        counts.execution_count += times.runs.len() as u64;
        for &(inputs, worked) in &times.runs {
            counts.batches.entry(inputs).or_default().add(worked);
        }
        let totals = &mut counts.inference_stats;
        totals.success.add(times.total);
        totals.queue.add(times.queued);
        totals.compute_input.add(times.accepted);
        totals.compute_infer.add(times.runs.iter().map(|(_, worked)| *worked).sum());
        totals.compute_output.add(times.finished);
    }

    pub(crate) fn record_failure(&self, duration: Duration) {
        self.lock().inference_stats.fail.add(duration);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
