//! How far a client's phases are, for whoever shows it: begin and end of each are kept until they are asked
//! for, and in between the bytes that have moved tell.
use crate::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tacit_backends::Costs;
use tacit_net::Phase;

/// Most of a phase that is told before it has ended.
const ALMOST: f64 = 0.99;

/// A phase, and how much of it is done: 0 when it begins, 1 when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Which phase.
    pub phase: Phase,
    /// From 0 to 1.
    pub fraction: f64,
}

/// What one thread of a client notes and another shows ([`Client::set_progress`]).
#[derive(Default)]
pub struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    ended: Vec<Step>,
    /// Jobs that wait at the server, while the turn of a phase has not come.
    queued: Option<u32>,
    /// By phase: two connections may run one each, of one call.
    running: [Option<Running>; 3],
}

struct Running {
    phase: Phase,
    moved: Arc<AtomicU64>,
    from: u64,
    /// Bytes of it that the server had already.
    spared: Arc<AtomicU64>,
    expected: u64,
    told: f64,
}

impl Running {
    fn fraction(&self) -> f64 {
        let moved = self.moved.load(Ordering::Relaxed).saturating_sub(self.from);
        let done = moved.saturating_add(self.spared.load(Ordering::Relaxed));
        (done as f64 / self.expected.max(1) as f64).min(ALMOST)
    }
}

impl Client {
    /// Where this connection notes from now on how far its phases are; nowhere with `None`.
    pub fn set_progress(&mut self, progress: Option<Arc<Progress>>) {
        self.progress = progress;
    }

    /// Where it notes that.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A phase begins, on a connection that counts what it moves and what it need not, of a model with these
    /// costs.
    pub(crate) fn begins(&self, phase: Phase, [moved, spared]: [Arc<AtomicU64>; 2], costs: &Costs) {
        let expected = match phase {
            Phase::Setup => costs.setup.bytes(),
            Phase::Offline => costs.offline.bytes(),
            Phase::Online => costs.online.bytes(),
        };
        let from = moved.load(Ordering::Relaxed);
        spared.store(0, Ordering::Relaxed);
        let mut state = self.lock();
        state.queued = None;
        state.ended.push(Step { phase, fraction: 0.0 });
        state.running[phase as usize] = Some(Running { phase, moved, from, spared, expected, told: 0.0 });
    }

    /// The next phase waits for its turn, as so many jobs do at the server.
    pub(crate) fn waits(&self, queued: u32) {
        self.lock().queued = Some(queued);
    }

    /// How many jobs wait at the server, by its word, where a phase has to wait for its turn.
    #[must_use]
    pub fn queued(&self) -> Option<u32> {
        self.lock().queued
    }

    /// A phase has ended, or has failed and is over.
    pub(crate) fn ends(&self, phase: Phase, is_done: bool) {
        let mut state = self.lock();
        state.queued = None;
        if state.running[phase as usize].take().is_some() && is_done {
            state.ended.push(Step { phase, fraction: 1.0 });
        }
    }

    /// The phases that run now, and how much of each is done.
    #[must_use]
    pub fn now(&self) -> Vec<Step> {
        let step = |running: &Running| Step { phase: running.phase, fraction: running.fraction() };
        self.lock().running.iter().flatten().map(step).collect()
    }

    /// What has come to pass since the last time, in order; fractions of a phase do not fall.
    #[must_use]
    pub fn take(&self) -> Vec<Step> {
        let mut state = self.lock();
        let mut steps = std::mem::take(&mut state.ended);
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
    fn a_phase_is_told_from_begin_to_end_and_never_falls() {
        let (progress, moved) = (Progress::default(), Arc::new(AtomicU64::new(50)));
        let spared = Arc::new(AtomicU64::new(9));
        let counted = || [moved.clone(), spared.clone()];
        let step = |phase, fraction| Step { phase, fraction };
        assert!(progress.take().is_empty());
        let mut costs = Costs::default();
        costs.offline.up_bytes = 100;
        progress.begins(Phase::Offline, counted(), &costs);
        assert_eq!(progress.take(), [step(Phase::Offline, 0.0)]);
        moved.store(60, Ordering::Relaxed);
        spared.store(15, Ordering::Relaxed);
        assert_eq!(progress.now(), [step(Phase::Offline, 0.25)]);
        assert_eq!(progress.take(), [step(Phase::Offline, 0.25)]);
        assert!(progress.take().is_empty(), "nothing has moved");
        // More than was expected is not the end.
        moved.store(500, Ordering::Relaxed);
        assert_eq!(progress.take(), [step(Phase::Offline, ALMOST)]);
        progress.ends(Phase::Offline, true);
        progress.waits(7);
        assert_eq!(progress.queued(), Some(7));
        progress.begins(Phase::Online, counted(), &costs);
        assert_eq!(progress.queued(), None, "its turn has come");
        progress.ends(Phase::Online, false);
        assert!(progress.now().is_empty());
        assert_eq!(progress.take(), [step(Phase::Offline, 1.0), step(Phase::Online, 0.0)], "it failed");
        assert!(progress.take().is_empty());
    }
}
