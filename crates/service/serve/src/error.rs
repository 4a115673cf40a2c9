use crate::accept::refusal_reasons::{LATE, NO_HANDSHAKE, NO_ROOM, STRANGE};
use std::path::PathBuf;
use tacit_admission::RefusalReason;
use tacit_backends::BackendError;
use tacit_client::wire::WireError;
use tacit_net::NetError;
use tacit_store::StoreError;

/// An error of a server, dealer or front.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A message does not decode, or is not expected at this point.
    #[error("unexpected {what} from the client: {detail}")]
    Unexpected {
        /// The message.
        what: &'static str,
        /// The error.
        detail: String,
    },
    /// The back end refused or failed.
    #[error("back end: {0}")]
    Backend(#[from] BackendError),
    /// The material store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request that is not granted; the reason is sent to the client.
    #[error("{0}")]
    NotGranted(String),
    /// The client has used up a limit; the reason is sent to it.
    #[error("{reason}")]
    OverLimit {
        /// The limit, for counting.
        kind: &'static str,
        /// The reason, and when to try again.
        reason: String,
        /// Seconds until the limit allows something again.
        again_s: u64,
    },
    /// The file with access rules is unusable.
    #[error("access file {}: {what}", .path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// The error and its place.
        what: String,
    },
    /// The server's file of records is unusable.
    #[error("{}: {what}", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// Files that were reloaded are unusable.
    #[error("{0}")]
    Reload(String),
    /// The catalog or the configuration is invalid.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused an operation.
    #[error("{doing}: {source}")]
    System {
        /// The attempted operation.
        doing: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A job panicked.
    #[error("a job panicked: this is a bug in tacit; other connections go on")]
    Panicked,
}

impl ServeError {
    /// The reason to count when a connection fails before its peer has a connection slot.
    pub(crate) fn handshake_refusal_reason(&self) -> RefusalReason {
        match self {
            Self::Net(NetError::Stalled { .. }) => LATE,
            Self::Net(NetError::Tls(_)) => NO_HANDSHAKE,
            Self::NotGranted(_) => NO_ROOM,
            _ => STRANGE,
        }
    }

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
