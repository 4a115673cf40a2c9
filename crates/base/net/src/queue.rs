//! A bounded queue of byte chunks between one producer and one consumer thread.
use crate::transport::{allowed_wait, timed_out};
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a party may write without blocking before its peer reads anything.
pub const QUEUE_BYTES: usize = 128 << 20;

/// How often a party that waits for its peer to read checks whether the peer is still there.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Consumed chunks, for the producer to free.
    spent: Vec<Vec<u8>>,
    /// Whether the consumer holds a chunk that it has not reported done.
    busy: bool,
    closed: bool,
    error: Option<(io::ErrorKind, String)>,
}

impl State {
    /// Whether a push would return at once, with success or with an error.
    fn is_push_ready(&self) -> bool {
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

    /// Waits until `ready` returns true; false if `timeout` ended first.
    fn wait(&self, timeout: Duration, ready: impl Fn(&State) -> bool) -> (MutexGuard<'_, State>, bool) {
        let end = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if ready(&state) {
                return (state, true);
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return (state, false);
            }
            state = self.changed.wait_timeout(state, remaining).map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
        }
    }

    /// Waits until a push would return at once; false if `timeout` ended first.
    pub(crate) fn has_room(&self, timeout: Duration) -> bool {
        self.wait(timeout, State::is_push_ready).1
    }

    /// Appends a chunk; waits while [`QUEUE_BYTES`] or more are queued.
    pub(crate) fn push(&self, chunk: Vec<u8>, timeout: Duration) -> io::Result<()> {
        let (mut state, in_time) = self.wait(timeout, State::is_push_ready);
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

    /// Returns a consumed chunk to the producer, which must free it: memory is counted by thread.
    pub(crate) fn return_chunk(&self, chunk: Vec<u8>) {
        let mut state = self.lock();
        state.busy = false;
        state.spent.push(chunk);
        self.changed.notify_all();
    }

    /// The chunks consumed since the last call, for the producer to free.
    pub(crate) fn take_spent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock().spent)
    }

    /// Whether nothing is queued or with the consumer; an error if the consumer failed.
    pub(crate) fn is_idle(&self) -> io::Result<bool> {
        let state = self.lock();
        state.check()?;
        Ok(state.chunks.is_empty() && !state.busy)
    }

    /// Waits until everything was consumed. An error if the consumer fails, makes no progress for
    /// `stall`, or is not done by the deadline. Calls `look` after each idle [`POLL_INTERVAL`]; its
    /// error ends the wait.
    pub(crate) fn settle(
        &self,
        stall: Duration,
        deadline: Option<Instant>,
        look: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut last_progress = Instant::now();
        loop {
            let timeout = allowed_wait(stall, deadline)?;
            let (bytes, busy) = {
                let state = self.lock();
                (state.bytes, state.busy)
            };
            let (state, in_time) = self.wait(timeout.min(POLL_INTERVAL), |s| {
                (s.chunks.is_empty() && !s.busy) || s.error.is_some() || s.bytes != bytes || s.busy != busy
            });
            state.check()?;
            if state.chunks.is_empty() && !state.busy {
                return Ok(());
            }
            drop(state);
            if in_time {
                last_progress = Instant::now();
            } else if last_progress.elapsed() >= timeout {
                return Err(timed_out(timeout));
            } else {
                look()?;
            }
        }
    }

    /// Waits until everything was consumed, the consumer failed, or `timeout` is over.
    pub(crate) fn drain(&self, timeout: Duration) {
        drop(self.wait(timeout, |s| s.error.is_some() || (s.chunks.is_empty() && !s.busy)));
    }

    /// Ends pushing; pops return the chunks that are left.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Notes that the consumer failed: later pushes report the error.
    pub(crate) fn fail(&self, error: &io::Error) {
        let mut state = self.lock();
        state.error = Some((error.kind(), error.to_string()));
        state.chunks.clear();
        state.bytes = 0;
        state.busy = false;
        self.changed.notify_all();
    }
}
