//! Limits the memory for making client halves, over all parties and for each party.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The party of a request.
type Party = [u8; 32];

/// The memory that client halves may take, in bytes.
pub(super) struct Room {
    /// Most bytes of all parties, and of one.
    most: [u64; 2],
    /// Longest wait of a request for others to end.
    patience: Duration,
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Default)]
struct Held {
    all: u64,
    parties: HashMap<Party, u64>,
}

/// Reserved memory, until it is dropped.
pub(super) struct Taken<'a> {
    room: &'a Room,
    party: Party,
    bytes: u64,
}

impl Room {
    pub(super) fn new(most: [u64; 2], patience: Duration) -> Self {
        Self { most, patience, held: Mutex::default(), freed: Condvar::new() }
    }

    /// Locks the sums. A poisoned lock is safe to use: no operation under it leaves the sums half
    /// changed.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `bytes` may be reserved. A half above a limit is allowed while no other half is
    /// made.
    fn fits(&self, held: &Held, party: &Party, bytes: u64) -> bool {
        let own = held.parties.get(party).copied().unwrap_or(0);
        let each = [(held.all, self.most[0]), (own, self.most[1])];
        each.into_iter().all(|(held, most)| held == 0 || held.saturating_add(bytes) <= most)
    }

    /// Reserves `bytes` bytes; `None` if others hold the memory for too long.
    pub(super) fn take(&self, party: Party, bytes: u64) -> Option<Taken<'_>> {
        let until = Instant::now() + self.patience;
        let mut held = self.held();
        while !self.fits(&held, &party, bytes) {
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            held = self.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        held.all = held.all.saturating_add(bytes);
        let own = held.parties.entry(party).or_default();
        *own = own.saturating_add(bytes);
        Some(Taken { room: self, party, bytes })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = self.room.held();
        held.all = held.all.saturating_sub(self.bytes);
        if let Some(own) = held.parties.get_mut(&self.party) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                held.parties.remove(&self.party);
            }
        }
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_over_all_and_for_each() {
        let room = Room::new([100, 40], Duration::ZERO);
        let [a, b, c] = [[1; 32], [2; 32], [3; 32]];
        let first = room.take(a, 30).unwrap();
        assert!(room.take(a, 20).is_none(), "more than its part");
        let second = room.take(a, 10).unwrap();
        let large = room.take(b, 55).expect("one half of a party is always taken, if there is room for it");
        assert!(room.take(c, 6).is_none(), "more than there is");
        drop((first, second));
        let third = room.take(c, 40).unwrap();
        assert!(room.take(a, 6).is_none());
        drop((large, third));
        assert!(room.held().parties.is_empty());
        assert!(room.held().all == 0);
        let huge = room.take(a, 1000).expect("alone");
        assert!(room.take(b, 1).is_none());
        drop(huge);
        assert!(room.take(b, 1).is_some());
    }

    #[test]
    fn who_waits_is_woken() {
        let room = Room::new([10, 10], Duration::from_secs(600));
        let first = room.take([1; 32], 10).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| room.take([2; 32], 10).is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
    }
}
