//! Open files: each connection takes some.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest handshake slots, whatever files there are.
const FEWEST: u64 = 16;

/// Raises the limit of open files as far as this process may.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // One that cannot be raised stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// As many handshake slots as files are left beside `others`, of `files` each: `most` at most.
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
