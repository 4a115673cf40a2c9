//! Follows a server's status during a cell: its jobs, on the clock of the cell.
use anyhow::Context;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_cli::operator::{Job, Status};
use tacit_client::Control;
use tacit_sim::RecordedJob;

/// How often to check whether the cell is over, and then whether its jobs are.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often to ask for the status. A status has the last 500 jobs, far more than end in this time.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long jobs may appear to run after the last answer. A client has its answer before the server
/// records the end of the job.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Watched {
    /// The last status: D, W and counts over the whole cell.
    pub last: Status,
    /// Every job that ended, by its number.
    jobs: BTreeMap<u64, Job>,
    last_ran: bool,
    /// The server's uptime at the start of the cell, in seconds.
    zero_s: f64,
    /// Duration of the request that gave `zero_s`, whose error is at most half of it.
    best_s: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phases {
    /// When the server first heard of the input, according to the first phase that succeeded.
    pub known: Option<f64>,
    pub offline: Option<RecordedJob>,
    pub online: Option<RecordedJob>,
}

impl Watched {
    fn new() -> Self {
        let last = Status::default();
        Self { last, jobs: BTreeMap::new(), last_ran: false, zero_s: 0.0, best_s: f64::INFINITY }
    }

    /// Adds a status that was requested and answered at these seconds of the cell.
    fn add_status(&mut self, status: Status, asked_s: f64, answered_s: f64) {
        if answered_s - asked_s < self.best_s {
            self.best_s = answered_s - asked_s;
            self.zero_s = status.uptime_s - f64::midpoint(asked_s, answered_s);
        }
        self.last_ran = status.jobs.iter().any(|job| job.ended_s.is_none());
        let ended_jobs = status.jobs.iter().filter(|job| job.ended_s.is_some());
        self.jobs.extend(ended_jobs.map(|job| (job.id, job.clone())));
        self.last = status;
    }

    /// Returns each client's jobs by its fingerprint; of each phase, the last that succeeded.
    pub fn phases(&self) -> BTreeMap<&str, Phases> {
        let mut phases_by_client: BTreeMap<&str, Phases> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.outcome.as_deref() == Some("done")) {
            let Some(ended_s) = job.ended_s else { continue };
            let times = [job.known_s, job.queued_s, job.started_s, ended_s];
            let [known, queued, from, to] = times.map(|time| time - self.zero_s);
            let (phases, done) =
                (phases_by_client.entry(&job.client).or_default(), Some(RecordedJob { queued, from, to }));
            if matches!(job.phase.as_str(), "offline" | "online") {
                phases.known.get_or_insert(known);
            }
            match job.phase.as_str() {
                "offline" => phases.offline = done,
                "online" => phases.online = done,
                _ => {}
            }
        }
        phases_by_client
    }
}

/// Polls until `is_over`, and then until no job runs. `start` is the beginning of the cell.
pub fn watch(interface: &Control, start: Instant, is_over: &AtomicBool) -> anyhow::Result<Watched> {
    let (mut watched, mut over_since) = (Watched::new(), None);
    loop {
        if is_over.load(Ordering::Acquire) {
            over_since.get_or_insert_with(Instant::now);
        }
        let asked_s = seconds(start);
        let answer = interface.get("/v1/status")?;
        let status = serde_json::from_value(answer).context("the server's status")?;
        watched.add_status(status, asked_s, seconds(start));
        if let Some(since) = over_since {
            if !watched.last_ran {
                return Ok(watched);
            }
            let seconds = SETTLE_TIMEOUT.as_secs();
            anyhow::ensure!(since.elapsed() < SETTLE_TIMEOUT, "a job still runs {seconds} s after the last answer");
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        let until = Instant::now() + STATUS_INTERVAL;
        while Instant::now() < until && !is_over.load(Ordering::Acquire) {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Seconds since the start; negative before it.
fn seconds(start: Instant) -> f64 {
    let now = Instant::now();
    match now.checked_duration_since(start) {
        Some(after) => after.as_secs_f64(),
        None => -start.duration_since(now).as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_are_on_the_clock_of_the_fastest_request() {
        let job = |id: u64, phase: &str, outcome: Option<&str>, ended: Option<f64>| json!({"id": id, "phase": phase, "client": "ab", "known_s": 9.5, "queued_s": 10.0, "started_s": 11.0, "ended_s": ended, "outcome": outcome});
        let status = |uptime: f64, jobs: serde_json::Value| -> Status {
            serde_json::from_value(json!({"uptime_s": uptime, "jobs": jobs})).unwrap()
        };
        let mut watched = Watched::new();
        // The cell starts at the server's second 10. The first request is slow, and gives a wrong
        // offset.
        watched.add_status(
            status(13.9, json!([job(1, "setup", Some("done"), Some(10.5)), job(2, "offline", None, None)])),
            2.0,
            4.0,
        );
        assert!(watched.last_ran);
        watched.add_status(status(15.0, json!([job(2, "offline", Some("done"), Some(12.0))])), 4.99, 5.01);
        assert!(!watched.last_ran);
        watched.add_status(status(19.5, json!([job(3, "online", Some("refused"), Some(13.0))])), 8.0, 10.0);
        let phases = watched.phases();
        let Phases { known: Some(known), offline: Some(offline), online: None } = phases["ab"] else {
            panic!("{:?}", phases["ab"])
        };
        assert!((offline.queued - 0.0).abs() < 1e-9);
        assert!((offline.from - 1.0).abs() < 1e-9);
        assert!((offline.to - 2.0).abs() < 1e-9);
        assert!((known + 0.5).abs() < 1e-9);
        assert_eq!((watched.jobs.len(), watched.last.uptime_s), (3, 19.5));
    }
}
