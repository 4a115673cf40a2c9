//! When a folder was last used: by that, a clock that has jumped shows before anything expires by it.
use super::{Ledger, now};
use crate::StoreError;
use crate::clock::JUMP;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

const DAY: u64 = 24 * 3600;

/// When a folder was last used, and what has passed since.
pub(super) struct Seen {
    /// Seconds since 1970.
    at: i64,
    since: Instant,
    /// Whether it was this process.
    is_own: bool,
}

impl Seen {
    /// As it was left.
    pub(super) fn before(at: i64) -> Self {
        Self { at, since: Instant::now(), is_own: false }
    }

    /// What a clock should show now that runs as this process's own does.
    fn expected(&self) -> i64 {
        self.at.saturating_add_unsigned(self.since.elapsed().as_secs())
    }
}

impl Ledger {
    /// Whether the clock stands about where it should, by when the folder was last used and what has passed
    /// since in this process. Noted if so.
    pub(crate) fn check_clock(&self) -> Result<(), StoreError> {
        let (now, expected) = (now()?, self.seen().expected());
        if now.abs_diff(expected) <= JUMP.as_secs() {
            return self.note_clock(now);
        }
        let folder = self.path.parent().expect("a ledger's path is its folder and its name").to_owned();
        let days = now.abs_diff(expected) / DAY;
        Err(StoreError::ClockJump { folder, days, way: if now > expected { "after" } else { "before" } })
    }

    /// The clock is right, whatever it showed before.
    pub(crate) fn accept_clock(&self) -> Result<(), StoreError> {
        self.note_clock(now()?)
    }

    /// Notes what the clock shows where nothing is lost by it: but for a jump while this process runs.
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
        // Where that was noted within the hour, nothing is written.
        if seen.at.abs_diff(now) >= 3600 {
            self.write(|tx| tx.execute("UPDATE clock SET seen = ?", [now]).map(|_| Ok(())))?;
            seen.at = now;
            seen.since = Instant::now();
        }
        seen.is_own = true;
        Ok(())
    }
}
