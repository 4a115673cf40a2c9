//! Stopping: jobs may continue for the grace, then they are cut.
use super::Driver;
use crate::jobs::event::Decision;
use crate::jobs::job::Job;
use std::time::{Duration, Instant};
use tacit_admission::ConnectionId;
use tokio::sync::watch;

/// How long cut connections have to end.
const AFTER_CUT: Duration = Duration::from_secs(5);

pub(super) struct Ending {
    pub(super) stopping: Option<Stopping>,
    pub(super) given_up: bool,
    /// Becomes true when the server stops.
    pub(super) stop: watch::Sender<bool>,
}

/// When a stopping server cuts running jobs, and whether it has.
#[derive(Clone, Copy)]
pub(super) struct Stopping {
    cut_at: Instant,
    is_cut: bool,
}

impl Driver {
    pub(super) fn has_ended(&self) -> bool {
        let all_gone = self.connections.is_empty() && self.connection_count() == 0;
        self.ending.given_up || (self.ending.stopping.is_some() && all_gone)
    }

    pub(super) fn stopping_alarm(&self) -> Option<Instant> {
        self.ending.stopping.map(|s| if s.is_cut { s.cut_at + AFTER_CUT } else { s.cut_at })
    }

    /// Cuts connections when the grace is over, and gives up on them `AFTER_CUT` later.
    pub(super) fn cut_when_due(&mut self, now: Instant) {
        if self.stopping_alarm().is_some_and(|time| time <= now) {
            match &mut self.ending.stopping {
                Some(stopping) if !stopping.is_cut => {
                    stopping.is_cut = true;
                    self.connections.values().for_each(|c| c.closer.close());
                }
                _ => self.ending.given_up = true,
            }
        }
    }

    /// Starts no more jobs, and cuts those that still run after `grace`.
    pub(super) fn stop(&mut self, grace: Duration) {
        let cut_at = Instant::now() + grace;
        // A repeated stop can only shorten the grace.
        if self.ending.stopping.is_none_or(|s| !s.is_cut && cut_at < s.cut_at) {
            self.ending.stopping = Some(Stopping { cut_at, is_cut: false });
        }
        self.pools.close();
        self.ending.stop.send_replace(true);
        let waiting: Vec<ConnectionId> = self
            .work
            .jobs
            .iter()
            .filter(|(_, job)| !matches!(job, Job::Runs { .. }))
            .map(|(&number, _)| number)
            .collect();
        for number in waiting {
            if let Some(ask) = self.end_job(number) {
                let _ = ask.reply.send(Decision::Close);
            }
        }
    }
}
