//! The start of every public part: the back end's name, and the version of both parts.
use crate::{BackendError, Result};

/// Checks name and version, and returns the bytes behind them.
///
/// # Errors
/// [`BackendError::Version`] for another version; [`BackendError::Public`] for another back end or damaged
/// bytes.
pub fn check<'a>(name: &'static str, version: u32, public: &'a [u8]) -> Result<&'a [u8]> {
    let head = postcard::take_from_bytes::<(&str, u32)>(public);
    match head.map_err(|e| wrong(format!("it is not one of {name}: {e}")))? {
        ((backend, found_version), rest) if backend == name && found_version == version => Ok(rest),
        ((backend, found_version), _) if backend == name => {
            Err(BackendError::Version { backend: name, theirs: found_version, ours: version })
        }
        ((backend, _), _) => {
            let backend: String = backend.chars().take(80).collect();
            Err(wrong(format!("it is for the back end `{backend}`, not for {name}")))
        }
    }
}

fn wrong(what: String) -> BackendError {
    BackendError::Public { what }
}
