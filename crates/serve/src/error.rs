//! Everything that can go wrong in a server, a client or a material store, by name.
use crate::store::MaterialId;
use std::path::{Path, PathBuf};
use tacit_graph::GraphError;
use tacit_net::NetError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
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
    /// There is no such material (or it was destroyed).
    #[error("material {0} does not exist here: it was never made, or was destroyed")]
    NoMaterial(MaterialId),
    /// Material is used at most once.
    #[error("material {0} was used already: material serves one input, make new with `tacit prepare`")]
    Burnt(MaterialId),
    /// Material of another client, model or plan.
    #[error("material {id} belongs to another {what}")]
    WrongBinding {
        /// The material.
        id: MaterialId,
        /// "client", "model" or "plan".
        what: &'static str,
    },
    /// A material file does not hold what was written.
    #[error("material {id} is damaged ({what}) and was destroyed")]
    Damaged {
        /// The material.
        id: MaterialId,
        /// What is wrong with the file.
        what: String,
    },
    /// Keys or certificates cannot be made or used.
    #[error("keys: {0}")]
    Keys(String),
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
    #[error("no randomness from the operating system: {0}")]
    Random(String),
}

impl ServeError {
    /// An operating-system error with the file it is about.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| ServeError::Random(e.to_string()))?;
    Ok(bytes)
}
