//! Errors of measurements.
use std::path::PathBuf;

use tacit_measure::MeasureError;

/// A failed measurement, or an invalid measurement file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    /// A file or device could not be read or written, or has unexpected content.
    #[error(transparent)]
    Measure(#[from] MeasureError),
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
        let with_path = MeasureError::io(path);
        move |source| Self::Measure(with_path(source))
    }

    /// Describes unexpected content of `what`, a file, device or line.
    pub fn malformed(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Measure(MeasureError::Malformed { what: what.into(), detail: detail.into() })
    }

    /// Puts `place` in front of what has unexpected content; other errors stay.
    pub(crate) fn behind(self, place: &str) -> Self {
        match self {
            Self::Measure(MeasureError::Malformed { what, detail }) => {
                Self::malformed(format!("{place}{what}"), detail)
            }
            other => other,
        }
    }
}
