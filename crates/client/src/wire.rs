//! Requests and answers between client and server, around the phases of a back end. Both parties use this
//! module.
//!
//! After TLS (with [`tacit_net::tls::ALPN`]) the parties compare [`Hello::opening`]s, and the server says
//! [`Reply::Welcome`]. From then on the client asks and the server answers. [`Reply::Model`] is followed by
//! the public part as a message of its own, and then by a comparison of [`Hello::opened`] at both: digests of
//! plan and public part. After [`Reply::Go`] both parties run the phase on the same connection, then the
//! server reports its figures with [`Reply::Done`].
mod kept;

use crate::measure::Figures;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tacit_backends::seam::{UploadName, digest};
use tacit_ids::{FolderId, MaterialId, NoRandomness};
#[cfg(doc)]
use tacit_net::Hello;
use tacit_net::{Channel, NetError, Tag};

pub use kept::{Half, Upload};

/// A [`Request`].
pub const REQUEST: Tag = Tag::new(0x0101, "request");
/// A [`Reply`].
pub const REPLY: Tag = Tag::new(0x0102, "reply");
/// The public part of a lowered model.
pub const PUBLIC: Tag = Tag::new(0x0103, "public part");

/// Largest request, in bytes: a list of [`MAX_IDS`] ids.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Largest answer apart from a public part, in bytes: a catalog.
pub const MAX_REPLY_BYTES: usize = 1 << 20;
/// Most ids in one request or answer.
pub const MAX_IDS: usize = 2048;

/// The connection failed, or a message is not one.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A message does not decode, or is not what comes here.
    #[error("unexpected {what} from the peer: {detail}")]
    Unexpected {
        /// Which message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
}

/// What a client calls an input that it asked for or announced: any number that no other live one of this
/// client's has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId(pub u64);

impl InputId {
    /// A number that nobody else has thought of.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn random() -> Result<Self, NoRandomness> {
        let MaterialId(bytes) = MaterialId::random()?;
        let (half, _) = bytes.split_first_chunk().expect("an id has sixteen bytes");
        Ok(Self(u64::from_le_bytes(*half)))
    }
}

impl fmt::Display for InputId {
    /// Sixteen hexadecimal digits: what logs and records of both parties have in common of an input.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Text that is no name of an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of an input: sixteen hexadecimal digits are")]
pub struct NotAName(String);

impl FromStr for InputId {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let is_name = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let name = u64::from_str_radix(text, 16).ok().filter(|_| is_name);
        name.map(Self).ok_or_else(|| NotAName(text.chars().take(40).flat_map(char::escape_debug).collect()))
    }
}

/// How soon an answer is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// Somebody waits for it.
    Interactive,
    /// The usual.
    #[default]
    Normal,
    /// When there is room.
    Batch,
}

/// On what terms an input is to be answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Milliseconds from now after which nobody wants the answer any more; none without end.
    pub timeout_ms: Option<u64>,
    /// How soon it is needed.
    pub deadline: Deadline,
}

/// One input that is to be answered by the open model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// What to call it.
    pub name: InputId,
    /// What announced it.
    pub notice: Option<InputId>,
    /// Stored material to use.
    pub material: Option<MaterialId>,
    /// On what terms.
    pub terms: Terms,
}

/// One input that will come for the open model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// What to call it.
    pub name: InputId,
    /// In how many milliseconds, if that is known. The time to live counts from there.
    pub expected_ms: Option<u64>,
    /// Milliseconds after which it is forgotten, and its material burnt; the server's limit is the most.
    pub ttl_ms: Option<u64>,
}

/// What a client's machine is to the server's estimates: the same job takes others another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// Threads that it computes with.
    pub threads: u16,
    /// Its link.
    pub link: LinkClass,
    /// Its memory in MiB; 0 where that is not said.
    pub memory_mib: u32,
}

