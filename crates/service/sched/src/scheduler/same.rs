//! The comparison that audits are made of.

/// Checks that a counter has the value that the records give.
///
/// # Errors
/// A sentence with both values if they differ.
pub(super) fn check_equal<T: PartialEq + std::fmt::Debug>(what: &str, recomputed: T, stored: T) -> Result<(), String> {
    if recomputed == stored {
        return Ok(());
    }
    Err(format!("{what}: recomputed {recomputed:?}, kept {stored:?}"))
}
