//! Who may greet: places for connections whose client is not known yet. Strangers can open any number of
//! connections, so a full house makes room instead of closing: the oldest greeting of the address that holds
//! most gives way, once it had time enough for a handshake.
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Most places. Each takes a file descriptor and, once something was sent, a second one and the state of a
/// handshake.
pub(crate) const MOST_PLACES: usize = 1024;
/// What nobody takes from a greeting: time enough for a handshake over a slow link. With all places taken, so
/// many connections are let in a second as this and the places allow; others wait in the system's queue
/// meanwhile.
const LEAST_TIME: Duration = Duration::from_millis(500);

/// Names a connection.
pub(crate) type Number = u64;

/// Held by a greeting; it ends with an error when the greeting has to give way.
pub(crate) type Ticket = oneshot::Receiver<()>;

struct Greeting {
    from: IpAddr,
    since: Instant,
    /// Dropped to end it.
    _ticket: oneshot::Sender<()>,
}

/// Somebody at the door.
pub(crate) struct Newcomer {
    pub(crate) number: Number,
    pub(crate) from: IpAddr,
    /// `None` when the server stops.
    pub(crate) reply: oneshot::Sender<Option<Ticket>>,
}

pub(crate) struct Door {
    places: usize,
    /// Numbers grow, so they are in the order of age.
    greetings: BTreeMap<Number, Greeting>,
    /// How many each address holds of them.
    held: HashMap<IpAddr, usize>,
    /// Waits for a place. There is one at most: the others wait in the system's queue.
    newcomer: Option<Newcomer>,
}

impl Door {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, greetings: BTreeMap::new(), held: HashMap::new(), newcomer: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.greetings.len()
    }

    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Whether this connection was greeting; it does so no longer.
    pub(crate) fn leave(&mut self, number: Number) -> bool {
        self.remove(number).is_some()
    }

    fn remove(&mut self, number: Number) -> Option<IpAddr> {
        let Greeting { from, .. } = self.greetings.remove(&number)?;
        let held = self.held.get_mut(&from).expect("what greets is counted");
        *held -= 1;
        if *held == 0 {
            self.held.remove(&from);
        }
        Some(from)
    }

    pub(crate) fn knock(&mut self, newcomer: Newcomer) {
        self.newcomer = Some(newcomer);
    }

    /// Lets the newcomer in as soon as there is a place for it; where from the greeting came that gave way
    /// for it.
    pub(crate) fn let_in(&mut self, now: Instant) -> Option<IpAddr> {
        self.newcomer.as_ref()?;
        let mut gave_way = None;
        if self.greetings.len() >= self.places {
            let (number, since) = self.next_to_go()?;
            if now < since + LEAST_TIME {
                return None;
            }
            gave_way = self.remove(number);
        }
        let Newcomer { number, from, reply } = self.newcomer.take()?;
        let (sender, ticket) = oneshot::channel();
        if reply.send(Some(ticket)).is_ok() {
            let from = network(from);
            *self.held.entry(from).or_default() += 1;
            self.greetings.insert(number, Greeting { from, since: now, _ticket: sender });
        }
        gave_way
    }

    /// When to try again.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.newcomer.as_ref().and_then(|_| self.next_to_go()).map(|(_, since)| since + LEAST_TIME)
    }

    /// Nobody else comes in.
    pub(crate) fn close(&mut self) {
        if let Some(newcomer) = self.newcomer.take() {
            // Whoever asked may be gone.
            let _ = newcomer.reply.send(None);
        }
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

    /// Somebody knocks; the ticket, if it comes in at once, and who gave way.
    fn knock(door: &mut Door, number: Number, from: &str, now: Instant) -> (Option<Ticket>, Option<IpAddr>) {
        let (reply, mut answer) = oneshot::channel();
        door.knock(Newcomer { number, from: from.parse().unwrap(), reply });
        let gave_way = door.let_in(now);
        (answer.try_recv().ok().flatten(), gave_way)
    }

    fn is_out(ticket: &mut Option<Ticket>) -> bool {
        ticket.as_mut().unwrap().try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_of_the_address_that_holds_most_gives_way() {
        let (mut door, start) = (Door::new(4), Instant::now());
        let late = start + LEAST_TIME;
        let mut honest = knock(&mut door, 0, "10.0.0.1", start).0;
        let mut tickets: Vec<_> = (1..4).map(|n| knock(&mut door, n, "10.0.0.2", start).0).collect();
        let (ticket, gave_way) = knock(&mut door, 4, "10.0.0.3", late);
        assert!(ticket.is_some() && gave_way == Some("10.0.0.2".parse().unwrap()));
        assert!(is_out(&mut tickets[0]) && !is_out(&mut tickets[1]) && !is_out(&mut honest));
        assert!(knock(&mut door, 5, "10.0.0.4", late).0.is_some());
        // Everybody holds one: the oldest of all.
        assert!(is_out(&mut tickets[1]) && !is_out(&mut honest));
        assert!(knock(&mut door, 6, "10.0.0.5", late).0.is_some());
        assert!(is_out(&mut honest) && !is_out(&mut tickets[2]));
    }

    #[test]
    fn nobody_gives_way_before_its_time_and_the_newcomer_waits() {
        let (mut door, start) = (Door::new(2), Instant::now());
        let mut first = knock(&mut door, 0, "10.0.0.1", start).0;
        let _second = knock(&mut door, 1, "10.0.0.1", start).0;
        let (reply, mut answer) = oneshot::channel();
        door.knock(Newcomer { number: 2, from: "10.0.0.1".parse().unwrap(), reply });
        assert_eq!(door.let_in(start + LEAST_TIME / 2), None);
        assert!(answer.try_recv().is_err() && !is_out(&mut first));
        assert_eq!(door.alarm(), Some(start + LEAST_TIME));
        assert!(door.let_in(start + LEAST_TIME).is_some() && is_out(&mut first));
        assert!(answer.try_recv().unwrap().is_some() && door.alarm().is_none());
        // One that leaves makes room at once.
        assert!(door.leave(1) && !door.leave(1));
        assert!(knock(&mut door, 3, "10.0.0.1", start + LEAST_TIME).0.is_some());
        // A server that stops lets nobody in.
        let (reply, mut answer) = oneshot::channel();
        door.knock(Newcomer { number: 4, from: "10.0.0.1".parse().unwrap(), reply });
        door.close();
        assert!(answer.try_recv().unwrap().is_none());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"].map(|a| network(a.parse().unwrap()));
        assert!(a == b && a != c);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
