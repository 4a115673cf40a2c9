//! The key sets that a server has open: in memory, or in files that it stores for clients.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tacit_he::ckks::{FileState, KeySet};

use super::public::MAX_KEY_BYTES;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::UploadName;

/// Most files remembered as checked. When more come, all are forgotten.
const MAX_CHECKED: usize = 1 << 12;

const MAX_DERIVED_BYTES: u64 = 4 << 30;

/// The key sets of a server: [`MAX_KEY_BYTES`] at most in memory, with uploads in progress. For room, sets
/// without a file that no connection uses are dropped, the longest unused first.
#[derive(Default)]
pub(super) struct KeySets(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    sets: HashMap<UploadName, Entry>,
    clock: u64,
    /// Bytes of the complete sets of uploads in progress.
    promised: u64,
    /// Bytes of uploads in progress that have arrived.
    arrived: u64,
    /// Sets in files that connections use, with the memory budget of each in bytes.
    open: HashMap<FileState, (Weak<KeySet>, u64)>,
    /// Files whose keys have been checked.
    checked: HashSet<FileState>,
    /// Sets with their derived keys, the most recently used last.
    derived: Vec<(UploadName, Entry)>,
}

impl Cache {
    /// Bytes of sets in use and of uploads in progress.
    fn reserved_bytes(&mut self) -> u64 {
        self.open.retain(|_, (set, _)| set.strong_count() > 0);
        let used: u64 = self.sets.values().filter(|entry| !entry.is_idle()).map(|entry| entry.bytes).sum();
        let paged: u64 = self.open.values().map(|(_, budget)| budget).sum();
        used.saturating_add(self.promised).saturating_add(paged)
    }

    /// Makes the set the most recently used one.
    fn find_derived(&mut self, name: &UploadName) -> Option<Arc<KeySet>> {
        let index = self.derived.iter().position(|(set_name, _)| set_name == name)?;
        let entry = self.derived.remove(index);
        let keys = entry.1.keys.clone();
        self.derived.push(entry);
        Some(keys)
    }

    fn derived_bytes(&self) -> u64 {
        self.derived.iter().map(|(_, entry)| entry.bytes).sum()
    }
}

struct Entry {
    keys: Arc<KeySet>,
    bytes: u64,
    /// Value of the cache's clock at the last use.
    last_used: u64,
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.keys) == 1
    }
}

/// Room for a set whose upload is in progress; given back on drop.
pub(super) struct Room<'a> {
    sets: &'a KeySets,
    bytes: u64,
    arrived: u64,
}

