//! The start of every public part: the back end's name, and the version of both parts.
use crate::BackendError;

/// Checks name and version, and returns the bytes behind them.
///
/// # Errors
/// [`BackendError::Version`] for another version; [`BackendError::Public`] for another back end or
/// damaged bytes.
pub fn check<'a>(name: &'static str, version: u32, public: &'a [u8]) -> Result<&'a [u8], BackendError> {
    let head = postcard::take_from_bytes::<(&str, u32)>(public);
    match head.map_err(|e| wrong(format!("it is not one of {name}: {e}")))? {
        ((of, at), rest) if of == name && at == version => Ok(rest),
        ((of, at), _) if of == name => Err(BackendError::Version { backend: name, theirs: at, ours: version }),
        ((of, _), _) => {
            let of: String = of.chars().take(80).collect();
            Err(wrong(format!("it is for the back end `{of}`, not for {name}")))
        }
    }
}

/// Returns the error of a public part.
fn wrong(what: String) -> BackendError {
    BackendError::Public { what }
}
