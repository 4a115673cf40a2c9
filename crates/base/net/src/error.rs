//! Errors of channels and transports.
use crate::Tag;
use crate::tls_error::explain;
use std::io;

/// An error of a channel or transport. After any of them the channel refuses further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A frame has another tag than the protocol expects here.
    #[error(
        "expected message {expected}, but one of {got} came: the parties are at different steps, or the frame is damaged"
    )]
    UnexpectedTag {
        /// Tag that this party waited for.
        expected: Tag,
        /// Tag of the frame.
        got: Tag,
    },
    /// A message whose length is fixed by the protocol has another length.
    #[error("message {tag} must have {expected} bytes, but its frames make {got}{}", if *.more { " or more" } else { "" })]
    UnexpectedLength {
        /// Tag of the message.
        tag: Tag,
        /// Length this party derived for it, in bytes.
        expected: usize,
        /// Length announced by the frames so far, in bytes.
        got: usize,
        /// Whether the peer announced further frames.
        more: bool,
    },
    /// A message of variable length is longer than this party allows.
    #[error("message {tag} may have at most {max} bytes, but {got} were announced")]
    TooLong {
        /// Tag of the message.
        tag: Tag,
        /// Longest message accepted here, in bytes.
        max: usize,
        /// Length announced so far, in bytes.
        got: usize,
    },
    /// A frame announces more than any frame may carry.
    #[error("a frame of message {tag} announces {got} bytes, more than the {max} that any frame may carry")]
    FrameTooLong {
        /// Tag of the message.
        tag: Tag,
        /// Announced payload length, in bytes.
        got: usize,
        /// [`MAX_FRAME_BYTES`](crate::MAX_FRAME_BYTES).
        max: usize,
    },
    /// The checksum does not match: bytes were changed, lost, repeated or reordered.
    #[error("frame {frame} (message {tag}) fails its checksum: bytes were changed, lost or reordered on the way")]
    Checksum {
        /// Tag of the message.
        tag: Tag,
        /// Number of the frame on this connection, from 0.
        frame: u64,
    },
    /// The content of a message breaks the protocol.
    #[error("message {tag} is malformed: {what}")]
    Malformed {
        /// Tag of the message.
        tag: Tag,
        /// The fault.
        what: String,
    },
    /// The peer closed the connection between two messages.
    #[error("the peer closed the connection while message {tag} was expected")]
    Closed {
        /// Tag that this party waited for.
        tag: Tag,
    },
    /// The connection ended inside a frame.
    #[error("the connection ended inside message {tag}: {got} of {expected} bytes of the frame came")]
    Truncated {
        /// Tag of the expected message.
        tag: Tag,
        /// Bytes received of the header or payload.
        got: usize,
        /// Bytes the header or payload has.
        expected: usize,
    },
    /// The peer made no progress in time.
    #[error("{doing}: {detail}")]
    Stalled {
        /// The action that failed, with the tag.
        doing: String,
        /// Time that the party waited.
        detail: String,
    },
    /// An error of the operating system or the transport.
    #[error("{doing}: {detail}")]
    Io {
        /// The action that failed, with the tag or address.
        doing: String,
        /// Kind given by the operating system.
        kind: io::ErrorKind,
        /// Message of the operating system.
        detail: String,
    },
    /// TLS keys or certificates are unusable, or the TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// An address that cannot be parsed.
    #[error("`{given}` is not an address: {what}; write HOST:PORT, as in server.example:7878 or [::1]:7878")]
    Address {
        /// The text given as an address.
        given: String,
        /// The fault.
        what: &'static str,
    },
    /// The peer does not speak this protocol at all.
    #[error("the peer is not a tacit party: its opening message starts with {got:02x?}")]
    NotTacit {
        /// First bytes of its message.
        got: Vec<u8>,
    },
    /// The peers speak different versions.
    #[error("protocol version mismatch: ours is {ours}, the peer's is {theirs}; update the older side")]
    VersionMismatch {
        /// This party's version.
        ours: u32,
        /// The peer's version.
        theirs: u32,
    },
    /// The peers have different public parts of the model.
    #[error("public part mismatch: ours has digest {ours}, the peer's {theirs}; open the model again")]
    PublicMismatch {
        /// This party's digest, hexadecimal.
        ours: String,
        /// The peer's digest, hexadecimal.
        theirs: String,
    },
    /// The peers made different plans of the same public part.
    #[error(
        "plan mismatch: ours has digest {ours}, the peer's {theirs}; the programs plan this model differently: update the older side"
    )]
    PlanMismatch {
        /// This party's digest, hexadecimal.
        ours: String,
        /// The peer's digest, hexadecimal.
        theirs: String,
    },
    /// The channel failed earlier and must be dropped.
    #[error("this channel already failed and cannot be used again; first failure: {first}")]
    Failed {
        /// The first failure.
        first: String,
    },
}

impl NetError {
    /// Converts an I/O error: timeouts become `Stalled`, TLS errors `Tls` with an explanation, the
    /// rest keep their kind.
    pub fn from_io(doing: impl Into<String>, error: &io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::Tls(explain(tls));
        }
        let (doing, detail) = (doing.into(), plain_message(error));
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Stalled { doing, detail },
            kind => Self::Io { doing, kind, detail },
        }
    }

    /// The error for an address that cannot be listened on, with the option that chooses another.
    pub fn cannot_listen(address: impl std::fmt::Display, option: &str, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; another program has it: choose another with {option} (port 0: any that is free)")
            }
            io::ErrorKind::AddrNotAvailable => format!("; it is none of this machine's: choose one with {option}"),
            io::ErrorKind::PermissionDenied => format!("; ports below 1024 are root's: choose another with {option}"),
            _ => String::new(),
        };
        let (doing, detail) = (format!("listening on {address}"), plain_message(error) + &hint);
        Self::Io { doing, kind: error.kind(), detail }
    }

    /// Describes the error without tags, for users who do not know the protocol.
    #[must_use]
    pub fn plain_text(&self) -> String {
        match self {
            Self::Closed { .. } => "the other side closed the connection".into(),
            Self::Truncated { .. } => "the connection ended within a message".into(),
            Self::Stalled { detail, .. } | Self::Io { detail, .. } => detail.clone(),
            other => other.to_string(),
        }
    }

    /// Describes the peer's breach of the protocol, if the error is one.
    #[must_use]
    pub fn breach(&self) -> Option<&'static str> {
        match self {
            Self::UnexpectedTag { .. } => Some("a message of another kind than comes next"),
            Self::UnexpectedLength { .. } => Some("a message of another length than it must have"),
            Self::TooLong { .. } | Self::FrameTooLong { .. } => Some("a message that is too long"),
            Self::Malformed { .. } => Some("a message that is malformed"),
            _ => None,
        }
    }

    /// Whether the peer or the link to it is gone: closed, broken off, or reported so by the
    /// system.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Closed { .. } | Self::Truncated { .. } => true,
            Self::Io { kind, .. } => matches!(
                kind,
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            ),
            _ => false,
        }
    }
}

fn plain_message(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error ").unwrap_or(text.len());
    text[..end].to_owned()
}
