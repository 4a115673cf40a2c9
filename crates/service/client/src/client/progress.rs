//! Progress of a client's phases, for display. Begin and end of each phase are stored until they
//! are read; in between, the moved bytes give the fraction.
use crate::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tacit_backends::Costs;
use tacit_net::Phase;

/// Largest fraction that is reported before a phase has ended.
const MAX_RUNNING_FRACTION: f64 = 0.99;

/// A phase and its progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The phase.
    pub phase: Phase,
    /// From 0 when it begins to 1 when it has ended.
    pub fraction: f64,
}

/// Progress that one thread of a client records and another shows ([`Client::set_progress`]).
#[derive(Default)]
pub struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// Begins and ends that [`Progress::take`] has not returned yet.
    unread: Vec<Step>,
    /// Jobs that wait at the server, while a phase waits for its turn.
    queued: Option<u32>,
    /// Running phases, by phase: two connections of one call may run one each.
    running: [Option<Running>; 3],
}

struct Running {
    phase: Phase,
    moved: Arc<AtomicU64>,
    from: u64,
    /// Bytes of the phase that were not sent because the server already had them.
    spared: Arc<AtomicU64>,
    expected: u64,
    told: f64,
}

impl Running {
    fn fraction(&self) -> f64 {
        let moved = self.moved.load(Ordering::Relaxed).saturating_sub(self.from);
        let done = moved.saturating_add(self.spared.load(Ordering::Relaxed));
        (done as f64 / self.expected.max(1) as f64).min(MAX_RUNNING_FRACTION)
    }
}

impl Client {
    /// Records the progress of this connection's phases in `progress`; `None` ends that.
    pub fn set_progress(&mut self, progress: Option<Arc<Progress>>) {
        self.progress = progress;
    }

    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begins(&self, phase: Phase, moved: Arc<AtomicU64>, spared: Arc<AtomicU64>, costs: &Costs) {
        let expected = match phase {
            Phase::Setup => costs.setup.bytes(),
            Phase::Offline => costs.offline.bytes(),
            Phase::Online => costs.online.bytes(),
        };
        let from = moved.load(Ordering::Relaxed);
        spared.store(0, Ordering::Relaxed);
        let mut state = self.lock();
        state.queued = None;
        state.unread.push(Step { phase, fraction: 0.0 });
        state.running[phase as usize] = Some(Running { phase, moved, from, spared, expected, told: 0.0 });
    }

    pub(crate) fn waits(&self, queued: u32) {
        self.lock().queued = Some(queued);
    }

    /// Jobs that wait at the server; `None` unless a phase waits for its turn.
    #[must_use]
    pub fn queued(&self) -> Option<u32> {
        self.lock().queued
    }

    pub(crate) fn ends(&self, phase: Phase, is_done: bool) {
        let mut state = self.lock();
        state.queued = None;
        if state.running[phase as usize].take().is_some() && is_done {
            state.unread.push(Step { phase, fraction: 1.0 });
        }
    }

    /// The running phases and their progress.
    #[must_use]
    pub fn now(&self) -> Vec<Step> {
        let state = self.lock();
        let running = state.running.iter().flatten();
        running.map(|running| Step { phase: running.phase, fraction: running.fraction() }).collect()
    }

    /// Steps since the last call, in order; the fraction of a phase never falls.
    #[must_use]
    pub fn take(&self) -> Vec<Step> {
        let mut state = self.lock();
        let mut steps = std::mem::take(&mut state.unread);
        for running in state.running.iter_mut().flatten() {
            let fraction = running.fraction();
            if fraction > running.told {
                running.told = fraction;
                steps.push(Step { phase: running.phase, fraction });
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_never_falls() {
        let (progress, moved) = (Progress::default(), Arc::new(AtomicU64::new(50)));
        let spared = Arc::new(AtomicU64::new(9));
        let offline = |fraction| Step { phase: Phase::Offline, fraction };
        assert!(progress.take().is_empty());
        let mut costs = Costs::default();
        costs.offline.up_bytes = 100;
        progress.begins(Phase::Offline, moved.clone(), spared.clone(), &costs);
        assert_eq!(progress.take(), [offline(0.0)]);
        moved.store(60, Ordering::Relaxed);
        spared.store(15, Ordering::Relaxed);
        assert_eq!(progress.now(), [offline(0.25)]);
        assert_eq!(progress.take(), [offline(0.25)]);
        assert!(progress.take().is_empty());
        // Moving more bytes than expected does not end the phase.
        moved.store(500, Ordering::Relaxed);
        assert_eq!(progress.take(), [offline(MAX_RUNNING_FRACTION)]);
        progress.ends(Phase::Offline, true);
        progress.waits(7);
        assert_eq!(progress.queued(), Some(7));
        progress.begins(Phase::Online, moved, spared, &costs);
        assert_eq!(progress.queued(), None);
        // The phase fails.
        progress.ends(Phase::Online, false);
        assert!(progress.now().is_empty());
        assert_eq!(progress.take(), [offline(1.0), Step { phase: Phase::Online, fraction: 0.0 }]);
        assert!(progress.take().is_empty());
    }
}
