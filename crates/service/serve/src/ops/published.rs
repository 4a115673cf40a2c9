//! The server's status, for other threads of the process.
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Clone, Copy, Default)]
pub(crate) struct Status {
    pub(crate) connections: usize,
    pub(crate) served: u64,
    pub(crate) ended: bool,
}

/// A [`Status`] that can be waited for without a runtime.
#[derive(Default)]
pub(crate) struct Published {
    status: Mutex<Status>,
    changed: Condvar,
}

impl Published {
    fn lock(&self) -> MutexGuard<'_, Status> {
        // A status is replaced as a whole, so a poisoned lock is usable.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Status {
        *self.lock()
    }

    pub(crate) fn set(&self, status: Status) {
        *self.lock() = status;
        self.changed.notify_all();
    }

    /// Waits until the server has ended, for `timeout` at most.
    pub(crate) fn wait_end(&self, timeout: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |status| !status.ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
