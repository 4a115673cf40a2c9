//! Clients that ask or recently got an answer; a fair policy leaves room for them.

use super::same::check_equal;
use crate::ids::ClientId;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How long after the end of its last input a client counts as recent.
pub(super) const RECENT_SPAN: Span = Span::from_millis(10_000);

/// Clients with unfinished inputs, or with an answer in the last [`RECENT_SPAN`].
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Live inputs of requests, by client; 0 for a recent client without any.
    clients: BTreeMap<ClientId, u32>,
    /// Clients without inputs, by the time when they are forgotten.
    by_expiry: BTreeSet<(Time, ClientId)>,
    /// The same times, by client.
    expiries: BTreeMap<ClientId, Time>,
}

impl Recent {
    pub fn add_input(&mut self, client: ClientId) {
        *self.clients.entry(client).or_default() += 1;
        if let Some(expiry) = self.expiries.remove(&client) {
            self.by_expiry.remove(&(expiry, client));
        }
    }

    pub fn remove_input(&mut self, client: ClientId, now: Time) {
        let Some(inputs) = self.clients.get_mut(&client) else { return };
        *inputs -= 1;
        if *inputs == 0 {
            self.expiries.insert(client, now + RECENT_SPAN);
            self.by_expiry.insert((now + RECENT_SPAN, client));
        }
    }

    /// Forgets clients that are no longer recent; returns whether there was one.
    pub fn forget(&mut self, now: Time) -> bool {
        let old_len = self.clients.len();
        while let Some(&(expiry, client)) = self.by_expiry.first().filter(|(expiry, _)| *expiry <= now) {
            self.by_expiry.remove(&(expiry, client));
            self.expiries.remove(&client);
            self.clients.remove(&client);
        }
        self.clients.len() < old_len
    }

    pub fn next_expiry(&self) -> Option<Time> {
        self.by_expiry.first().map(|&(expiry, _)| expiry)
    }

    pub fn count_others(&self, client: ClientId) -> u32 {
        (self.clients.len() - usize::from(self.clients.contains_key(&client))) as u32
    }

    /// Compares the counts with the inputs of requests that each client has.
    pub fn audit(&self, mut requested: BTreeMap<ClientId, u32>) -> Result<(), String> {
        for &client in self.expiries.keys() {
            check_equal("who has left asks for nothing", requested.insert(client, 0), None)?;
        }
        check_equal("who asks, or did a moment ago", &requested, &self.clients)?;
        let listed: BTreeSet<(Time, ClientId)> =
            self.expiries.iter().map(|(&client, &expiry)| (expiry, client)).collect();
        check_equal("when they are forgotten", &listed, &self.by_expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_clients_for_a_while_after_their_last_input() {
        let (mut recent, [a, b]) = (Recent::default(), [1, 2].map(ClientId::numbered));
        let time = Time::from_secs;
        recent.add_input(a);
        recent.add_input(a);
        recent.add_input(b);
        recent.remove_input(a, time(1.0));
        assert_eq!((recent.count_others(a), recent.count_others(b), recent.next_expiry()), (1, 1, None));
        recent.remove_input(a, time(2.0));
        assert_eq!((recent.count_others(b), recent.next_expiry()), (1, Some(time(12.0))));
        // The client asks again before it is forgotten.
        recent.add_input(a);
        assert!(!recent.forget(time(20.0)));
        assert!(recent.next_expiry().is_none());
        recent.remove_input(a, time(20.0));
        assert!(recent.audit(BTreeMap::from([(b, 1)])).is_ok());
        assert!(recent.forget(time(30.0)));
        assert!(recent.count_others(b) == 0);
        assert!(recent.count_others(a) == 1);
    }
}