/// A link, roughly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkClass {
    /// At least about 100 Mbit/s, a few milliseconds.
    #[default]
    Lan,
    /// Tens of Mbit/s, tens of milliseconds.
    Broadband,
    /// Less than that.
    Slow,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The catalog.
    List,
    /// Use this model with this back end for the rest of the connection.
    Open {
        /// Name in the catalog.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        model: String,
        /// Name of the back end.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        backend: String,
        /// What the server's estimates go by.
        device: Device,
    },
    /// The back end's setup.
    Setup,
    /// One input is to be answered. From now on it has its place in the queue; the connection, or another of
    /// this client's, comes for its phases with [`Prepare`](Self::Prepare) and [`Infer`](Self::Infer). It
    /// ends with the connections that asked or came for it.
    Ask(Ask),
    /// An input will come: its material may be made before. The notice is withdrawn with the connections that
    /// gave it or came for it, unless its material is on disk.
    Announce(Announce),
    /// Take back what was asked or announced under this name.
    Cancel {
        /// Which.
        name: InputId,
    },
    /// Make material for one input, kept on disk, or in memory for this client's connections. The answer may
    /// be some time in coming ([`Reply::Waiting`]).
    Prepare {
        /// A fresh id.
        id: MaterialId,
        /// On disk: the client's folder that gets the other half.
        folder: Option<FolderId>,
        /// What was asked or announced, whose material this is; none for stock.
        of: Option<InputId>,
    },
    /// Answer one input with this material; without any exactly where there is nothing to prepare. The answer
    /// may be some time in coming ([`Reply::Waiting`]).
    Infer {
        /// The material.
        id: Option<MaterialId>,
        /// What was asked; none asks for it now, on the usual terms.
        of: Option<InputId>,
    },
    /// Ids of this client's material for the open model that are ready on disk.
    Stored,
    /// Ids of this client's material on disk, for any model, whose other halves went to a folder of its own.
    /// This connection uses that folder from now on.
    Reconcile {
        /// The folder.
        folder: FolderId,
        /// Only ids behind this one: answers have [`MAX_IDS`] at most, in order.
        after: Option<MaterialId>,
    },
    /// All of this client's material on disk, for any model and folder.
    Halves {
        /// Only ids behind this one: answers have [`MAX_IDS`] at most, in order.
        after: Option<MaterialId>,
    },
    /// Destroy material of this client, for any model.
    Discard {
        /// Which, [`MAX_IDS`] at most.
        ids: Vec<MaterialId>,
        /// Not asked for by anybody, but because this folder of the client's has lost the other halves:
        /// nothing is done while another connection uses the folder, which may have taken them out a moment
        /// ago.
        lost_by: Option<FolderId>,
    },
    /// Nothing more.
    Bye,
    /// Make material for this client's stock, on disk, when the server has nothing else to do and only while
    /// the stock is below what the client's own rate asks for. The answer may be long in coming
    /// ([`Reply::Waiting`]).
    Refill {
        /// A fresh id.
        id: MaterialId,
        /// The client's folder that gets the other half.
        folder: FolderId,
        /// How many materials of this model the stock holds.
        held: u32,
        /// How many it may hold.
        most: u32,
    },
    /// All that this connection asks for from now on is for so many inputs at once: one input of the
    /// scheduler's, one material, one answer of an online phase.
    Batch {
        /// How many at most; 1 is one input, as at the beginning.
        inputs: u32,
    },
    /// So many inputs of the open model will be asked for, in one call. Refused where the day's quota has
    /// fewer left: before anything is made or counted for the first.
    Call {
        /// How many.
        inputs: u32,
    },
    /// What the server keeps of what this client sends once, for any model.
    Uploads,
    /// Delete what is kept under this name.
    DeleteUpload {
        /// As the client called it when it sent it.
        name: UploadName,
    },
}

impl Request {
    /// Whether a phase of an input runs for it, when its turn has come.
    #[must_use]
    pub const fn is_phase(&self) -> bool {
        matches!(self, Self::Prepare { .. } | Self::Refill { .. } | Self::Infer { .. })
    }

    /// What is asked, to be put after "refused" and "asked for".
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::List => "the list of models",
            Self::Open { .. } => "the model",
            Self::Setup => "the setup",
            Self::Ask(_) | Self::Infer { .. } | Self::Call { .. } => "the inference",
            Self::Announce(_) => "the notice",
            Self::Cancel { .. } => "the withdrawal of an input",
            Self::Prepare { .. } | Self::Refill { .. } => "the preparation of material",
            Self::Stored | Self::Reconcile { .. } | Self::Halves { .. } => "the list of material",
            Self::Discard { .. } => "the destruction of material",
            Self::Bye => "the goodbye",
            Self::Batch { .. } => "a batch",
            Self::Uploads => "the list of keys",
            Self::DeleteUpload { .. } => "the deletion of keys",
        }
    }

    /// The input that it is about, by its name; none where it is about none, or about stock.
    #[must_use]
    pub fn input(&self) -> Option<InputId> {
        match self {
            Self::Ask(ask) => Some(ask.name),
            Self::Announce(announce) => Some(announce.name),
            Self::Cancel { name } => Some(*name),
            Self::Prepare { of, .. } | Self::Infer { of, .. } => *of,
            _ => None,
        }
    }

    /// A request from the payload of a [`REQUEST`] message.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are no request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, "request")
    }
}

/// A model on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name to open it by.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub name: String,
    /// The back ends it is offered with, in the server's order of preference.
    pub backends: Vec<Offer>,
}

