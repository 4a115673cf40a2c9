//! Connections of authenticated peers, limited in total and per peer. A full pool makes room for a
//! peer that holds few: of the peer that holds most, the longest idle connection is evicted.
use crate::ConnectionId;
use crate::counts::CountsByOwner;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a connection may be idle between two requests without being evicted.
const LEAST_IDLE: Duration = Duration::from_secs(5);

/// Fingerprint of a peer's key.
pub type Peer = [u8; 32];

/// How many connections a pool allows.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// In total.
    pub connections: usize,
    /// Of one peer.
    pub per_peer: usize,
}

/// Why a peer gets no connection slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All connections of the pool are taken.
    Pool,
    /// The peer holds as many as one peer may.
    Peer,
    /// The connection was evicted before.
    Evicted,
}

struct Entry {
    peer: Peer,
    busy: u32,
    /// Time since when no request is in work.
    idle_since: Instant,
}

impl Entry {
    fn is_idle(&self, now: Instant) -> bool {
        self.busy == 0 && now >= self.idle_since + LEAST_IDLE
    }
}

/// Connections of authenticated peers of one kind.
pub(crate) struct ConnectionPool {
    limits: PoolLimits,
    entries: BTreeMap<ConnectionId, Entry>,
    by_peer: CountsByOwner<Peer>,
}

impl ConnectionPool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self { limits, entries: BTreeMap::new(), by_peer: CountsByOwner::default() }
    }

    pub(crate) fn taken(&self) -> usize {
        self.entries.len()
    }

    /// Adds a connection; returns the connection that was evicted for it, if any.
    pub(crate) fn enter(&mut self, id: ConnectionId, peer: Peer, now: Instant) -> Result<Option<ConnectionId>, Full> {
        let held_by_peer = self.by_peer.get(&peer);
        if held_by_peer >= self.limits.per_peer {
            return Err(Full::Peer);
        }
        let evicted = match self.entries.len() < self.limits.connections {
            true => None,
            false => Some(self.choose_evicted(held_by_peer, now).ok_or(Full::Pool)?),
        };
        evicted.map(|id| self.leave(id));
        self.by_peer.add(peer);
        self.entries.insert(id, Entry { peer, busy: 0, idle_since: now });
        Ok(evicted)
    }

    /// Returns false if the connection was not in the pool.
    pub(crate) fn leave(&mut self, id: ConnectionId) -> bool {
        let Some(Entry { peer, .. }) = self.entries.remove(&id) else { return false };
        self.by_peer.remove(&peer);
        true
    }

    pub(crate) fn begin_request(&mut self, id: ConnectionId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.busy += 1;
        }
    }

    pub(crate) fn end_request(&mut self, id: ConnectionId, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.busy = entry.busy.saturating_sub(1);
            entry.idle_since = now;
        }
    }

    /// Chooses the connection to evict for a peer that holds `held_by_peer`: its owner still holds
    /// at least as many afterwards as the newcomer.
    fn choose_evicted(&self, held_by_peer: usize, now: Instant) -> Option<ConnectionId> {
        let candidates =
            self.entries.iter().filter(|(_, e)| e.is_idle(now) && self.by_peer.get(&e.peer) >= held_by_peer + 2);
        let next = candidates.max_by_key(|(_, e)| (self.by_peer.get(&e.peer), now - e.idle_since));
        next.map(|(&id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Peer = [1; 32];
    const B: Peer = [2; 32];

    fn pool(connections: usize, per_peer: usize) -> ConnectionPool {
        ConnectionPool::new(PoolLimits { connections, per_peer })
    }

    #[test]
    fn limits_connections_in_total_and_per_peer() {
        let (mut pool, now) = (pool(3, 2), Instant::now());
        assert!(pool.enter(1, A, now).is_ok());
        assert!(pool.enter(2, A, now).is_ok());
        assert_eq!(pool.enter(3, A, now), Err(Full::Peer));
        assert_eq!(pool.enter(4, B, now), Ok(None));
        assert_eq!(pool.enter(5, [3; 32], now), Err(Full::Pool));
        assert!(pool.leave(2));
        assert!(!pool.leave(2));
        assert!(pool.taken() == 2);
        assert!(pool.enter(6, A, now).is_ok());
    }

    #[test]
    fn evicts_idle_connections_of_the_peer_that_holds_most() {
        let (mut pool, start) = (pool(4, 4), Instant::now());
        for (id, seconds) in [(1, 3), (2, 1), (3, 2), (4, 0)] {
            pool.enter(id, A, start + Duration::from_secs(seconds)).unwrap();
        }
        let later = start + Duration::from_secs(60);
        // The oldest connection has a request in work.
        pool.begin_request(4);
        assert_eq!(pool.enter(5, B, start + LEAST_IDLE), Err(Full::Pool));
        assert_eq!(pool.enter(5, B, later), Ok(Some(2)));
        assert_eq!(pool.enter(6, B, later), Ok(Some(3)));
        assert_eq!(pool.enter(7, B, later), Err(Full::Pool));
        pool.end_request(4, later);
        assert_eq!(pool.enter(7, [3; 32], later), Ok(Some(1)));
    }

    proptest! {
        /// Limits always hold, and no peer loses a connection to a peer that would then hold more.
        #[test]
        fn pools_keep_their_invariants(
            (connections, per_peer) in (1usize..12, 1usize..8),
            steps in prop::collection::vec((0u8..5, 0u8..4, 0u64..4000), 1..200),
        ) {
            let (mut pool, mut now) = (pool(connections, per_peer), Instant::now());
            let mut held: Vec<(ConnectionId, Peer, u32)> = Vec::new();
            for (id, (peer, action, ms)) in (0..).zip(steps) {
                now += Duration::from_millis(ms);
                let index = ms as usize % held.len().max(1);
                match (action, held.get_mut(index)) {
                    (1, Some(entry)) => { entry.2 += 1; pool.begin_request(entry.0); }
                    (2, Some(entry)) => { entry.2 = entry.2.saturating_sub(1); pool.end_request(entry.0, now); }
                    (3, Some(_)) => prop_assert!(pool.leave(held.remove(index).0)),
                    _ => {
                        let peer = [peer; 32];
                        let count = |held: &[(ConnectionId, Peer, u32)], p| held.iter().filter(|h| h.1 == p).count();
                        match pool.enter(id, peer, now) {
                            Ok(evicted) => {
                                if let Some(evicted_id) = evicted {
                                    let (_, whose, busy) = held.remove(held.iter().position(|h| h.0 == evicted_id).unwrap());
                                    prop_assert!(busy == 0); prop_assert!(count(&held, whose) > count(&held, peer));
                                }
                                held.push((id, peer, 0));
                            }
                            Err(Full::Peer) => prop_assert_eq!(count(&held, peer), per_peer),
                            Err(_) => prop_assert_eq!(held.len(), connections),
                        }
                        prop_assert!(count(&held, peer) <= per_peer);
                    }
                }
                prop_assert_eq!(pool.taken(), held.len());
                prop_assert!(held.len() <= connections);
            }
        }
    }
}
