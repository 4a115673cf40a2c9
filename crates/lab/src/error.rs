//! What can go wrong in an experiment.
use std::path::{Path, PathBuf};

/// A failed step of an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A specification (experiment file, link, rate) is wrong.
    #[error("{what}: {detail}")]
    Spec {
        /// The file, key or option.
        what: String,
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// This needs rights or kernel features that are not there.
    #[error("{what} is not possible here: {reason}; {remedy}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why not.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A step failed: a command, a connection, a tunnel.
    #[error("{step}: {detail}")]
    Failed {
        /// What was being done.
        step: String,
        /// How it failed.
        detail: String,
    },
    /// The meter failed.
    #[error(transparent)]
    Meter(#[from] tacit_meter::MeterError),
    /// Keys could not be made or used.
    #[error(transparent)]
    Keys(#[from] tacit_store::StoreError),
    /// A text that is no rate.
    #[error(transparent)]
    Rate(#[from] tacit_net::BadRate),
    /// The network failed.
    #[error(transparent)]
    Net(#[from] tacit_net::NetError),
}

impl LabError {
    /// For `map_err`: an error with the file that it is about.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }

    /// For `map_err`: an error with the step that failed.
    pub(crate) fn failed<E: std::fmt::Display>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |error| Self::Failed { step, detail: error.to_string() }
    }
}
