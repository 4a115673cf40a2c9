//! The key sets that a server has open: in memory, or in files of its clients.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tacit_he::ckks::KeySet;

use super::public::MOST_KEY_BYTES;
use super::wire::HELLO_BYTES;

pub(super) type Name = [u8; HELLO_BYTES];

/// Key sets: [`MOST_KEY_BYTES`] at most in memory, those under way included. Of those that are in memory
/// alone, sets that no connection uses go first, those unused for longest before others.
#[derive(Default)]
pub(super) struct KeySets(Mutex<Held>);

#[derive(Default)]
struct Held {
    sets: HashMap<Name, Entry>,
    clock: u64,
    /// Bytes of sets under way, and what of them has arrived.
    promised: u64,
    arrived: u64,
    /// Sets in files that connections use, with the bytes that each may have in memory.
    open: HashMap<PathBuf, (Weak<KeySet>, u64)>,
}

impl Held {
    /// Bytes of sets in use and of those under way.
    fn taken(&mut self) -> u64 {
        self.open.retain(|_, (set, _)| set.strong_count() > 0);
        let used: u64 = self.sets.values().filter(|entry| !entry.is_idle()).map(|entry| entry.bytes).sum();
        let paged: u64 = self.open.values().map(|(_, budget)| budget).sum();
        used.saturating_add(self.promised).saturating_add(paged)
    }
}

struct Entry {
    keys: Arc<KeySet>,
    bytes: u64,
    used: u64,
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.keys) == 1
    }
}

/// Room that is kept for a set until it is there, or is not coming any more.
pub(super) struct Room<'a> {
    sets: &'a KeySets,
    bytes: u64,
    arrived: u64,
}

impl KeySets {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics while it holds the key sets")
    }

    /// The set of this name, if it is there.
    pub fn find(&self, name: &Name) -> Option<Arc<KeySet>> {
        let mut held = self.held();
        held.clock += 1;
        let now = held.clock;
        let entry = held.sets.get_mut(name)?;
        entry.used = now;
        Some(entry.keys.clone())
    }

    /// Keeps room for a set beside those in use and those under way. Nobody's set goes for it yet: who only
    /// asks takes nothing from others.
    pub fn room(&self, bytes: u64) -> Option<Room<'_>> {
        let mut held = self.held();
        if held.taken().saturating_add(bytes) > MOST_KEY_BYTES {
            return None;
        }
        held.promised += bytes;
        Some(Room { sets: self, bytes, arrived: 0 })
    }

    /// The set of a file, if a connection has it open.
    pub fn find_open(&self, path: &Path) -> Option<Arc<KeySet>> {
        self.held().open.get(path)?.0.upgrade()
    }

    /// The set of a file that no connection has open, as `open` gives it for so many bytes in memory: all of
    /// it, if there is room for that.
    pub fn open(&self, path: &Path, bytes: u64, open: impl FnOnce(usize) -> KeySet) -> Arc<KeySet> {
        let mut held = self.held();
        let budget = MOST_KEY_BYTES.saturating_sub(held.taken()).min(bytes);
        let set = Arc::new(open(budget as usize));
        held.open.insert(path.to_owned(), (Arc::downgrade(&set), budget));
        set
    }
}

impl Room<'_> {
    /// So many bytes have come: idle sets go as they need the place. Whether there is place.
    pub fn arrive(&mut self, bytes: u64) -> bool {
        let mut gone = Vec::new();
        let mut held = self.sets.held();
        (self.arrived, held.arrived) = (self.arrived + bytes, held.arrived + bytes);
        loop {
            let there: u64 = held.sets.values().map(|entry| entry.bytes).sum();
            if there + held.arrived <= MOST_KEY_BYTES {
                break;
            }
            let idle = held.sets.iter().filter(|(_, entry)| entry.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(name, _)| *name) else { return false };
            gone.extend(held.sets.remove(&oldest));
        }
        // Large ones take a while to be freed: not while others wait.
        drop(held);
        true
    }

    /// The set is there. Of two that came under one name the first stays.
    pub fn fill(self, name: Name, keys: KeySet) -> Arc<KeySet> {
        let mut held = self.sets.held();
        held.clock += 1;
        let (used, bytes) = (held.clock, self.bytes);
        let entry = held.sets.entry(name).or_insert_with(|| Entry { keys: Arc::new(keys), bytes, used });
        entry.keys.clone()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut held = self.sets.held();
        (held.promised, held.arrived) = (held.promised - self.bytes, held.arrived - self.arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = MOST_KEY_BYTES / 2;

    #[test]
    fn sets_under_way_count_and_only_what_comes_drives_others_out() {
        let sets = KeySets::default();
        let mut first = sets.room(HALF).unwrap();
        assert!(first.arrive(HALF));
        drop(first.fill([1; HELLO_BYTES], KeySet::default()));
        assert!(sets.room(MOST_KEY_BYTES + 1).is_none(), "never fits");
        // Asking drives nobody out, but takes the place from others who ask.
        let asked = sets.room(MOST_KEY_BYTES).unwrap();
        assert!(sets.room(1).is_none() && sets.find(&[1; HELLO_BYTES]).is_some());
        drop(asked);
        let mut second = sets.room(MOST_KEY_BYTES).unwrap();
        assert!(second.arrive(HALF) && sets.find(&[1; HELLO_BYTES]).is_some());
        assert!(second.arrive(1) && sets.find(&[1; HELLO_BYTES]).is_none(), "idle, and its place is needed");
        drop(second);
        assert!(sets.room(MOST_KEY_BYTES).is_some(), "what broke off takes nothing");
    }

    #[test]
    fn a_set_in_use_stays_and_two_of_one_name_are_one() {
        let sets = KeySets::default();
        let name = [7; HELLO_BYTES];
        let [a, b] = [sets.room(HALF).unwrap(), sets.room(HALF).unwrap()];
        let (a, b) = (a.fill(name, KeySet::default()), b.fill(name, KeySet::default()));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(sets.room(HALF + 1).is_none() && sets.room(HALF).is_some());
        let mut other = sets.room(HALF).unwrap();
        assert!(other.arrive(HALF) && !other.arrive(1), "more than was asked for, and nobody to go");
    }

    #[test]
    fn files_are_open_while_they_are_used_with_what_memory_there_is() {
        let sets = KeySets::default();
        let open = |name: &str, bytes: u64, wanted: u64| {
            let opened = sets.open(Path::new(name), bytes, |budget| {
                assert_eq!(budget as u64, wanted);
                KeySet::default()
            });
            assert!(Arc::ptr_eq(&opened, &sets.find_open(Path::new(name)).unwrap()));
            opened
        };
        let a = open("a", HALF, HALF);
        let b = open("b", MOST_KEY_BYTES, HALF);
        let c = open("c", 7, 0);
        assert!(sets.room(1).is_none());
        drop((a, b, c));
        assert!(sets.find_open(Path::new("a")).is_none());
        drop(open("a", HALF, HALF));
    }
}
