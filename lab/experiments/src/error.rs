//! Errors of experiments.
use std::path::{Path, PathBuf};

/// A failed step of an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A specification (experiment file, link, rate) is invalid.
    #[error("{what}: {detail}")]
    Spec {
        /// The file, key or option.
        what: String,
        /// The fault, and the expected form.
        detail: String,
    },
    /// Missing rights or kernel features.
    #[error("{what} is not possible here: {reason}; {remedy}")]
    Unavailable {
        /// The requested function.
        what: String,
        /// The cause.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A step failed: a command, a connection, a tunnel.
    #[error("{step}: {detail}")]
    Failed {
        /// The step.
        step: String,
        /// The failure.
        detail: String,
    },
    /// The meter failed.
    #[error(transparent)]
    Meter(#[from] tacit_meter::MeterError),
    /// Keys could not be made or used.
    #[error(transparent)]
    Keys(#[from] tacit_store::StoreError),
    /// An invalid description of a link.
    #[error(transparent)]
    Link(#[from] tacit_net::link::BadLink),
    /// A text that is not a rate.
    #[error(transparent)]
    Rate(#[from] tacit_net::BadRate),
    /// The network failed.
    #[error(transparent)]
    Net(#[from] tacit_net::NetError),
}

impl LabError {
    /// For `map_err`: an error with its file.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn spec(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Spec { what: what.into(), detail: detail.into() }
    }

    /// Describes missing rights or kernel features.
    pub(crate) fn unavailable(what: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable { what: what.into(), reason: reason.into(), remedy: remedy.into() }
    }

    /// For `map_err`: an error with its failed step.
    pub(crate) fn failed<E: std::fmt::Display>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |error| Self::Failed { step, detail: error.to_string() }
    }
}
