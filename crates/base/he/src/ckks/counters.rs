//! Counts of operations, for tests and cost tables.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the context was made. They order nothing, so they are relaxed.
#[derive(Default)]
pub struct Counters {
    ntts: AtomicU64,
    key_switches: AtomicU64,
    key_bytes: AtomicU64,
}

/// A reading of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Transforms of N words mod one prime, both directions.
    pub ntts: u64,
    /// Inner products of digits with a key.
    pub key_switches: u64,
    /// Bytes of keys that these products read, as in memory.
    pub key_bytes: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            ntts: self.ntts - earlier.ntts,
            key_switches: self.key_switches - earlier.key_switches,
            key_bytes: self.key_bytes - earlier.key_bytes,
        }
    }
}

impl Counters {
    /// Reads the counts.
    pub fn read(&self) -> Counts {
        Counts {
            ntts: self.ntts.load(Relaxed),
            key_switches: self.key_switches.load(Relaxed),
            key_bytes: self.key_bytes.load(Relaxed),
        }
    }

    pub(super) fn count_ntts(&self, ntts: usize) {
        self.ntts.fetch_add(ntts as u64, Relaxed);
    }

    pub(super) fn count_key_switch(&self, key_bytes: usize) {
        self.key_switches.fetch_add(1, Relaxed);
        self.key_bytes.fetch_add(key_bytes as u64, Relaxed);
    }
}
