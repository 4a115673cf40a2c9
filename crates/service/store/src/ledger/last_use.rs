//! The last use of a folder. It reveals a clock that has jumped before any material expires by that
//! clock.
use super::schema::folder_of;
use super::{Ledger, now};
use crate::StoreError;
use crate::clock::MAX_CLOCK_JUMP;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

const DAY: u64 = 24 * 3600;

/// The last use of a folder, and the time since.
pub(super) struct LastUse {
    /// Seconds since 1970.
    seconds: i64,
    /// When that time was read or recorded, by the monotonic clock.
    noted: Instant,
    /// Whether this process recorded it.
    is_own: bool,
}

impl LastUse {
    pub(super) fn by_earlier_process(seconds: i64) -> Self {
        Self { seconds, noted: Instant::now(), is_own: false }
    }

    /// The time that a correct clock shows now, by this process's own monotonic clock.
    fn expected(&self) -> i64 {
        self.seconds.saturating_add_unsigned(self.noted.elapsed().as_secs())
    }
}

impl Ledger {
    /// Checks that the clock is close to its expected time. Records the time if so.
    pub(crate) fn check_clock(&self) -> Result<(), StoreError> {
        let (now, expected) = (now()?, self.last_use().expected());
        if now.abs_diff(expected) <= MAX_CLOCK_JUMP.as_secs() {
            return self.note_clock(now);
        }
        let folder = folder_of(&self.path);
        let days = now.abs_diff(expected) / DAY;
        Err(StoreError::ClockJump { folder, days, way: if now > expected { "after" } else { "before" } })
    }

    pub(crate) fn accept_clock(&self) -> Result<(), StoreError> {
        self.note_clock(now()?)
    }

    /// Records the clock's time unless the clock has jumped while this process runs.
    pub(crate) fn settle_clock(&self) -> Result<(), StoreError> {
        let is_own = self.last_use().is_own;
        if !is_own {
            return self.accept_clock();
        }
        match self.check_clock() {
            Err(StoreError::ClockJump { .. }) => Ok(()),
            result => result,
        }
    }

    fn last_use(&self) -> MutexGuard<'_, LastUse> {
        self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_clock(&self, now: i64) -> Result<(), StoreError> {
        let mut last_use = self.last_use();
        // Writes nothing if the time was recorded within the hour.
        if last_use.seconds.abs_diff(now) >= 3600 {
            self.write(|tx| tx.execute("UPDATE clock SET seen = ?", [now]).map(|_| Ok(())))?;
            last_use.seconds = now;
            last_use.noted = Instant::now();
        }
        last_use.is_own = true;
        Ok(())
    }
}
