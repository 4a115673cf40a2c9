//! Errors of measurements.
use std::path::PathBuf;

/// A failed measurement, or an invalid file.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A file or device could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file or device has unexpected content.
    #[error("{what}: {detail}")]
    Malformed {
        /// The file, device or line.
        what: String,
        /// The fault, and the expected content.
        detail: String,
    },
}

impl MeasureError {
    /// Names the file that an I/O error belongs to.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
