//! Errors of the client.
use crate::wire::WireError;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_backends::BackendError;
use tacit_graph::GraphError;
use tacit_ids::NoRandomness;
use tacit_net::{Channel, NetError};
use tacit_store::StoreError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The server cannot be reached.
    #[error("cannot reach the server at {server}: {what}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Cause and remedy.
        what: String,
    },
    /// The connection to the server was lost, or the server has fallen silent.
    #[error(
        "lost the server at {server}, asked for {during}: {}; if nobody stopped it, its log says more. Connect again",
        error.plain_text()
    )]
    Lost {
        /// Its address.
        server: String,
        /// The request that was lost: "the model", "the inference".
        during: &'static str,
        /// The error that shows the loss.
        error: NetError,
    },
    /// The server has ended the connection in an orderly way.
    #[error("the server at {server} has ended the connection: {reason}")]
    Ended {
        /// Its address.
        server: String,
        /// The server's reason.
        reason: String,
    },
    /// A message does not decode, or does not belong at this point.
    #[error("unexpected {what} from the server: {detail}")]
    Unexpected {
        /// Name of the message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The server sends signs of life but does not start the request.
    #[error(
        "the server at {server} was asked for {request} and has only said for {} s that it is not its turn ({queued} jobs wait there): \
         a longer patience (--patience) waits on",
        patience.as_secs_f64()
    )]
    Waited {
        /// Its address.
        server: String,
        /// The request.
        request: &'static str,
        /// How long the client waited.
        patience: Duration,
        /// Jobs that wait at the server, as the server reports.
        queued: u32,
    },
    /// The server answered a request with a refusal.
    #[error("the server refused {request}: {reason}")]
    Refused {
        /// The request.
        request: &'static str,
        /// The server's reason.
        reason: String,
        /// Time after which it may be granted, if a limit per day or minute is used up.
        again: Option<Duration>,
    },
    /// A request over HTTP failed.
    #[error("{asking}: {what}")]
    Http {
        /// The address and the request.
        asking: String,
        /// Cause.
        what: String,
    },
    /// A server refuses a request over HTTP.
    #[error("{server} refuses ({status}): {why}")]
    Denied {
        /// Its address.
        server: String,
        /// HTTP status of the answer.
        status: u16,
        /// The server's reason.
        why: String,
    },
    /// The server has no such model.
    #[error("the server has no model `{name}`; there are: {known}")]
    NoModel {
        /// The name that was asked for.
        name: String,
        /// Names of the models on offer.
        known: String,
    },
    /// The server's lowering does not meet this client's requirements.
    #[error(
        "model `{model}` is required to be lowered with {option}={wanted}, and the server's says {stated}: nothing was sent"
    )]
    NotAsRequired {
        /// The model.
        model: String,
        /// The option.
        option: String,
        /// The required value.
        wanted: String,
        /// The value that the public part states.
        stated: String,
    },
    /// The server's public part leaves out a protection of this client.
    #[error(
        "model `{model}` was lowered with {option}={value}, which leaves out what protects the client's secrets: it is opened for those alone that ask for that (--require {option}={value}); nothing was sent"
    )]
    Waived {
        /// The model.
        model: String,
        /// The option.
        option: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// The answer is not a number: one of its values is NaN.
    #[error(
        "the answer is no number: an input like this takes model `{model}` beyond the numbers that it computes with. Ask with inputs like \
         those that it was made for, or ask its owner to calibrate it with inputs like this one"
    )]
    NoNumber {
        /// The model.
        model: String,
    },
    /// None of the back ends on offer may be chosen automatically.
    #[error("model `{model}` is offered with {offered}, and none of these is chosen unasked: name one")]
    NoBackend {
        /// The model.
        model: String,
        /// Its back ends, and why each is not chosen.
        offered: String,
    },
    /// This client's helper failed to do what was asked.
    #[error("the helper at {address}: {what}")]
    Helper {
        /// Its address.
        address: String,
        /// Cause and remedy.
        what: String,
    },
    /// The back end's material comes from a dealer, and the client names none.
    #[error(
        "the back end {backend} takes its material from a dealer, and none was named: give its address and the fingerprint of its \
         certificate (--dealer, --dealer-pin)"
    )]
    NoDealer {
        /// The back end.
        backend: String,
    },
    /// The back end refused or failed.
    #[error("back end: {0}")]
    Backend(#[from] BackendError),
    /// The input does not fit the model.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The material store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be used.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted: "reading".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// An image or array that does not fit the model.
    #[error("input {path}: {what}")]
    Input {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The caller used the interface in the wrong order or gave an invalid configuration.
    #[error("{0}")]
    Usage(String),
    /// The operating system gives no random bytes.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

impl ClientError {
    /// Whether the client refuses an answer after the protocol has ended as usual: the connection
    /// stays usable.
    #[must_use]
    pub fn refuses_answer(&self) -> bool {
        matches!(self, Self::Backend(BackendError::Answer { .. }))
    }

    /// Rewords the first of several refused answers: `refused` of `inputs` were refused.
    #[must_use]
    pub fn with_counts(self, index: usize, refused: usize, inputs: usize) -> Self {
        match self {
            Self::Backend(BackendError::Answer { what }) if inputs > 1 => {
                let what = format!("{refused} of {inputs} inputs have none, that at index {index} first: {what}");
                Self::Backend(BackendError::Answer { what })
            }
            other => other,
        }
    }

    /// Adds the server's name if the connection was lost `during` a request.
    pub(crate) fn of(self, channel: &Channel, during: &'static str) -> Self {
        match self {
            // This party closed the connection.
            Self::Backend(BackendError::Stopped) => {
                let error = NetError::from_io("stopping", &std::io::ErrorKind::ConnectionAborted.into());
                Self::Lost { server: server_of(channel), during, error }
            }
            Self::Net(error) | Self::Backend(BackendError::Net(error))
                if error.is_gone() || matches!(error, NetError::Stalled { .. }) =>
            {
                Self::Lost { server: server_of(channel), during, error }
            }
            other => other,
        }
    }

    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

pub(crate) fn server_of(channel: &Channel) -> String {
    let peer = channel.peer();
    peer.rsplit_once(' ').map_or(peer.clone(), |(_, address)| address.to_owned())
}

impl From<WireError> for ClientError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Net(error) => Self::Net(error),
            WireError::Unexpected { what, detail } => Self::Unexpected { what, detail },
        }
    }
}
