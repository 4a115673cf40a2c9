//! Places for those of whom nobody knows who they are. Strangers can open any number of connections, so a
//! full house makes room instead of closing: the oldest greeting of the address that holds most gives way,
//! once it had time enough for a handshake.
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What nobody takes from a greeting: time enough for a handshake over a slow link. With all places taken, so
/// many connections are let in a second as this and the places allow; others wait in the system's queue
/// meanwhile.
pub(crate) const LEAST_TIME: Duration = Duration::from_millis(500);

/// Names a connection.
pub(crate) type Number = u64;

struct Greeting<E> {
    from: IpAddr,
    since: Instant,
    /// What ends it.
    end: E,
}

/// Those who greet, each with what ends it.
pub(crate) struct Greetings<E> {
    places: usize,
    /// Numbers grow, so they are in the order of age.
    greetings: BTreeMap<Number, Greeting<E>>,
    /// How many each address holds of them.
    held: HashMap<IpAddr, usize>,
}

impl<E> Greetings<E> {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, greetings: BTreeMap::new(), held: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.greetings.len()
    }

    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Makes sure that there is a place: where from the greeting came that gave way for it, and what ends it.
    ///
    /// # Errors
    /// When somebody will have had time enough to give way.
    pub(crate) fn make_room(&mut self, now: Instant) -> Result<Option<(IpAddr, E)>, Instant> {
        if self.greetings.len() < self.places {
            return Ok(None);
        }
        let (number, since) = self.next_to_go().expect("there is at least one place, and it is taken");
        if now < since + LEAST_TIME {
            return Err(since + LEAST_TIME);
        }
        Ok(self.remove(number))
    }

    pub(crate) fn enter(&mut self, number: Number, from: IpAddr, since: Instant, end: E) {
        let from = network(from);
        *self.held.entry(from).or_default() += 1;
        self.greetings.insert(number, Greeting { from, since, end });
    }

    /// Whether this connection was greeting; it does so no longer.
    pub(crate) fn leave(&mut self, number: Number) -> bool {
        self.remove(number).is_some()
    }

    fn remove(&mut self, number: Number) -> Option<(IpAddr, E)> {
        let Greeting { from, end, .. } = self.greetings.remove(&number)?;
        let held = self.held.get_mut(&from).expect("what greets is counted");
        *held -= 1;
        if *held == 0 {
            self.held.remove(&from);
        }
        Some((from, end))
    }

    /// The oldest greeting of the address that holds most; of addresses that hold as many, the oldest of all.
    fn next_to_go(&self) -> Option<(Number, Instant)> {
        let most = self.held.values().max()?;
        self.greetings.iter().find(|(_, g)| self.held[&g.from] == *most).map(|(&number, g)| (number, g.since))
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

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"].map(|a| network(a.parse().unwrap()));
        assert!(a == b && a != c);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
