//! The end of a dealer: it refuses orders, but clients may still fetch what was just dealt.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_backends::seam::Ticket;

/// How long a stopping dealer waits for the client to fetch a material.
const FETCH_TIME: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Ending {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When waiting ends; `None` until `stop`.
    cut_at: Option<Instant>,
    running: usize,
    /// Materials whose clients have not confirmed their half, with the time when the server had its
    /// half.
    dealt: HashMap<Ticket, Option<Instant>>,
}

impl State {
    fn forget_old(&mut self, now: Instant) {
        self.dealt
            .retain(|_, dealt_at| dealt_at.is_none_or(|dealt_at| now.saturating_duration_since(dealt_at) < FETCH_TIME));
    }
}

impl Ending {
    /// Locks the state. A panic under the lock leaves no half-made change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the dealer after `grace` at the latest. A later call can only shorten the time.
    pub(super) fn stop(&self, grace: Duration) {
        let (mut state, end) = (self.state(), Instant::now() + grace);
        state.cut_at = Some(state.cut_at.map_or(end, |earlier| earlier.min(end)));
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().cut_at.is_some()
    }

    /// Whether the dealer was told to stop and waits for nothing more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.forget_old(now);
        state.cut_at.is_some_and(|end| end <= now || (state.running == 0 && state.dealt.is_empty()))
    }

    /// Counts a request as running until the result is dropped.
    pub(super) fn begin(&self) -> Running<'_> {
        self.state().running += 1;
        Running(self)
    }

    /// Adds a material whose client may fetch its half. The dealer waits for that without a limit until
    /// [`start_fetch_time`](Self::start_fetch_time).
    pub(super) fn add_pending(&self, ticket: Ticket) {
        let mut state = self.state();
        state.forget_old(Instant::now());
        state.dealt.insert(ticket, None);
    }

    /// Starts the client's [`FETCH_TIME`], once the server has its half.
    pub(super) fn start_fetch_time(&self, ticket: &Ticket) {
        if let Some(dealt_at) = self.state().dealt.get_mut(ticket) {
            *dealt_at = Some(Instant::now());
        }
    }

    pub(super) fn remove_pending(&self, ticket: &Ticket) {
        self.state().dealt.remove(ticket);
    }
}

pub(super) struct Running<'a>(&'a Ending);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_nothing_runs_and_nothing_is_left_to_fetch() {
        let (ending, now) = (Ending::default(), Instant::now());
        assert!(!ending.is_over(now));
        assert!(!ending.is_stopping());
        let running = ending.begin();
        for ticket in [[1; 32], [2; 32], [3; 32]] {
            ending.add_pending(ticket);
        }
        // This client fetched its half before the server had all of the other.
        ending.remove_pending(&[3; 32]);
        ending.start_fetch_time(&[3; 32]);
        ending.start_fetch_time(&[2; 32]);
        ending.start_fetch_time(&[1; 32]);
        ending.stop(Duration::from_secs(3600));
        assert!(ending.is_stopping());
        assert!(!ending.is_over(now));
        ending.remove_pending(&[1; 32]);
        drop(running);
        assert!(!ending.is_over(now), "one material is not fetched");
        assert!(ending.is_over(now + 2 * FETCH_TIME), "nobody comes for it any more");
        ending.remove_pending(&[2; 32]);
        assert!(ending.is_over(now));
        let _running = ending.begin();
        assert!(!ending.is_over(now));
        ending.stop(Duration::ZERO);
        assert!(ending.is_over(Instant::now()));
        ending.stop(Duration::from_secs(3600));
        assert!(ending.is_over(Instant::now()), "a later call does not extend the grace");
    }
}
