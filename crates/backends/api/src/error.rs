//! Errors of back ends.

/// Why a back end failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The data set does not allow a judgement of the model.
    #[error("{what}")]
    Data {
        /// The fault.
        what: String,
    },
    /// No back end has this name.
    #[error("there is no back end `{id}`; there are: {known}")]
    Unknown {
        /// The requested name, shortened.
        id: String,
        /// The names of all back ends.
        known: String,
    },
    /// The model cannot be lowered for this back end.
    #[error("node {node} `{name}` ({op}): {what}")]
    Unsupported {
        /// Index of the node.
        node: usize,
        /// Name of the node.
        name: String,
        /// Operation of the node.
        op: &'static str,
        /// The unsupported property, and a remedy.
        what: String,
    },
    /// An option is unknown or out of range.
    #[error("option `{key}` of the back end {backend}: {what}")]
    Option {
        /// The back end.
        backend: &'static str,
        /// The option.
        key: String,
        /// The fault.
        what: String,
    },
    /// The bytes are no valid public part.
    #[error("public part of a model: {what}")]
    Public {
        /// The fault in the part.
        what: String,
    },
    /// A model was lowered by another version of its back end.
    #[error(
        "public part of a model: of version {theirs} of {backend}, and this program has version {ours}: update the older program, and \
         lower the model again"
    )]
    Version {
        /// The back end.
        backend: &'static str,
        /// The version that the public part states.
        theirs: u32,
        /// The version of this program.
        ours: u32,
    },
    /// The bytes are no valid private part, or do not fit the public part.
    #[error("private part of a model: {what}")]
    Private {
        /// The fault in the part.
        what: String,
    },
    /// Stored material does not fit the plan.
    #[error("material: {what}")]
    Material {
        /// The fault.
        what: String,
    },
    /// Streamed material cannot be buffered or written.
    #[error("writing material: {what}")]
    Spool {
        /// The cause.
        what: String,
    },
    /// Keys that outlive a connection cannot be stored or read.
    #[error("keeping keys: {what}")]
    Keeping {
        /// The cause, and a remedy.
        what: String,
    },
    /// The client refuses the outputs as an answer. The protocol has ended as usual, so the connection stays
    /// usable and the server learns nothing of the refusal.
    #[error("the answer was refused: {what}")]
    Answer {
        /// The cause, and a remedy.
        what: String,
    },
    /// Calls were made in the wrong order.
    #[error("{0}")]
    Misuse(&'static str),
    /// A model or an input is wrong.
    #[error(transparent)]
    Graph(#[from] tacit_graph::GraphError),
    /// The connection failed, or the peer violated its rules.
    #[error(transparent)]
    Net(#[from] tacit_net::NetError),
    /// The protocol failed, or the peer violated it.
    #[error(transparent)]
    Protocol(Box<dyn std::error::Error + Send + Sync>),
    /// The operating system gives no random bytes.
    #[error("no randomness from the operating system: {0}")]
    Random(String),
    /// The file of a lowering is invalid or damaged.
    #[error("lowered model: {what}")]
    Lowering {
        /// The fault, and a remedy.
        what: String,
    },
    /// A file cannot be read.
    #[error("reading {path}: {source}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The dealer is missing, cannot be reached or refuses.
    #[error("dealer: {what}")]
    Dealer {
        /// The fault, and a remedy.
        what: String,
    },
    /// The phase was stopped from outside.
    #[error("stopped between two layers")]
    Stopped,
    /// `RingError` of the crate `tacit-ring`.
    #[error(transparent)]
    Ring(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of a back end's function.
pub type Result<T, E = BackendError> = std::result::Result<T, E>;

impl BackendError {
    /// The peer's deviation from the protocol, if that is the cause: one that no honest peer makes.
    #[must_use]
    pub fn deviation(&self) -> Option<&'static str> {
        match self {
            Self::Protocol(error) => match error.downcast_ref() {
                Some(tacit_mpc::MpcError::Misbehaviour { what, .. }) => Some(what),
                _ => None,
            },
            Self::Net(error) => error.breach(),
            _ => None,
        }
    }
}

impl From<tacit_mpc::MpcError> for BackendError {
    fn from(error: tacit_mpc::MpcError) -> Self {
        match error {
            tacit_mpc::MpcError::Net(error) => Self::Net(error),
            tacit_mpc::MpcError::Material { what } => Self::Material { what },
            other => Self::Protocol(Box::new(other)),
        }
    }
}
