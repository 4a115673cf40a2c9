//! What can go wrong while measuring.
use std::path::PathBuf;

/// A failed measurement, or a file that is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    /// A file or device could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or device holds something else than it should.
    #[error("{what}: {detail}")]
    Malformed {
        /// The file, device or line.
        what: String,
        /// What is wrong with it, and what was expected.
        detail: String,
    },
    /// A power source cannot be used.
    #[error("power source {name}: {reason}; {remedy}")]
    Source {
        /// The source's name.
        name: String,
        /// Why not.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
}

impl MeterError {
    /// Names the file that an I/O error belongs to.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