/// A back end that a model is offered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the back end.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub backend: String,
    /// [`public_digest`] of what a client gets.
    pub public: [u8; 32],
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The connection is accepted.
    Welcome,
    /// The catalog.
    Models(Vec<ModelInfo>),
    /// The public part follows.
    Model {
        /// Its length, [`MAX_PUBLIC_BYTES`](tacit_backends::seam::MAX_PUBLIC_BYTES) at most.
        bytes: u64,
    },
    /// What was asked, announced or taken back is noted.
    Noted {
        /// Why the notice that was named does not help, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        notice_ignored: Option<String>,
    },
    /// The phase has not begun; [`Go`](Self::Go) or a refusal comes later. Sent now and then, so that a
    /// client knows that the server lives.
    Waiting {
        /// Jobs that wait at the server.
        queued: u32,
    },
    /// The phase begins.
    Go,
    /// The phase is over.
    Done {
        /// The server's figures.
        figures: Figures,
        /// Size of what the server keeps.
        material_bytes: u64,
    },
    /// Ids.
    Ids(Vec<MaterialId>),
    /// The server's side of a [`Request::Reconcile`].
    Reconciled {
        /// The server's folder; none where it stores no material.
        folder: Option<FolderId>,
        /// What is ready there for the client's.
        ids: Vec<MaterialId>,
    },
    /// Material.
    Halves(Vec<Half>),
    /// Not granted; the connection stays usable unless the server closes it.
    Refused {
        /// Why, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        reason: String,
        /// Seconds after which it may be granted, where it is a limit that is used up for so long.
        again_s: Option<u64>,
    },
    /// What the connection asks for from now on is for so many inputs at once.
    Batch {
        /// As many as were asked for, or fewer.
        inputs: u32,
    },
    /// What the server keeps of what this client sends once.
    Uploads(Vec<Upload>),
    /// It is deleted.
    Deleted {
        /// How many there were under that name.
        uploads: u32,
    },
    /// The server ends the connection. May come where nothing was asked, and in place of any other answer.
    Goodbye {
        /// Why, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        reason: String,
    },
}

/// Digest that both parties must have of the public part.
#[must_use]
pub fn public_digest(public: &[u8]) -> [u8; 32] {
    digest("tacit 2026-11 public part", &[public])
}

/// Sends a message with the next one.
///
/// # Errors
/// Of the channel.
pub(crate) fn gather<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), NetError> {
    let bytes = postcard::to_stdvec(message).expect("plain data is always encoded into a growing buffer");
    channel.send(tag, &bytes)
}

/// Sends a message now.
///
/// # Errors
/// Of the channel.
pub fn send<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), NetError> {
    gather(channel, tag, message)?;
    channel.flush()
}

pub(crate) fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8], what: &'static str) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(WireError::Unexpected { what, detail: format!("{} bytes left over", rest.len()) }),
        Err(e) => Err(WireError::Unexpected { what, detail: e.to_string() }),
    }
}

/// The next answer, refusals included.
///
/// # Errors
/// Of the channel; [`WireError::Unexpected`]: the bytes are no answer.
pub fn recv_reply(channel: &mut Channel) -> Result<Reply, WireError> {
    decode(&channel.recv_max(REPLY, MAX_REPLY_BYTES)?, "reply")
}

/// The answer that came in place of a message of a phase, if one did.
#[must_use]
pub fn reply_instead(channel: &mut Channel) -> Option<Reply> {
    decode(&channel.came_instead(REPLY, MAX_REPLY_BYTES)?, "reply").ok()
}

/// The error of a well-formed answer that does not belong here.
#[must_use]
pub fn misplaced(request: &'static str, reply: &Reply) -> WireError {
    let reply: String = format!("{reply:?}").chars().take(200).collect();
    WireError::Unexpected { what: "reply", detail: format!("{reply} to {request}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_or_not_at_all() {
        let request = Request::Infer { id: Some(MaterialId::numbered(7)), of: Some(InputId(3)) };
        let mut bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        assert!(Request::from_bytes(&bytes[..5]).is_err());
        bytes.push(0);
        assert!(Request::from_bytes(&bytes).unwrap_err().to_string().contains("1 bytes left over"));
        assert!(Request::from_bytes(&[99]).is_err());
        let ids = vec![MaterialId([255; 16]); MAX_IDS];
        let most = Request::Discard { ids, lost_by: Some(FolderId([255; 16])) };
        assert!(postcard::to_stdvec(&most).unwrap().len() <= MAX_REQUEST_BYTES);
        let half = Half {
            id: MaterialId([255; 16]),
            model: [255; 32],
            plan: [255; 32],
            folder: FolderId([255; 16]),
            created: u64::MAX,
            bytes: u64::MAX,
            offered: true,
        };
        assert!(postcard::to_stdvec(&Reply::Halves(vec![half; MAX_IDS])).unwrap().len() <= MAX_REPLY_BYTES);
    }
}