impl KeySets {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().expect("nothing panics while it holds the key sets")
    }

    pub fn find(&self, name: &UploadName) -> Option<Arc<KeySet>> {
        let mut cache = self.lock();
        cache.clock += 1;
        let now = cache.clock;
        let entry = cache.sets.get_mut(name)?;
        entry.last_used = now;
        Some(entry.keys.clone())
    }

    /// Reserves room beside sets in use and uploads in progress. Drops no idle set yet: a mere request must
    /// not take anything from other clients.
    pub fn reserve(&self, bytes: u64) -> Option<Room<'_>> {
        let mut cache = self.lock();
        if cache.reserved_bytes().saturating_add(bytes) > MAX_KEY_BYTES {
            return None;
        }
        cache.promised += bytes;
        Some(Room { sets: self, bytes, arrived: 0 })
    }

    /// The set of a file that other connections have open, or a new one. `open` gets its memory
    /// budget: `bytes`, or the room that is left if that is less.
    pub fn open(&self, file: FileState, bytes: u64, open: impl FnOnce(usize) -> KeySet) -> Arc<KeySet> {
        let mut cache = self.lock();
        if let Some(set) = cache.open.get(&file).and_then(|(set, _)| set.upgrade()) {
            return set;
        }
        let budget = MAX_KEY_BYTES.saturating_sub(cache.reserved_bytes()).min(bytes);
        let set = Arc::new(open(budget as usize));
        cache.open.insert(file, (Arc::downgrade(&set), budget));
        set
    }

    /// The set of this name with its derived keys, made by `make` if they are not cached. They take
    /// `bytes` more and stay cached for the next connection; idle sets are dropped for them, the oldest
    /// first.
    pub fn complete(
        &self,
        name: &UploadName,
        bytes: u64,
        make: impl FnOnce() -> Result<KeySet, BackendError>,
    ) -> Result<Arc<KeySet>, BackendError> {
        if let Some(keys) = self.lock().find_derived(name) {
            return Ok(keys);
        }
        // Derivation takes seconds, so the lock is free meanwhile. Of two results, the first one stays.
        let keys = Arc::new(make()?);
        let mut cache = self.lock();
        if let Some(keys) = cache.find_derived(name) {
            return Ok(keys);
        }
        while cache.derived_bytes() + bytes > MAX_DERIVED_BYTES {
            let Some(idle) = cache.derived.iter().position(|(_, entry)| entry.is_idle()) else { return Ok(keys) };
            cache.derived.remove(idle);
        }
        cache.derived.push((*name, Entry { keys: keys.clone(), bytes, last_used: 0 }));
        Ok(keys)
    }

    /// Drops derived keys of a set that is no longer complete.
    pub fn forget(&self, name: &UploadName) {
        self.lock().derived.retain(|(set_name, _)| set_name != name);
    }

    pub fn forget_idle(&self) {
        let mut cache = self.lock();
        let sets: Vec<Entry> = cache.sets.extract_if(|_, entry| entry.is_idle()).map(|(_, entry)| entry).collect();
        let derived: Vec<_> = cache.derived.extract_if(.., |(_, entry)| entry.is_idle()).collect();
        // Freeing large sets takes a while: release the lock first.
        drop(cache);
        drop((sets, derived));
    }

    pub fn is_checked(&self, file: &FileState) -> bool {
        self.lock().checked.contains(file)
    }

    /// A mere request must not read a file through again.
    pub fn note_checked(&self, file: FileState) {
        let mut cache = self.lock();
        if cache.checked.len() >= MAX_CHECKED {
            cache.checked.clear();
        }
        cache.checked.insert(file);
    }

    /// A key of the file failed: the next request checks it again.
    pub fn forget_checked(&self, file: &FileState) {
        self.lock().checked.remove(file);
    }
}

