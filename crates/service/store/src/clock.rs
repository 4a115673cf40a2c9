//! The time of this machine, and checks that it is plausible.
use crate::StoreError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of 2026 in seconds since 1970; this program did not exist before.
const EARLIEST: u64 = 1_767_225_600;
/// A clock that differs by more than this from the last use of a folder may be wrong.
pub const JUMP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Seconds since 1970.
///
/// # Errors
/// [`StoreError::Clock`]: the clock is not set.
pub fn now() -> Result<u64, StoreError> {
    checked(SystemTime::now())
}

fn checked(now: SystemTime) -> Result<u64, StoreError> {
    let since = now.duration_since(UNIX_EPOCH).map_err(|_| StoreError::Clock)?.as_secs();
    if since < EARLIEST { Err(StoreError::Clock) } else { Ok(since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_not_set_is_no_time() {
        let at = |seconds| checked(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(EARLIEST).unwrap(), EARLIEST);
        for unset in [at(0), at(EARLIEST - 1), checked(UNIX_EPOCH - Duration::from_secs(1))] {
            assert!(unset.unwrap_err().to_string().contains("the clock of this machine is not set"));
        }
    }
}
