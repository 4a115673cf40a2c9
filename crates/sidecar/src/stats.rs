//! Counts of one model's requests, as the statistics extension of the protocol tells them.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often something happened, and how long it took in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Total {
    /// How often.
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

/// Totals by what the time went to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Requests that were answered.
    pub success: Total,
    /// Requests that were not.
    pub fail: Total,
    /// Waiting for a worker.
    pub queue: Total,
    /// Checking and normalising inputs.
    pub compute_input: Total,
    /// The private inference: material if it has to be made, and the online phase.
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
    /// Runs of the model: inputs that were run as one are one.
    pub execution_count: u64,
    /// Times.
    pub inference_stats: Totals,
    /// Private inferences by how many inputs were run as one.
    pub batches: BTreeMap<usize, Total>,
}

/// Where one request's time went.
pub(crate) struct Times {
    pub inputs: u64,
    pub accepted: Duration,
    pub queued: Duration,
    /// How many inputs were run as one, and how long that took.
    pub runs: Vec<(usize, Duration)>,
    pub finished: Duration,
    pub all: Duration,
}

/// Counts that several threads add to.
#[derive(Default)]
pub(crate) struct Stats(Mutex<Counts>);

impl Stats {
    pub(crate) fn answered(&self, times: &Times) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        counts.last_inference = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        counts.inference_count += times.inputs;
        counts.execution_count += times.runs.len() as u64;
        for &(inputs, worked) in &times.runs {
            counts.batches.entry(inputs).or_default().add(worked);
        }
        let totals = &mut counts.inference_stats;
        totals.success.add(times.all);
        totals.queue.add(times.queued);
        totals.compute_input.add(times.accepted);
        totals.compute_infer.add(times.runs.iter().map(|(_, worked)| *worked).sum());
        totals.compute_output.add(times.finished);
    }

    pub(crate) fn failed(&self, after: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).inference_stats.fail.add(after);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
