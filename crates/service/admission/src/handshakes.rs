//! Slots for connections whose peer is not authenticated. Unauthenticated peers can open any number
//! of connections, so full slots evict: the oldest connection of the address that holds most. A
//! slow handshake may exceed the usual time while half of the slots are free; after that it is
//! evicted first.
use crate::ConnectionId;
use crate::counts::CountsByOwner;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Least time before eviction for a connection whose address does not hoard: enough for a handshake
/// over a slow link. When all slots are taken, this and the number of slots limit the connections
/// admitted per second; others wait in the system's queue.
const LEAST_TIME: Duration = Duration::from_millis(500);

/// An address hoards when it holds more than one in `HOARD_DIVISOR` of the slots.
const HOARD_DIVISOR: usize = 8;

struct PendingHandshake {
    /// Address of the peer, an IPv6 one as its /64 network.
    address: IpAddr,
    started: Instant,
}

/// Connections whose peer is not authenticated.
pub(crate) struct HandshakeSlots {
    slots: usize,
    /// Longest time of a handshake over most links.
    usual: Duration,
    /// By id, which is the order of age since ids grow.
    pending: BTreeMap<ConnectionId, PendingHandshake>,
    by_address: CountsByOwner<IpAddr>,
}

impl HandshakeSlots {
    /// Makes `slots` slots, at least one; a handshake longer than `usual` is slow.
    pub(crate) fn new(slots: usize, usual: Duration) -> Self {
        Self { slots: slots.max(1), usual, pending: BTreeMap::new(), by_address: CountsByOwner::default() }
    }

