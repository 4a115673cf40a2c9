//! A bounded queue of byte chunks between one producer and one consumer thread.
use crate::transport::{allowed_wait, timed_out};
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes a party may write before its peer reads anything, without blocking.
pub const QUEUE_BYTES: usize = 128 << 20;

/// How often a party that waits for its peer to take something looks whether that is still there.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Consumed, and the producer's to free.
    spent: Vec<Vec<u8>>,
    /// The consumer holds a chunk that it has not reported done.
    busy: bool,
    closed: bool,
    error: Option<(io::ErrorKind, String)>,
}

impl State {
    /// Whether a chunk is taken, or refused at once.
    fn takes(&self) -> bool {
        self.bytes < QUEUE_BYTES || self.closed || self.error.is_some()
    }

    fn check(&self) -> io::Result<()> {
        match &self.error {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
pub(crate) struct ByteQueue {
    state: Mutex<State>,
    changed: Condvar,
}

impl ByteQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` says so; false if `timeout` ended first.
    fn wait(&self, timeout: Duration, ready: impl Fn(&State) -> bool) -> (MutexGuard<'_, State>, bool) {
        let end = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if ready(&state) {
                return (state, true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (state, false);
            }
            state = self.changed.wait_timeout(state, left).map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
        }
    }

    /// Waits until another chunk finds room, or pushing it says why not; false if `timeout` ended first.
    pub(crate) fn has_room(&self, timeout: Duration) -> bool {
        self.wait(timeout, State::takes).1
    }

    /// Appends a chunk, waiting while more than [`QUEUE_BYTES`] are queued.
    pub(crate) fn push(&self, chunk: Vec<u8>, timeout: Duration) -> io::Result<()> {
        let (mut state, in_time) = self.wait(timeout, State::takes);
        state.check()?;
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the peer is gone"));
        }
        if !in_time {
            return Err(timed_out(timeout));
        }
        state.bytes += chunk.len();
        state.chunks.push_back(chunk);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the next chunk; `None` when the queue is closed and empty.
    pub(crate) fn pop(&self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        let (mut state, in_time) = self.wait(timeout, |s| !s.chunks.is_empty() || s.closed);
        match state.chunks.pop_front() {
            Some(chunk) => {
                state.bytes -= chunk.len();
                state.busy = true;
                self.changed.notify_all();
                Ok(Some(chunk))
            }
            None if in_time => Ok(None),
            None => Err(timed_out(timeout)),
        }
    }

    /// The consumer has finished with the chunk it popped, which goes back to the producer: memory is counted
    /// by thread, and what one allocates and another frees would stay on the first one's account.
    pub(crate) fn done(&self, chunk: Vec<u8>) {
        let mut state = self.lock();
        state.busy = false;
        state.spent.push(chunk);
        self.changed.notify_all();
    }

    /// What was consumed since the last call, for the producer to free.
    pub(crate) fn spent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock().spent)
    }

    /// Nothing queued and nothing in the consumer's hands; an error if the consumer failed.
    pub(crate) fn idle(&self) -> io::Result<bool> {
        let state = self.lock();
        state.check()?;
        Ok(state.chunks.is_empty() && !state.busy)
    }

    /// Waits until everything was consumed, as long as the consumer gets on: an error if it fails, or does
    /// nothing for `stall`, or not all of it until the deadline. `look` is asked each time that nothing has
    /// moved for [`LOOK`], and ends the waiting with its error.
    pub(crate) fn settle(
        &self,
        stall: Duration,
        deadline: Option<Instant>,
        look: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut since = Instant::now();
        loop {
            let timeout = allowed_wait(stall, deadline)?;
            let (bytes, busy) = {
                let state = self.lock();
                (state.bytes, state.busy)
            };
            let moved = |s: &State| s.error.is_some() || s.bytes != bytes || s.busy != busy;
            let (state, in_time) = self.wait(timeout.min(LOOK), |s| (s.chunks.is_empty() && !s.busy) || moved(s));
            state.check()?;
            if state.chunks.is_empty() && !state.busy {
                return Ok(());
            }
            drop(state);
            if in_time {
                since = Instant::now();
            } else if since.elapsed() >= timeout {
                return Err(timed_out(timeout));
            } else {
                look()?;
            }
        }
    }

    /// Waits until everything was consumed, failed, or `timeout` is over.
    pub(crate) fn drain(&self, timeout: Duration) {
        drop(self.wait(timeout, |s| s.error.is_some() || (s.chunks.is_empty() && !s.busy)));
    }

    /// No more pushes; pops return what is left.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The consumer failed: later pushes report it.
    pub(crate) fn fail(&self, error: &io::Error) {
        let mut state = self.lock();
        state.error = Some((error.kind(), error.to_string()));
        state.chunks.clear();
        state.bytes = 0;
        state.busy = false;
        self.changed.notify_all();
    }
}
