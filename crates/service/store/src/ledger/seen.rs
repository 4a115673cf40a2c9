//! The last use of a folder. It reveals a clock that has jumped before any material expires by that
//! clock.
use super::{Ledger, now};
use crate::StoreError;
use crate::clock::JUMP;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

const DAY: u64 = 24 * 3600;

/// The last use of a folder, and the time since.
pub(super) struct Seen {
    /// Seconds since 1970.
    at: i64,
    since: Instant,
    /// Whether this process recorded it.
    is_own: bool,
}

impl Seen {
    /// The last use by an earlier process.
    pub(super) fn before(at: i64) -> Self {
        Self { at, since: Instant::now(), is_own: false }
    }

    /// The time that a correct clock shows now, by this process's own monotonic clock.
    fn expected(&self) -> i64 {
        self.at.saturating_add_unsigned(self.since.elapsed().as_secs())
    }
}

impl Ledger {
    /// Checks that the clock is close to its expected time, from the last use of the folder and the
    /// time since in this process. Records the time if so.
    pub(crate) fn check_clock(&self) -> Result<(), StoreError> {
        let (now, expected) = (now()?, self.seen().expected());
        if now.abs_diff(expected) <= JUMP.as_secs() {
            return self.note_clock(now);
        }
        let folder = self.path.parent().expect("a ledger's path is its folder and its name").to_owned();
        let days = now.abs_diff(expected) / DAY;
        Err(StoreError::ClockJump { folder, days, way: if now > expected { "after" } else { "before" } })
    }

    /// Accepts the clock, whatever the folder's last use.
    pub(crate) fn accept_clock(&self) -> Result<(), StoreError> {
        self.note_clock(now()?)
    }

    /// Records the clock's time unless the clock has jumped while this process runs.
    pub(crate) fn settle_clock(&self) -> Result<(), StoreError> {
        let is_own = self.seen().is_own;
        match is_own {
            false => self.accept_clock(),
            true => self.check_clock().or_else(|e| if e.is_of_clock() { Ok(()) } else { Err(e) }),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_clock(&self, now: i64) -> Result<(), StoreError> {
        let mut seen = self.seen();
        // Writes nothing if the time was recorded within the hour.
        if seen.at.abs_diff(now) >= 3600 {
            self.write(|tx| tx.execute("UPDATE clock SET seen = ?", [now]).map(|_| Ok(())))?;
            seen.at = now;
            seen.since = Instant::now();
        }
        seen.is_own = true;
        Ok(())
    }
}
