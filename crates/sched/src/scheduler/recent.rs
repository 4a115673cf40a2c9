//! Who asks, or was answered a moment ago: those for whom a fair policy keeps room.

use super::same::same;
use crate::ids::ClientId;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How long after the end of its last input a client is thought to come again.
pub(super) const LATELY: Span = Span::from_millis(10_000);

#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Inputs of requests that have not ended, by client; 0 of those that were there a moment ago.
    clients: BTreeMap<ClientId, u32>,
    /// When those are forgotten.
    leave: BTreeSet<(Time, ClientId)>,
    left: BTreeMap<ClientId, Time>,
}

impl Recent {
    /// A client asks for an input.
    pub fn asks(&mut self, client: ClientId) {
        *self.clients.entry(client).or_default() += 1;
        if let Some(at) = self.left.remove(&client) {
            self.leave.remove(&(at, client));
        }
    }

    /// An input that a client asked for has ended.
    pub fn ended(&mut self, client: ClientId, now: Time) {
        let Some(inputs) = self.clients.get_mut(&client) else { return };
        *inputs -= 1;
        if *inputs == 0 {
            self.left.insert(client, now + LATELY);
            self.leave.insert((now + LATELY, client));
        }
    }

    /// Forgets who was there long ago; whether that was anybody.
    pub fn forget(&mut self, now: Time) -> bool {
        let before = self.clients.len();
        while let Some(&(at, client)) = self.leave.first().filter(|(at, _)| *at <= now) {
            self.leave.remove(&(at, client));
            self.left.remove(&client);
            self.clients.remove(&client);
        }
        self.clients.len() < before
    }

    /// When somebody is forgotten next.
    pub fn next(&self) -> Option<Time> {
        self.leave.first().map(|&(at, _)| at)
    }

    /// How many there are beside a client.
    pub fn others(&self, client: ClientId) -> u32 {
        (self.clients.len() - usize::from(self.clients.contains_key(&client))) as u32
    }

    /// Checks it against the inputs of requests that each client has.
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
        // Back again before it was forgotten.
        recent.asks(a);
        assert!(!recent.forget(at(20.0)) && recent.next().is_none());
        recent.ended(a, at(20.0));
        assert!(recent.audit(BTreeMap::from([(b, 1)])).is_ok());
        assert!(recent.forget(at(30.0)) && recent.others(b) == 0 && recent.others(a) == 1);
    }
}
