//! Everything that can go wrong in a server or a client, by name.
use std::path::{Path, PathBuf};
use tacit_graph::GraphError;
use tacit_ids::NoRandomness;
use tacit_net::NetError;
use tacit_store::StoreError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Material, keys or certificates cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A model, its file or an input is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The back end refused or failed.
    #[error("back end: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server answered a request with a refusal.
    #[error("the server refused {request}: {reason}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Why not, in the server's words.
        reason: String,
    },
    /// A request that this server does not grant; the reason is sent to the client.
    #[error("{0}")]
    NotGranted(String),
    /// A message does not decode, or is not what comes here.
    #[error("unexpected {what} from the peer: {detail}")]
    Unexpected {
        /// Which message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// A file or folder cannot be used.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted: "reading".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A file has the wrong content.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// An image or array that the model cannot take.
    #[error("input {path}: {what}")]
    Input {
        /// Where it came from.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The caller did things in the wrong order, or configured nonsense.
    #[error("{0}")]
    Usage(String),
    /// The operating system gives no random bytes.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

impl ServeError {
    /// An operating-system error with the file it is about.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}
