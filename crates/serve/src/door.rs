//! Who may greet: places for connections whose client is not known yet, and who waits for one.
use crate::greetings::Greetings;
pub(crate) use crate::greetings::Number;
use std::net::IpAddr;
use std::time::Instant;
use tokio::sync::oneshot;

/// Most places. Each takes a file descriptor and, once something was sent, a second one and the state of a
/// handshake.
pub(crate) const MOST_PLACES: usize = 1024;

/// Held by a greeting; it ends with an error when the greeting has to give way.
pub(crate) type Ticket = oneshot::Receiver<()>;

/// Somebody at the door.
pub(crate) struct Newcomer {
    pub(crate) number: Number,
    pub(crate) from: IpAddr,
    /// `None` when the server stops.
    pub(crate) reply: oneshot::Sender<Option<Ticket>>,
}

pub(crate) struct Door {
    /// What is dropped ends a greeting.
    greetings: Greetings<oneshot::Sender<()>>,
    /// Waits for a place. There is one at most: the others wait in the system's queue.
    newcomer: Option<Newcomer>,
    /// When somebody will give way for it.
    room_at: Option<Instant>,
}

impl Door {
    pub(crate) fn new(places: usize) -> Self {
        Self { greetings: Greetings::new(places), newcomer: None, room_at: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.greetings.len()
    }

    pub(crate) fn places(&self) -> usize {
        self.greetings.places()
    }

    /// Whether this connection was greeting; it does so no longer.
    pub(crate) fn leave(&mut self, number: Number) -> bool {
        self.greetings.leave(number)
    }

    pub(crate) fn knock(&mut self, newcomer: Newcomer) {
        self.newcomer = Some(newcomer);
    }

    /// Lets the newcomer in as soon as there is a place for it; where from the greeting came that gave way
    /// for it.
    pub(crate) fn let_in(&mut self, now: Instant) -> Option<IpAddr> {
        self.newcomer.as_ref()?;
        let gave_way = match self.greetings.make_room(now) {
            Ok(gave_way) => gave_way.map(|(from, _)| from),
            Err(at) => {
                self.room_at = Some(at);
                return None;
            }
        };
        self.room_at = None;
        let Newcomer { number, from, reply } = self.newcomer.take()?;
        let (sender, ticket) = oneshot::channel();
        if reply.send(Some(ticket)).is_ok() {
            self.greetings.enter(number, from, now, sender);
        }
        gave_way
    }

    /// When to try again.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.newcomer.as_ref().and(self.room_at)
    }

    /// Nobody else comes in.
    pub(crate) fn close(&mut self) {
        if let Some(newcomer) = self.newcomer.take() {
            // Whoever asked may be gone.
            let _ = newcomer.reply.send(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::greetings::LEAST_TIME;

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
}
