//! Number of connections of each owner: an address, or a peer's key.
use std::collections::HashMap;
use std::hash::Hash;

/// Connections by owner, without owners that hold none.
pub(crate) struct CountsByOwner<O>(HashMap<O, usize>);

impl<O> Default for CountsByOwner<O> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<O: Eq + Hash> CountsByOwner<O> {
    pub(crate) fn add(&mut self, owner: O) {
        *self.0.entry(owner).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, owner: &O) {
        let count = self.0.get_mut(owner).expect("who holds a connection is counted");
        *count -= 1;
        if *count == 0 {
            self.0.remove(owner);
        }
    }

    pub(crate) fn get(&self, owner: &O) -> usize {
        self.0.get(owner).copied().unwrap_or(0)
    }

    pub(crate) fn max(&self) -> usize {
        self.0.values().copied().max().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn sum(&self) -> usize {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_owners_without_connections() {
        let mut counts = CountsByOwner::default();
        ["a", "b", "a"].into_iter().for_each(|owner| counts.add(owner));
        assert_eq!([counts.get(&"a"), counts.get(&"b"), counts.get(&"c")], [2, 1, 0]);
        assert_eq!((counts.max(), counts.sum()), (2, 3));
        ["a", "a", "b"].into_iter().for_each(|owner| counts.remove(&owner));
        assert_eq!((counts.max(), counts.0.len()), (0, 0));
    }
}
