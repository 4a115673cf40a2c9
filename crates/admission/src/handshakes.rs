//! Slots for connections whose peer is not authenticated. Strangers can open any number of connections, so
//! full slots make room instead of closing: the oldest connection of the address that holds most is evicted.
use crate::ConnectionId;
use crate::counts::CountsByOwner;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What no connection is denied whose address does not hoard: time enough for a handshake over a slow link.
/// With all slots taken, so many connections are let in a second as this and the slots allow; others wait in
/// the system's queue meanwhile.
pub const LEAST_TIME: Duration = Duration::from_millis(500);

/// The part of the slots beyond which an address hoards: one in so many.
const HOARD: usize = 8;

struct Held {
    from: IpAddr,
    since: Instant,
}

/// Connections whose peer is not authenticated.
pub struct HandshakeSlots {
    slots: usize,
    /// Ids grow, so they are in the order of age.
    held: BTreeMap<ConnectionId, Held>,
    /// How many each address holds of them.
    by_address: CountsByOwner<IpAddr>,
}

impl HandshakeSlots {
    /// So many slots, at least one.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots: slots.max(1), held: BTreeMap::new(), by_address: CountsByOwner::default() }
    }

    /// Slots that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.held.len()
    }

    /// Slots in all.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Takes a slot for a connection, whose id is larger than all before; what was evicted for it.
    ///
    /// # Errors
    /// When to try again: nobody can be evicted before.
    pub fn enter(
        &mut self,
        id: ConnectionId,
        from: IpAddr,
        now: Instant,
    ) -> Result<Option<(ConnectionId, IpAddr)>, Instant> {
        let from = network(from);
        let evicted = match self.held.len() < self.slots {
            true => None,
            false => Some(self.evict(from, now)?),
        };
        self.by_address.add(from);
        self.held.insert(id, Held { from, since: now });
        Ok(evicted)
    }

    /// Whether this connection had a slot, which is free now.
    pub fn leave(&mut self, id: ConnectionId) -> bool {
        self.remove(id).is_some()
    }

    fn remove(&mut self, id: ConnectionId) -> Option<IpAddr> {
        let Held { from, .. } = self.held.remove(&id)?;
        self.by_address.remove(&from);
        Some(from)
    }

    fn evict(&mut self, newcomer: IpAddr, now: Instant) -> Result<(ConnectionId, IpAddr), Instant> {
        // Of addresses that hold as many, the oldest connection of all.
        let most = self.by_address.most();
        let next = self.held.iter().find(|(_, held)| self.by_address.of(&held.from) == most);
        let (&id, &Held { from, since }) = next.expect("there is at least one slot, and all are taken");
        let hoards = most > self.slots / HOARD && from != newcomer;
        if !hoards && now < since + LEAST_TIME {
            return Err(since + LEAST_TIME);
        }
        self.remove(id);
        Ok((id, from))
    }
}

/// What counts as one address: whoever has one of IPv6 has 2^64 of them.
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

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"].map(|a| network(a.parse().unwrap()));
        assert!(a == b && a != c);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }

    #[test]
    fn the_oldest_of_the_address_that_holds_most_is_evicted() {
        let (mut slots, start) = (HandshakeSlots::new(4), Instant::now());
        let late = start + LEAST_TIME;
        assert_eq!(slots.enter(0, address(1), start), Ok(None));
        (1..4).for_each(|id| assert_eq!(slots.enter(id, address(2), start), Ok(None)));
        assert_eq!(slots.enter(4, address(3), late), Ok(Some((1, address(2)))));
        assert_eq!(slots.enter(5, address(4), late), Ok(Some((2, address(2)))));
        // Everybody holds one: the oldest of all.
        assert_eq!(slots.enter(6, address(5), late), Ok(Some((0, address(1)))));
    }

    #[test]
    fn who_does_not_hoard_keeps_its_least_time_and_who_does_makes_room_at_once() {
        let (mut slots, start) = (HandshakeSlots::new(2), Instant::now());
        assert_eq!(slots.enter(0, address(1), start), Ok(None));
        assert_eq!(slots.enter(1, address(1), start), Ok(None));
        // Its own address gains nothing by more connections.
        assert_eq!(slots.enter(2, address(1), start + LEAST_TIME / 2), Err(start + LEAST_TIME));
        assert_eq!(slots.enter(2, address(2), start + LEAST_TIME / 2), Ok(Some((0, address(1)))));
        assert!(slots.leave(1) && !slots.leave(1) && !slots.leave(0));
        assert_eq!(slots.enter(3, address(1), start + LEAST_TIME / 2), Ok(None));
        let (mut many, crowd) = (HandshakeSlots::new(16), |id: u64| address(id as u8));
        (0..16).for_each(|id| assert_eq!(many.enter(id, crowd(id), start), Ok(None)));
        assert_eq!(many.enter(16, address(99), start), Err(start + LEAST_TIME));
        assert_eq!(many.enter(16, address(99), start + LEAST_TIME), Ok(Some((0, address(0)))));
    }

    proptest! {
        /// Whatever comes and goes: slots are never exceeded, counts are right, and an address that holds no
        /// more than its share is never evicted before its least time.
        #[test]
        fn slots_hold_whatever_comes(
            slots in 1usize..20,
            steps in prop::collection::vec((0u8..6, any::<bool>(), 0u64..700), 1..200),
        ) {
            let (mut tested, mut now) = (HandshakeSlots::new(slots), Instant::now());
            let mut held: Vec<(ConnectionId, IpAddr, Instant)> = Vec::new();
            for (id, (from, leaves, ms)) in (0..).zip(steps) {
                now += Duration::from_millis(ms);
                if leaves && !held.is_empty() {
                    let (gone, ..) = held.remove(from as usize % held.len());
                    prop_assert!(tested.leave(gone));
                }
                match tested.enter(id, address(from), now) {
                    Ok(evicted) => {
                        if let Some((gone, whose)) = evicted {
                            prop_assert_eq!(held.len(), slots);
                            let at = held.iter().position(|h| h.0 == gone).unwrap();
                            let count = |a| held.iter().filter(|h| h.1 == a).count();
                            prop_assert!(held.iter().all(|h| count(h.1) <= count(whose)));
                            prop_assert!(count(whose) > slots / HOARD || now >= held[at].2 + LEAST_TIME);
                            held.remove(at);
                        }
                        held.push((id, address(from), now));
                    }
                    Err(at) => prop_assert!(held.len() == slots && at > now && at <= now + LEAST_TIME),
                }
                prop_assert_eq!(tested.taken(), held.len());
                prop_assert!(held.len() <= slots);
                prop_assert_eq!(tested.by_address.sum(), held.len());
            }
        }
    }
}
