//! One comparison of an audit.

/// # Errors
/// A sentence with both values if they differ.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, recomputed: T, kept: T) -> Result<(), String> {
    if recomputed == kept {
        return Ok(());
    }
    Err(format!("{what}: recomputed {recomputed:?}, kept {kept:?}"))
}
