//! Places for control connections: a number of their own, so that they take none from clients.
use crate::door::Number;
use std::collections::BTreeMap;
use tacit_ids::ClientId;

pub(crate) struct Places {
    most: usize,
    per_client: usize,
    held: BTreeMap<Number, ClientId>,
}

impl Places {
    pub(crate) fn new(most: usize, per_client: usize) -> Self {
        Self { most, per_client, held: BTreeMap::new() }
    }

    /// Takes a place, or says why there is none.
    pub(crate) fn enter(&mut self, number: Number, client: ClientId) -> Result<(), &'static str> {
        if self.held.len() >= self.most {
            return Err("all places of the control interface are taken; try again later");
        }
        if self.held.values().filter(|c| **c == client).count() >= self.per_client {
            return Err("you have as many connections of the control interface as one client may; close some");
        }
        self.held.insert(number, client);
        Ok(())
    }

    pub(crate) fn leave(&mut self, number: Number) {
        self.held.remove(&number);
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_all_and_for_each_client() {
        let (mut places, client) = (Places::new(3, 2), ClientId::numbered);
        assert!(places.enter(1, client(1)).is_ok() && places.enter(2, client(1)).is_ok());
        assert!(places.enter(3, client(1)).unwrap_err().contains("one client"));
        assert!(places.enter(4, client(2)).is_ok());
        assert!(places.enter(5, client(3)).unwrap_err().contains("all places"));
        places.leave(2);
        places.leave(2);
        assert!(places.len() == 2 && places.enter(6, client(1)).is_ok());
    }
}