    pub(crate) fn taken(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Takes a slot for a connection, whose id is larger than all before. Returns the connection
    /// that was evicted for it, or when to try again: until then no connection may be evicted.
    pub(crate) fn enter(
        &mut self,
        id: ConnectionId,
        address: IpAddr,
        now: Instant,
    ) -> Result<Option<(ConnectionId, IpAddr)>, Instant> {
        let address = network(address);
        let evicted = match (self.evict_slow(now), self.pending.len() < self.slots) {
            (Some(slow), _) => Some(slow),
            (None, true) => None,
            (None, false) => Some(self.evict(address, now)?),
        };
        self.by_address.add(address);
        self.pending.insert(id, PendingHandshake { address, started: now });
        Ok(evicted)
    }

    /// Frees the slot of a connection; false if it had none.
    pub(crate) fn leave(&mut self, id: ConnectionId) -> bool {
        self.remove(id).is_some()
    }

    fn remove(&mut self, id: ConnectionId) -> Option<IpAddr> {
        let PendingHandshake { address, .. } = self.pending.remove(&id)?;
        self.by_address.remove(&address);
        Some(address)
    }

    /// Removes and returns the oldest handshake if it is slow and a newcomer leaves less than half
    /// of the slots free.
    fn evict_slow(&mut self, now: Instant) -> Option<(ConnectionId, IpAddr)> {
        let (&id, handshake) = self.pending.first_key_value().filter(|_| self.pending.len() * 2 >= self.slots)?;
        if now < handshake.started + self.usual {
            return None;
        }
        self.remove(id).map(|address| (id, address))
    }

    /// Evicts the oldest connection of the address that holds most slots, or returns when it may be
    /// evicted.
    fn evict(&mut self, newcomer: IpAddr, now: Instant) -> Result<(ConnectionId, IpAddr), Instant> {
        // If several addresses hold most, the oldest of all their connections.
        let max_count = self.by_address.max();
        let next = self.pending.iter().find(|(_, handshake)| self.by_address.get(&handshake.address) == max_count);
        let (&id, &PendingHandshake { address, started }) =
            next.expect("there is at least one slot, and all are taken");
        let hoards = max_count > self.slots / HOARD_DIVISOR && address != newcomer;
        if !hoards && now < started + LEAST_TIME {
            return Err(started + LEAST_TIME);
        }
        self.remove(id);
        Ok((id, address))
    }
}

/// Maps an address to its owner: an IPv6 peer usually has a whole /64, so 2^64 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USUAL: Duration = Duration::from_secs(10);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn slow_handshake_keeps_its_slot_only_while_half_are_free() {
        let (mut slots, start) = (HandshakeSlots::new(6, USUAL), Instant::now());
        assert_eq!(slots.enter(0, address(1), start), Ok(None));
        let late = start + USUAL;
        assert_eq!(slots.enter(1, address(2), late), Ok(None));
        assert_eq!(slots.enter(2, address(2), late), Ok(None));
        // The address of the slow one holds least, and slots are free.
        assert_eq!(slots.enter(3, address(2), late), Ok(Some((0, address(1)))));
        assert_eq!(slots.enter(4, address(2), late), Ok(None));
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"].map(|a| network(a.parse().unwrap()));
        assert!(a == b);
        assert!(a != c);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }

    #[test]
    fn evicts_oldest_of_address_that_holds_most() {
        let (mut slots, start) = (HandshakeSlots::new(4, USUAL), Instant::now());
        let late = start + LEAST_TIME;
        assert_eq!(slots.enter(0, address(1), start), Ok(None));
        (1..4).for_each(|id| assert_eq!(slots.enter(id, address(2), start), Ok(None)));
        assert_eq!(slots.enter(4, address(3), late), Ok(Some((1, address(2)))));
        assert_eq!(slots.enter(5, address(4), late), Ok(Some((2, address(2)))));
        // Every address holds one, so the oldest of all is evicted.
        assert_eq!(slots.enter(6, address(5), late), Ok(Some((0, address(1)))));
    }

    #[test]
    fn only_hoarding_addresses_lose_slots_before_the_least_time() {
        let (mut slots, start) = (HandshakeSlots::new(2, USUAL), Instant::now());
        assert_eq!(slots.enter(0, address(1), start), Ok(None));
        assert_eq!(slots.enter(1, address(1), start), Ok(None));
        // A newcomer from the same address evicts no connection before its least time.
        assert_eq!(slots.enter(2, address(1), start + LEAST_TIME / 2), Err(start + LEAST_TIME));
        assert_eq!(slots.enter(2, address(2), start + LEAST_TIME / 2), Ok(Some((0, address(1)))));
        assert!(slots.leave(1));
        assert!(!slots.leave(1));
        assert!(!slots.leave(0));
        assert_eq!(slots.enter(3, address(1), start + LEAST_TIME / 2), Ok(None));
        let (mut large, owner) = (HandshakeSlots::new(16, USUAL), |id: u64| address(id as u8));
        (0..16).for_each(|id| assert_eq!(large.enter(id, owner(id), start), Ok(None)));
        assert_eq!(large.enter(16, address(99), start), Err(start + LEAST_TIME));
        assert_eq!(large.enter(16, address(99), start + LEAST_TIME), Ok(Some((0, address(0)))));
    }

    proptest! {
        /// In any sequence: slots are never exceeded, counts are right, and an address within its
        /// share is never evicted before its least time.
        #[test]
        fn slots_keep_their_invariants(
            slots in 1usize..20,
            steps in prop::collection::vec((0u8..6, any::<bool>(), 0u64..700), 1..200),
        ) {
            let (mut tested, mut now) = (HandshakeSlots::new(slots, USUAL), Instant::now());
            let mut held: Vec<(ConnectionId, IpAddr, Instant)> = Vec::new();
            for (id, (owner, leaves, ms)) in (0..).zip(steps) {
                now += Duration::from_millis(ms);
                if leaves && !held.is_empty() {
                    let (left_id, ..) = held.remove(owner as usize % held.len());
                    prop_assert!(tested.leave(left_id));
                }
                match tested.enter(id, address(owner), now) {
                    Ok(evicted) => {
                        if let Some((evicted_id, whose)) = evicted {
                            let index = held.iter().position(|h| h.0 == evicted_id).unwrap();
                            let count = |a| held.iter().filter(|h| h.1 == a).count();
                            if now >= held[index].2 + USUAL {
                                prop_assert!(index == 0); prop_assert!(held.len() * 2 >= slots);
                            } else {
                                prop_assert!(held.len() == slots); prop_assert!(held.iter().all(|h| count(h.1) <= count(whose)));
                                prop_assert!(count(whose) > slots / HOARD_DIVISOR || now >= held[index].2 + LEAST_TIME);
                            }
                            held.remove(index);
                        }
                        held.push((id, address(owner), now));
                    }
                    Err(retry_at) => { prop_assert!(held.len() == slots); prop_assert!(retry_at > now); prop_assert!(retry_at <= now + LEAST_TIME); }
                }
                prop_assert_eq!(tested.taken(), held.len());
                prop_assert!(held.len() <= slots);
                prop_assert_eq!(tested.by_address.sum(), held.len());
            }
        }
    }
}
