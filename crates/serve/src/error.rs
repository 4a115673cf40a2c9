//! Everything that can go wrong in a server, by name.
use crate::kinds::{OVER_QUOTA, OVER_RATE};
use std::path::PathBuf;
use tacit_backends::BackendError;
use tacit_client::wire::WireError;
use tacit_net::NetError;
use tacit_store::StoreError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A message does not decode, or is not what comes here.
    #[error("unexpected {what} from the client: {detail}")]
    Unexpected {
        /// Which message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The back end refused or failed.
    #[error("back end: {0}")]
    Backend(#[from] BackendError),
    /// The material store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request that this server does not grant; the reason is sent to the client.
    #[error("{0}")]
    NotGranted(String),
    /// More than this client may have; the reason is sent to it.
    #[error("{reason}")]
    OverLimit {
        /// Which limit, for counting.
        kind: &'static str,
        /// Why not, and when again.
        reason: String,
        /// Seconds until then.
        again_s: u64,
    },
    /// The file that says who may use what is unusable.
    #[error("access file {}: {what}", .path.display())]
    Access {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and where.
        what: String,
    },
    /// The file in which the server keeps its records is unusable.
    #[error("{}: {what}", .path.display())]
    State {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Files that were looked at again are unusable.
    #[error("{0}")]
    Reload(String),
    /// The catalog or the configuration makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The operating system refuses something.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A job panicked.
    #[error("a job panicked: this is a bug in tacit; other connections go on")]
    Panicked,
}

impl ServeError {
    /// A quota that is used up.
    pub(crate) fn over_quota(reason: String, again_s: u64) -> Self {
        Self::OverLimit { kind: OVER_QUOTA, reason, again_s }
    }

    /// A rate that is too fast.
    pub(crate) fn over_rate(reason: String, again_s: u64) -> Self {
        Self::OverLimit { kind: OVER_RATE, reason, again_s }
    }

    /// An operating-system error with what it is about.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

impl From<WireError> for ServeError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Net(error) => Self::Net(error),
            WireError::Unexpected { what, detail } => Self::Unexpected { what, detail },
        }
    }
}