impl Room<'_> {
    /// Counts `bytes` more that have arrived, and drops idle sets for them. Returns whether there is room.
    pub fn add_arrived(&mut self, bytes: u64) -> bool {
        let mut dropped = Vec::new();
        let mut cache = self.sets.lock();
        (self.arrived, cache.arrived) = (self.arrived + bytes, cache.arrived + bytes);
        loop {
            let cached_bytes: u64 = cache.sets.values().map(|entry| entry.bytes).sum();
            if cached_bytes + cache.arrived <= MAX_KEY_BYTES {
                break;
            }
            let idle = cache.sets.iter().filter(|(_, entry)| entry.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.last_used).map(|(name, _)| *name) else {
                return false;
            };
            dropped.extend(cache.sets.remove(&oldest));
        }
        drop(cache);
        true
    }

    /// If two uploads have one name, the first set stays.
    pub fn fill(self, name: UploadName, keys: KeySet) -> Arc<KeySet> {
        let mut cache = self.sets.lock();
        cache.clock += 1;
        let (last_used, bytes) = (cache.clock, self.bytes);
        let entry = cache.sets.entry(name).or_insert_with(|| Entry { keys: Arc::new(keys), bytes, last_used });
        entry.keys.clone()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut cache = self.sets.lock();
        (cache.promised, cache.arrived) = (cache.promised - self.bytes, cache.arrived - self.arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    const HALF: u64 = MAX_KEY_BYTES / 2;

    /// States of a file, by modification time.
    struct States(File);

    impl States {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tacit-sets-{}-{test}", std::process::id()));
            let file = File::create(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            Self(file)
        }

        fn state_at(&self, second: usize) -> FileState {
            self.0.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second as u64)).unwrap();
            FileState::from_metadata(&self.0.metadata().unwrap())
        }
    }

    #[test]
    fn only_arrived_bytes_evict_idle_sets() {
        let sets = KeySets::default();
        let mut first = sets.reserve(HALF).unwrap();
        assert!(first.add_arrived(HALF));
        drop(first.fill([1; 32], KeySet::default()));
        assert!(sets.reserve(MAX_KEY_BYTES + 1).is_none());
        // A request drops no set, but takes room from other requests.
        let reservation = sets.reserve(MAX_KEY_BYTES).unwrap();
        assert!(sets.reserve(1).is_none());
        assert!(sets.find(&[1; 32]).is_some());
        drop(reservation);
        let mut second = sets.reserve(MAX_KEY_BYTES).unwrap();
        assert!(second.add_arrived(HALF));
        assert!(sets.find(&[1; 32]).is_some());
        assert!(second.add_arrived(1));
        assert!(sets.find(&[1; 32]).is_none());
        drop(second);
        assert!(sets.reserve(MAX_KEY_BYTES).is_some());
    }

    #[test]
    fn used_set_stays_and_names_are_unique() {
        let sets = KeySets::default();
        let name = [7; 32];
        let [a, b] = [sets.reserve(HALF).unwrap(), sets.reserve(HALF).unwrap()];
        let (a, b) = (a.fill(name, KeySet::default()), b.fill(name, KeySet::default()));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(sets.reserve(HALF + 1).is_none());
        assert!(sets.reserve(HALF).is_some());
        let mut room = sets.reserve(HALF).unwrap();
        assert!(room.add_arrived(HALF));
        assert!(!room.add_arrived(1));
    }

    #[test]
    fn open_files_share_memory_budget() {
        let sets = KeySets::default();
        let states = States::new("open");
        let files = [0, 1, 2].map(|second| states.state_at(second));
        let open = |file: usize, bytes: u64, expected: u64| {
            let opened = sets.open(files[file], bytes, |budget| {
                assert_eq!(budget as u64, expected);
                KeySet::default()
            });
            // Another connection to the same file takes no memory of its own.
            let again = sets.open(files[file], bytes, |_| unreachable!("it is open"));
            assert!(Arc::ptr_eq(&opened, &again));
            opened
        };
        let opened_sets = [open(0, HALF, HALF), open(1, MAX_KEY_BYTES, HALF), open(2, 7, 0)];
        assert!(sets.reserve(1).is_none());
        drop(opened_sets);
        drop(open(0, HALF, HALF));
    }

    #[test]
    fn derived_keys_are_cached_while_room_lasts() {
        let sets = KeySets::default();
        let derive = |name: u8, bytes: u64| sets.complete(&[name; 32], bytes, || Ok(KeySet::default())).unwrap();
        let find = |name: u8, bytes: u64| sets.complete(&[name; 32], bytes, || Err(BackendError::Stopped));
        let used = derive(1, MAX_DERIVED_BYTES / 2);
        assert!(Arc::ptr_eq(&used, &find(1, MAX_DERIVED_BYTES / 2).unwrap()));
        assert!(find(2, 1).is_err());
        drop(derive(2, MAX_DERIVED_BYTES / 2));
        // The idle set is dropped for another one. A set that is too large is not cached, and drops
        // no set in use.
        drop(derive(3, MAX_DERIVED_BYTES / 2));
        assert!(find(2, 1).is_err());
        assert!(find(3, 1).is_ok());
        assert!(find(1, 1).is_ok());
        drop(derive(4, MAX_DERIVED_BYTES));
        assert!(find(4, 1).is_err());
        assert!(find(1, 1).is_ok());
        sets.forget(&[1; 32]);
        assert!(find(1, 1).is_err());
    }

    #[test]
    fn forget_idle_keeps_used_sets() {
        let sets = KeySets::default();
        let upload = |name: u8| sets.reserve(7).unwrap().fill([name; 32], KeySet::default());
        let derive = |name: u8| sets.complete(&[name; 32], 7, || Ok(KeySet::default())).unwrap();
        let used = [upload(1), derive(1)];
        drop([upload(2), derive(2)]);
        sets.forget_idle();
        assert!(Arc::ptr_eq(&sets.find(&[1; 32]).unwrap(), &used[0]));
        assert!(Arc::ptr_eq(&derive(1), &used[1]));
        assert!(sets.find(&[2; 32]).is_none());
        assert!(sets.complete(&[2; 32], 7, || Err(BackendError::Stopped)).is_err());
    }

    #[test]
    fn checked_files_are_remembered_until_doubt() {
        let sets = KeySets::default();
        let states = States::new("checked");
        let file = states.state_at(MAX_CHECKED);
        sets.note_checked(file);
        assert!(sets.is_checked(&file));
        assert!(!sets.is_checked(&states.state_at(0)));
        sets.forget_checked(&file);
        assert!(!sets.is_checked(&file));
        sets.note_checked(file);
        (0..MAX_CHECKED).for_each(|second| sets.note_checked(states.state_at(second)));
        assert!(!sets.is_checked(&file));
        assert!(sets.is_checked(&states.state_at(MAX_CHECKED - 1)));
    }
}
