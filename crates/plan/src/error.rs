//! What can be wrong with what a plan is made of.

use std::path::PathBuf;

use tacit_meter::MeterError;
use thiserror::Error;

/// Errors of calibrations, devices, links and limits.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A calibration, device or limit says what it cannot.
    #[error("{what}: {detail}")]
    Wrong {
        /// Which file, key or option.
        what: String,
        /// What is wrong with it, and what would be right.
        detail: String,
    },
    /// A file could not be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The device's energy profile.
    #[error(transparent)]
    Energy(#[from] MeterError),
}

pub(crate) fn wrong<T>(what: impl Into<String>, detail: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Wrong { what: what.into(), detail: detail.into() })
}
