//! Clients that ask or recently got an answer; a fair policy leaves room for them.

use super::same::same;
use crate::ids::ClientId;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How long after the end of its last input a client counts as recent.
pub(super) const LATELY: Span = Span::from_millis(10_000);

#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Live inputs of requests, by client; 0 for a recent client without any.
    clients: BTreeMap<ClientId, u32>,
    /// When recent clients are forgotten.
    leave: BTreeSet<(Time, ClientId)>,
    left: BTreeMap<ClientId, Time>,
}

impl Recent {
    /// Counts an input that a client asks for.
    pub fn asks(&mut self, client: ClientId) {
        *self.clients.entry(client).or_default() += 1;
        if let Some(at) = self.left.remove(&client) {
            self.leave.remove(&(at, client));
        }
    }

    /// Counts the end of an input that a client asked for.
    pub fn ended(&mut self, client: ClientId, now: Time) {
        let Some(inputs) = self.clients.get_mut(&client) else { return };
        *inputs -= 1;
        if *inputs == 0 {
            self.left.insert(client, now + LATELY);
            self.leave.insert((now + LATELY, client));
        }
    }

    /// Forgets clients that are no longer recent; returns whether there was one.
    pub fn forget(&mut self, now: Time) -> bool {
        let before = self.clients.len();
        while let Some(&(at, client)) = self.leave.first().filter(|(at, _)| *at <= now) {
            self.leave.remove(&(at, client));
            self.left.remove(&client);
            self.clients.remove(&client);
        }
        self.clients.len() < before
    }

    /// When the next client is forgotten.
    pub fn next(&self) -> Option<Time> {
        self.leave.first().map(|&(at, _)| at)
    }

    /// Number of clients other than `client`.
    pub fn others(&self, client: ClientId) -> u32 {
        (self.clients.len() - usize::from(self.clients.contains_key(&client))) as u32
    }

    /// Compares the counts with the inputs of requests that each client has.
    pub fn audit(&self, mut asked: BTreeMap<ClientId, u32>) -> Result<(), String> {
        for &client in self.left.keys() {
            same("who has left asks for nothing", asked.insert(client, 0), None)?;
        }
        same("who asks, or did a moment ago", &asked, &self.clients)?;
        let listed: BTreeSet<(Time, ClientId)> = self.left.iter().map(|(&client, &at)| (at, client)).collect();
        same("when they are forgotten", &listed, &self.leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_is_remembered_for_a_while() {
        let (mut recent, [a, b]) = (Recent::default(), [1, 2].map(ClientId::numbered));
        let at = Time::from_secs;
        recent.asks(a);
        recent.asks(a);
        recent.asks(b);
        recent.ended(a, at(1.0));
        assert_eq!((recent.others(a), recent.others(b), recent.next()), (1, 1, None));
        recent.ended(a, at(2.0));
        assert_eq!((recent.others(b), recent.next()), (1, Some(at(12.0))));
        // The client asks again before it is forgotten.
        recent.asks(a);
        assert!(!recent.forget(at(20.0)));
        assert!(recent.next().is_none());
        recent.ended(a, at(20.0));
        assert!(recent.audit(BTreeMap::from([(b, 1)])).is_ok());
        assert!(recent.forget(at(30.0)));
        assert!(recent.others(b) == 0);
        assert!(recent.others(a) == 1);
    }
}
