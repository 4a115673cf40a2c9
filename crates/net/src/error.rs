//! Everything that can go wrong between two parties, by name.
use crate::Tag;
use crate::tls_error::explain;
use std::io;

/// An error of a channel or transport. After any of them the channel refuses further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The frame that came has another tag than the protocol expects here.
    #[error(
        "expected message {expected}, but one of {got} came: the parties are at different steps, or the frame is damaged"
    )]
    UnexpectedTag {
        /// What this party waited for.
        expected: Tag,
        /// What the frame says it is.
        got: Tag,
    },
    /// A message whose length is fixed by the protocol has another length.
    #[error("message {tag} must have {expected} bytes, but its frames make {got}{}", if *.more { " or more" } else { "" })]
    UnexpectedLength {
        /// Tag of the message.
        tag: Tag,
        /// Length this party derived for it, in bytes.
        expected: usize,
        /// Length that the frames up to here announce, in bytes.
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
    /// The content of a message is not what its sender may write.
    #[error("message {tag} is malformed: {what}")]
    Malformed {
        /// Tag of the message.
        tag: Tag,
        /// What is wrong with it.
        what: String,
    },
    /// The peer closed the connection between two messages.
    #[error("the peer closed the connection while message {tag} was expected")]
    Closed {
        /// What this party waited for.
        tag: Tag,
    },
    /// The connection ended inside a frame.
    #[error("the connection ended inside message {tag}: {got} of {expected} bytes of the frame came")]
    Truncated {
        /// Tag of the expected message.
        tag: Tag,
        /// Bytes of the header or payload that came.
        got: usize,
        /// Bytes the header or payload has.
        expected: usize,
    },
    /// The peer made no progress in time.
    #[error("{doing}: {detail}")]
    Stalled {
        /// What this party was doing, with the tag.
        doing: String,
        /// How long it waited.
        detail: String,
    },
    /// The operating system or the transport failed.
    #[error("{doing}: {detail}")]
    Io {
        /// What this party was doing, with the tag or address.
        doing: String,
        /// Kind given by the operating system.
        kind: io::ErrorKind,
        /// Its message.
        detail: String,
    },
    /// TLS keys or certificates are unusable, or the TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// An address that is none.
    #[error("`{given}` is not an address: {what}; write HOST:PORT, as in server.example:7878 or [::1]:7878")]
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
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
    /// Names an I/O error: timeouts are stalls, what TLS says of the peer is said in words, the rest keeps
    /// its kind.
    pub fn from_io(doing: impl Into<String>, error: &io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::Tls(explain(tls));
        }
        let (doing, detail) = (doing.into(), plain(error));
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Stalled { doing, detail },
            kind => Self::Io { doing, kind, detail },
        }
    }

    /// That an address cannot be listened on, and the option that chooses another.
    pub fn listening(address: impl std::fmt::Display, option: &str, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; another program has it: choose another with {option} (port 0: any that is free)")
            }
            io::ErrorKind::AddrNotAvailable => format!("; it is none of this machine's: choose one with {option}"),
            io::ErrorKind::PermissionDenied => format!("; ports below 1024 are root's: choose another with {option}"),
            _ => String::new(),
        };
        let (doing, detail) = (format!("listening on {address}"), plain(error) + &hint);
        Self::Io { doing, kind: error.kind(), detail }
    }

    /// What happened, for somebody who knows no messages of the protocol: without tags.
    #[must_use]
    pub fn plainly(&self) -> String {
        match self {
            Self::Closed { .. } => "the other side closed the connection".into(),
            Self::Truncated { .. } => "the connection ended within a message".into(),
            Self::Stalled { detail, .. } | Self::Io { detail, .. } => detail.clone(),
            other => other.to_string(),
        }
    }

    /// What the peer sent that nobody sends who follows the protocol, if that is what it was.
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

    /// Whether the peer, or the way to it, is gone: it closed, broke off, or the system says so.
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

/// What the system says, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error ").unwrap_or(text.len());
    text[..end].to_owned()
}
