//! The time of this machine, and checks that it is plausible.
use crate::StoreError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of 2026 in seconds since 1970; this program did not exist before.
const EARLIEST: u64 = 1_767_225_600;
/// A clock that differs by more than this from the last use of a folder may be wrong.
pub const MAX_CLOCK_JUMP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Seconds since 1970.
///
/// # Errors
/// [`StoreError::Clock`]: the clock is not set.
pub fn now() -> Result<u64, StoreError> {
    check_plausible(SystemTime::now())
}

fn check_plausible(now: SystemTime) -> Result<u64, StoreError> {
    let seconds = now.duration_since(UNIX_EPOCH).map_err(|_| StoreError::Clock)?.as_secs();
    if seconds < EARLIEST { Err(StoreError::Clock) } else { Ok(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unset_clock() {
        let check = |seconds| check_plausible(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(check(EARLIEST).unwrap(), EARLIEST);
        for unset in [check(0), check(EARLIEST - 1), check_plausible(UNIX_EPOCH - Duration::from_secs(1))] {
            assert!(unset.unwrap_err().to_string().contains("the clock of this machine is not set"));
        }
    }
}
