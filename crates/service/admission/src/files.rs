//! The limit of open files, of which each connection takes some.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest handshake slots, however low the limit of open files is.
const FEWEST: u64 = 16;

/// Raises this process's limit of open files to its maximum.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // On failure the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the handshake slots, `most` at most, that fit in the open files beside `others`, with
/// `files` for each slot.
#[must_use]
pub fn handshake_slots(most: usize, files: u64, others: u64) -> usize {
    within(most, files, others, getrlimit(Resource::Nofile).current)
}

fn within(most: usize, files: u64, others: u64, limit: Option<u64>) -> usize {
    let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(others) / files.max(1));
    most.min(usize::try_from(left.max(FEWEST)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_what_files_allow() {
        assert_eq!(within(512, 2, 100, None), 512);
        assert_eq!(within(512, 2, 100, Some(1024)), 462);
        assert_eq!(within(512, 2, 4000, Some(1024)), 16);
    }
}
