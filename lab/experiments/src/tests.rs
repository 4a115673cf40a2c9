//! Shared by the tests of this crate.
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Checks that the result is an error whose text contains all `words`.
#[track_caller]
pub(crate) fn assert_refused<T, E: Display>(result: Result<T, E>, words: &[&str]) {
    let error = result.map(|_| ()).map_err(|error| error.to_string()).unwrap_err();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// Whether the condition comes to hold within a minute.
pub(crate) fn soon(condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    condition()
}
