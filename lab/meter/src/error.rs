//! Errors of measurements.
use std::path::PathBuf;

use tacit_measure::MeasureError;

/// A failed measurement, or an invalid measurement file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
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
    /// A power source cannot be used.
    #[error("power source {name}: {reason}; {remedy}")]
    Source {
        /// The source's name.
        name: String,
        /// The cause.
        reason: String,
        /// The remedy for the user.
        remedy: String,
    },
}

impl MeterError {
    /// Names the file that an I/O error belongs to.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Describes unexpected content.
    pub(crate) fn malformed(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), detail: detail.into() }
    }
}

impl From<MeasureError> for MeterError {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Io { path, source } => Self::Io { path, source },
            MeasureError::Malformed { what, detail } => Self::Malformed { what, detail },
        }
    }
}
