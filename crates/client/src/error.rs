//! Everything that can go wrong at a client, by name.
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
        /// Why, and what to do.
        what: String,
    },
    /// The connection to the server was lost, or nothing comes over it any more.
    #[error(
        "lost the server at {server}, asked for {during}: {}; if nobody stopped it, its log says more. Connect again",
        error.plainly()
    )]
    Lost {
        /// Its address.
        server: String,
        /// What was asked for: "the model", "the inference".
        during: &'static str,
        /// What shows that it is lost.
        error: NetError,
    },
    /// The server has ended the connection in good order.
    #[error("the server at {server} has ended the connection: {reason}")]
    Ended {
        /// Its address.
        server: String,
        /// Why, in the server's words.
        reason: String,
    },
    /// A message does not decode, or is not what comes here.
    #[error("unexpected {what} from the server: {detail}")]
    Unexpected {
        /// Which message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The server says that it lives, and does not come to what was asked.
    #[error(
        "the server at {server} was asked for {request} and has only said for {} s that it is not its turn ({queued} jobs wait there): \
         a longer patience (--patience) waits on",
        patience.as_secs_f64()
    )]
    Waited {
        /// Its address.
        server: String,
        /// What was asked.
        request: &'static str,
        /// How long it was waited for.
        patience: Duration,
        /// Jobs that wait at the server, by its word.
        queued: u32,
    },
    /// The server answered a request with a refusal.
    #[error("the server refused {request}: {reason}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Why not, in the server's words.
        reason: String,
        /// After how long it may be granted: what a day or a minute allows is used up.
        again: Option<Duration>,
    },
    /// Something was asked over HTTP in vain.
    #[error("{asking}: {what}")]
    Http {
        /// Whom, and for what.
        asking: String,
        /// What went wrong.
        what: String,
    },
    /// A server refuses what was asked over HTTP.
    #[error("{server} refuses ({status}): {why}")]
    Denied {
        /// Its address.
        server: String,
        /// The status of its answer.
        status: u16,
        /// Why, in the server's words.
        why: String,
    },
    /// The server has no such model.
    #[error("the server has no model `{name}`; there are: {known}")]
    NoModel {
        /// What was asked for.
        name: String,
        /// Names of those there are.
        known: String,
    },
    /// The server's lowering is not what this client relies on.
    #[error(
        "model `{model}` is required to be lowered with {option}={wanted}, and the server's says {stated}: nothing was sent"
    )]
    NotAsRequired {
        /// The model.
        model: String,
        /// The option.
        option: String,
        /// What was required.
        wanted: String,
        /// What its public part says.
        stated: String,
    },
    /// The server's public part leaves out what protects this client.
    #[error(
        "model `{model}` was lowered with {option}={value}, which leaves out what protects the client's secrets: it is opened for those alone          that ask for that (--require {option}={value}); nothing was sent"
    )]
    Waived {
        /// The model.
        model: String,
        /// The option.
        option: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// The answer is none: a value of it is NaN.
    #[error(
        "the answer is no number: an input like this takes model `{model}` beyond the numbers that it computes with. Ask with inputs like \
         those that it was made for, or ask its owner to calibrate it with inputs like this one"
    )]
    NoNumber {
        /// The model.
        model: String,
    },
    /// None of the back ends that a model is offered with may be chosen unasked.
    #[error("model `{model}` is offered with {offered}, and none of these is chosen unasked: name one")]
    NoBackend {
        /// The model.
        model: String,
        /// Its back ends, and why each is not chosen.
        offered: String,
    },
    /// This client's helper did not do what was asked.
    #[error("the helper at {address}: {what}")]
    Helper {
        /// Its address.
        address: String,
        /// Why, and what to do.
        what: String,
    },
    /// The back end's material comes from a dealer.
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
        /// The operating system's answer.
        source: std::io::Error,
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

impl ClientError {
    /// Whether it is about an answer that this client does not take, after the protocol has ended as with any
    /// other: the connection is as good as before.
    #[must_use]
    pub fn refuses_answer(&self) -> bool {
        matches!(self, Self::Backend(BackendError::Answer { .. }))
    }

    /// For the first of several inputs of which some were refused an answer: `refused` of them.
    #[must_use]
    pub fn of_some(self, index: usize, [refused, inputs]: [usize; 2]) -> Self {
        match self {
            Self::Backend(BackendError::Answer { what }) if inputs > 1 => {
                let what = format!("{refused} of {inputs} inputs have none, that at index {index} first: {what}");
                Self::Backend(BackendError::Answer { what })
            }
            other => other,
        }
    }

    /// Names the server where it was lost `during` something.
    pub(crate) fn of(self, channel: &Channel, during: &'static str) -> Self {
        let lost = |error: &NetError| error.is_gone() || matches!(error, NetError::Stalled { .. });
        match self {
            // Its connection was closed from here, and so is lost.
            Self::Backend(BackendError::Stopped) => {
                let error = NetError::from_io("stopping", &std::io::ErrorKind::ConnectionAborted.into());
                Self::Lost { server: server_of(channel), during, error }
            }
            Self::Net(error) | Self::Backend(BackendError::Net(error)) if lost(&error) => {
                Self::Lost { server: server_of(channel), during, error }
            }
            other => other,
        }
    }

    /// An operating-system error with the file it is about.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

/// The address at the other end.
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
