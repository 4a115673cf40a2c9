//! The limit of open files, of which each connection takes some.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest handshake slots, however low the limit of open files is.
const MIN_SLOTS: u64 = 16;

/// Raises this process's limit of open files to its maximum.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // On failure the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns how many handshake slots the limit of open files allows: at most `max_slots`, each with
/// `files_per_slot` open files, beside `other_files` of the program.
#[must_use]
pub fn handshake_slots(max_slots: usize, files_per_slot: u64, other_files: u64) -> usize {
    slots_within(max_slots, files_per_slot, other_files, getrlimit(Resource::Nofile).current)
}

fn slots_within(max_slots: usize, files_per_slot: u64, other_files: u64, limit: Option<u64>) -> usize {
    let available = limit.map_or(u64::MAX, |limit| limit.saturating_sub(other_files) / files_per_slot.max(1));
    max_slots.min(usize::try_from(available.max(MIN_SLOTS)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_slots_are_what_open_files_allow() {
        assert_eq!(slots_within(512, 2, 100, None), 512);
        assert_eq!(slots_within(512, 2, 100, Some(1024)), 462);
        assert_eq!(slots_within(512, 2, 4000, Some(1024)), 16);
    }
}
