//! Errors in the inputs of a plan.

use std::path::PathBuf;

use tacit_measure::MeasureError;
use thiserror::Error;

/// Errors of calibrations, devices, links and limits.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A calibration, device or limit has a value that is not allowed.
    #[error("{what}: {detail}")]
    Wrong {
        /// The file, key or option.
        what: String,
        /// The fault and the values that are allowed.
        detail: String,
    },
    /// A file that cannot be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An error in the device's energy profile.
    #[error(transparent)]
    Energy(#[from] MeasureError),
}

pub(crate) fn wrong<T>(what: impl Into<String>, detail: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Wrong { what: what.into(), detail: detail.into() })
}
