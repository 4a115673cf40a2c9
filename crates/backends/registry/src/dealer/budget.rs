//! Limits the memory for making client halves, over all parties and for each party.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Party = [u8; 32];

/// The memory that client halves may take, in bytes.
pub(super) struct MemoryBudget {
    limit: u64,
    /// The limit for each party.
    party_limit: u64,
    /// Longest wait of a request for others to end.
    patience: Duration,
    held: Mutex<Held>,
    /// Signals that a reservation ended.
    freed: Condvar,
}

#[derive(Default)]
struct Held {
    /// Over all parties.
    total: u64,
    parties: HashMap<Party, u64>,
}

pub(super) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    party: Party,
    bytes: u64,
}

impl MemoryBudget {
    pub(super) fn new(limit: u64, party_limit: u64, patience: Duration) -> Self {
        Self { limit, party_limit, patience, held: Mutex::default(), freed: Condvar::new() }
    }

    /// Locks the sums. A poisoned lock is safe to use: no operation under it leaves the sums half
    /// changed.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `bytes` may be reserved. A half above a limit is allowed while no other half is
    /// made.
    fn fits(&self, held: &Held, party: &Party, bytes: u64) -> bool {
        let party_bytes = held.parties.get(party).copied().unwrap_or(0);
        let sums = [(held.total, self.limit), (party_bytes, self.party_limit)];
        sums.into_iter().all(|(held, limit)| held == 0 || held.saturating_add(bytes) <= limit)
    }

    /// Reserves `bytes` bytes; `None` if others hold the memory for too long.
    pub(super) fn reserve(&self, party: Party, bytes: u64) -> Option<Reservation<'_>> {
        let deadline = Instant::now() + self.patience;
        let mut held = self.held();
        while !self.fits(&held, &party, bytes) {
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            held = self.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        held.total = held.total.saturating_add(bytes);
        let party_bytes = held.parties.entry(party).or_default();
        *party_bytes = party_bytes.saturating_add(bytes);
        Some(Reservation { budget: self, party, bytes })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut held = self.budget.held();
        held.total = held.total.saturating_sub(self.bytes);
        if let Some(party_bytes) = held.parties.get_mut(&self.party) {
            *party_bytes = party_bytes.saturating_sub(self.bytes);
            if *party_bytes == 0 {
                held.parties.remove(&self.party);
            }
        }
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_over_all_parties_and_for_each() {
        let budget = MemoryBudget::new(100, 40, Duration::ZERO);
        let [a, b, c] = [[1; 32], [2; 32], [3; 32]];
        let first = budget.reserve(a, 30).unwrap();
        assert!(budget.reserve(a, 20).is_none(), "more than its part");
        let second = budget.reserve(a, 10).unwrap();
        let large = budget.reserve(b, 55).expect("one half of a party is always taken, if there is room for it");
        assert!(budget.reserve(c, 6).is_none(), "more than there is");
        drop((first, second));
        let third = budget.reserve(c, 40).unwrap();
        assert!(budget.reserve(a, 6).is_none());
        drop((large, third));
        assert!(budget.held().parties.is_empty());
        assert!(budget.held().total == 0);
        let huge = budget.reserve(a, 1000).expect("alone");
        assert!(budget.reserve(b, 1).is_none());
        drop(huge);
        assert!(budget.reserve(b, 1).is_some());
    }

    #[test]
    fn a_waiting_request_is_woken() {
        let budget = MemoryBudget::new(10, 10, Duration::from_secs(600));
        let first = budget.reserve([1; 32], 10).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.reserve([2; 32], 10).is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
    }
}
