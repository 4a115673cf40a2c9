//! How a dealer ends: it takes no more orders, but what it has just dealt may still be fetched.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_backends::seam::Ticket;

/// How long a dealer that stops waits for the client of a material: whoever has not come by then does not.
const FETCH: Duration = Duration::from_secs(30);

/// Whether a dealer ends, and what it still waits for.
#[derive(Default)]
pub(super) struct Ending {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When it waits no more, once it was told to stop.
    cut_at: Option<Instant>,
    /// Requests that are being answered.
    running: usize,
    /// Materials whose clients have not said that they have their half, and since when all is dealt.
    dealt: HashMap<Ticket, Option<Instant>>,
}

impl State {
    fn forget_old(&mut self, now: Instant) {
        self.dealt.retain(|_, at| at.is_none_or(|at| now.saturating_duration_since(at) < FETCH));
    }
}

impl Ending {
    /// Nothing that happens under the lock leaves the state half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells it to stop, after this time at the latest. Told again, it only becomes more urgent.
    pub(super) fn stop(&self, grace: Duration) {
        let (mut state, at) = (self.state(), Instant::now() + grace);
        state.cut_at = Some(state.cut_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether it was told to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.state().cut_at.is_some()
    }

    /// Whether it was told to stop, and waits for nothing more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.forget_old(now);
        state.cut_at.is_some_and(|at| at <= now || (state.running == 0 && state.dealt.is_empty()))
    }

    /// A request is being answered, until what this gives is dropped.
    pub(super) fn begin(&self) -> Running<'_> {
        self.state().running += 1;
        Running(self)
    }

    /// A server is sent its half of this material, as a request; its client may come for the other one.
    pub(super) fn dealing(&self, ticket: Ticket) {
        let mut state = self.state();
        state.forget_old(Instant::now());
        state.dealt.insert(ticket, None);
    }

    /// The server has its half: if its client has not been there, it comes.
    pub(super) fn dealt(&self, ticket: &Ticket) {
        if let Some(at) = self.state().dealt.get_mut(ticket) {
            *at = Some(Instant::now());
        }
    }

    /// Nobody will come for this material any more.
    pub(super) fn settled(&self, ticket: &Ticket) {
        self.state().dealt.remove(ticket);
    }
}

/// A request that is being answered.
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
    fn it_ends_when_nothing_runs_and_nothing_fresh_is_left_to_fetch() {
        let (ending, now) = (Ending::default(), Instant::now());
        assert!(!ending.is_over(now) && !ending.is_stopping());
        let running = ending.begin();
        for ticket in [[1; 32], [2; 32], [3; 32]] {
            ending.dealing(ticket);
        }
        // Its client was there before the server had all of its half.
        ending.settled(&[3; 32]);
        ending.dealt(&[3; 32]);
        ending.dealt(&[2; 32]);
        ending.dealt(&[1; 32]);
        ending.stop(Duration::from_secs(3600));
        assert!(ending.is_stopping() && !ending.is_over(now));
        ending.settled(&[1; 32]);
        drop(running);
        assert!(!ending.is_over(now), "one material is not fetched");
        assert!(ending.is_over(now + 2 * FETCH), "nobody comes for it any more");
        ending.settled(&[2; 32]);
        assert!(ending.is_over(now));
        let _running = ending.begin();
        assert!(!ending.is_over(now));
        ending.stop(Duration::ZERO);
        assert!(ending.is_over(Instant::now()), "a second word ends the grace");
        ending.stop(Duration::from_secs(3600));
        assert!(ending.is_over(Instant::now()), "which nothing gives back");
    }
}
