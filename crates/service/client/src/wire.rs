//! Requests and answers between client and server, around the phases of a back end. Both parties
//! use this module.
//!
//! After TLS (with [`tacit_net::tls::ALPN`]) the parties compare [`Hello::without_model`]s, and the
//! server sends [`Reply::Welcome`]. From then on the client asks and the server answers. The public
//! part follows [`Reply::Model`] as a message of its own. Both parties then compare
//! [`Hello::for_model`]: digests of plan and public part. After [`Reply::Go`] both parties run the
//! phase on the same connection. The server then reports its figures with [`Reply::Done`].
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

pub use kept::{Half, ModelAndBackend, Upload};

/// Tag of a [`Request`].
pub const REQUEST: Tag = Tag::new(0x0101, "request");
/// Tag of a [`Reply`].
pub const REPLY: Tag = Tag::new(0x0102, "reply");
/// Tag of the public part of a lowered model.
pub const PUBLIC: Tag = Tag::new(0x0103, "public part");

/// Largest request, in bytes: a list of [`MAX_IDS`] ids.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Largest answer apart from a public part, in bytes: a catalog.
pub const MAX_REPLY_BYTES: usize = 1 << 20;
/// Most ids in one request or answer.
pub const MAX_IDS: usize = 2048;

/// The connection failed, or a message is malformed or misplaced.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed or the peer broke the protocol.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A message does not decode, or does not belong at this point.
    #[error("unexpected {what} from the peer: {detail}")]
    Unexpected {
        /// Name of the message.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
}

/// A client's name for an input, unique among its live inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId(pub u64);

impl InputId {
    /// Draws a random name.
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
    /// Sixteen hexadecimal digits: the name of the input in logs and records of both parties.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Text that is not the name of an input.
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
    /// A person or program waits for the answer.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// The answer may wait until the server has room.
    Batch,
}

/// Terms on which an input is to be answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Milliseconds from now after which the answer is no longer wanted; `None`: no limit.
    pub timeout_ms: Option<u64>,
    /// How soon the answer is needed.
    pub deadline: Deadline,
}

/// One input that the open model is to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Name of the input.
    pub name: InputId,
    /// The notice that announced the input.
    pub notice: Option<InputId>,
    /// Stored material to use.
    pub material: Option<MaterialId>,
    /// Its terms.
    pub terms: Terms,
}

/// Notice of one input for the open model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// Name of the input.
    pub name: InputId,
    /// Milliseconds until the input is expected, if known. The time to live counts from then.
    pub expected_ms: Option<u64>,
    /// Milliseconds after which the server forgets the notice and burns its material, capped by the
    /// server's own limit.
    pub ttl_ms: Option<u64>,
}

/// The client's machine, for the server's estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// Threads for computation.
    pub threads: u16,
    /// Class of its link.
    pub link: LinkClass,
    /// Memory in MiB; 0: unknown.
    pub memory_mib: u32,
}

/// Rough class of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkClass {
    /// At least about 100 Mbit/s, a few milliseconds.
    #[default]
    Lan,
    /// Tens of Mbit/s, tens of milliseconds.
    Broadband,
    /// Less than `Broadband`.
    Slow,
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the catalog.
    List,
    /// Opens a model with a back end for the rest of the connection.
    Open {
        /// Name in the catalog.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        model: String,
        /// Name of the back end.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        backend: String,
        /// The client's machine, for the server's estimates.
        device: Device,
    },
    /// Runs the back end's setup.
    Setup,
    /// Queues one input for an answer. A connection of the client then runs the phases with
    /// [`Prepare`](Self::Prepare) and [`Infer`](Self::Infer). The input is withdrawn when the
    /// connections that asked for it or ran its phases end.
    Ask(Ask),
    /// Announces an input, so that its material may be made before. The notice is withdrawn as an
    /// input, unless its material is on disk.
    Announce(Announce),
    /// Withdraws the input or notice of this name.
    Cancel {
        /// Name of the input.
        name: InputId,
    },
    /// Makes material for one input, stored on disk, or in memory for this client's connections.
    /// The server may delay the phase ([`Reply::Waiting`]).
    Prepare {
        /// A fresh id.
        id: MaterialId,
        /// The client's folder that gets the other half; `None`: memory only.
        folder: Option<FolderId>,
        /// The input or notice that the material is for; `None` for stock.
        of: Option<InputId>,
    },
    /// Answers one input with this material; without material exactly where the back end has no
    /// offline phase. The server may delay the phase ([`Reply::Waiting`]).
    Infer {
        /// The material.
        id: Option<MaterialId>,
        /// The input that was asked for; `None` asks for one now, on the default terms.
        of: Option<InputId>,
    },
    /// Lists ids of this client's material for the open model that are ready on disk.
    Stored,
    /// Lists ids of this client's material on disk, for any model, whose other halves went to one
    /// of the client's folders. This connection uses that folder from now on.
    Reconcile {
        /// The folder.
        folder: FolderId,
        /// Only ids after this one: answers are ordered and have at most [`MAX_IDS`].
        after: Option<MaterialId>,
    },
    /// Lists all of this client's material on disk, for any model and folder.
    Halves {
        /// Only ids after this one: answers are ordered and have at most [`MAX_IDS`].
        after: Option<MaterialId>,
    },
    /// Destroys material of this client, for any model.
    Discard {
        /// The ids, at most [`MAX_IDS`].
        ids: Vec<MaterialId>,
        /// The client's folder that has lost the other halves; `None`: the user asked for this. The
        /// server does nothing while another connection uses the folder, which may just have
        /// claimed the halves.
        lost_by: Option<FolderId>,
    },
    /// Ends the connection.
    Bye,
    /// Makes material for this client's stock, on disk, once the server is idle and the stock is
    /// below the need that the client's own rate gives ([`Reply::Waiting`]).
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
    /// Sets the batch size of all later requests: a batch counts as one input for the scheduler.
    Batch {
        /// Most inputs per batch; 1, the initial value, is a single input.
        inputs: u32,
    },
    /// Announces how many inputs of the open model one call asks for. Refused if the day's quota
    /// has fewer left.
    Call {
        /// Number of inputs.
        inputs: u32,
    },
    /// Lists the uploads of this client that the server stores, for any model.
    Uploads,
    /// Deletes the upload of this name.
    DeleteUpload {
        /// The name under which the client sent it.
        name: UploadName,
    },
}

impl Request {
    /// Whether the request starts a phase of an input once it is scheduled.
    #[must_use]
    pub const fn is_phase(&self) -> bool {
        matches!(self, Self::Prepare { .. } | Self::Refill { .. } | Self::Infer { .. })
    }

    /// Name of the request, to follow "refused" and "asked for" in messages.
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

    /// The input that the request is about; `None` for others and for stock.
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

    /// Decodes a request from the payload of a [`REQUEST`] message.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are not a request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, "request")
    }
}

/// A model on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name by which a client opens it.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub name: String,
    /// Back ends that offer the model, in the server's order of preference.
    pub backends: Vec<Offer>,
}

/// A back end that offers a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the back end.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub backend: String,
    /// [`public_digest`] of the model's public part.
    pub public: [u8; 32],
}

/// An answer of the server.
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
    /// The server has noted the request, notice or withdrawal.
    Noted {
        /// Why the server ignores the notice that was named, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        notice_ignored: Option<String>,
    },
    /// The phase has not begun; [`Go`](Self::Go) or a refusal follows later. Repeated as a sign of
    /// life.
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
        /// Bytes of material that the server stores.
        material_bytes: u64,
    },
    /// Ids of material.
    Ids(Vec<MaterialId>),
    /// Answer to [`Request::Reconcile`].
    Reconciled {
        /// The server's folder; `None` if the server stores no material.
        folder: Option<FolderId>,
        /// Ids that are ready there for the client's folder.
        ids: Vec<MaterialId>,
    },
    /// Halves of material.
    Halves(Vec<Half>),
    /// The server refuses; the connection stays usable unless the server closes it.
    Refused {
        /// Reason, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        reason: String,
        /// Seconds after which the request may be granted, for limits per minute or day.
        again_s: Option<u64>,
    },
    /// The batch size of all later requests.
    Batch {
        /// As many as were asked for, or fewer.
        inputs: u32,
    },
    /// Uploads of this client that the server stores.
    Uploads(Vec<Upload>),
    /// The upload is deleted.
    Deleted {
        /// Number of uploads that had this name.
        uploads: u32,
    },
    /// The server ends the connection. May arrive unasked and in place of any other answer.
    Goodbye {
        /// Reason, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        reason: String,
    },
}

/// Digest of the public part, on which both parties must agree.
#[must_use]
pub fn public_digest(public: &[u8]) -> [u8; 32] {
    digest("tacit 2026-11 public part", &[public])
}

/// Queues a message to be sent with the next one.
///
/// # Errors
/// Errors of the channel.
pub(crate) fn gather<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), NetError> {
    let bytes = postcard::to_stdvec(message).expect("plain data is always encoded into a growing buffer");
    channel.send(tag, &bytes)
}

/// Sends a message now.
///
/// # Errors
/// Errors of the channel.
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

/// Receives the next answer, refusals included.
///
/// # Errors
/// Errors of the channel; [`WireError::Unexpected`]: the bytes are not an answer.
pub fn recv_reply(channel: &mut Channel) -> Result<Reply, WireError> {
    decode(&channel.recv_max(REPLY, MAX_REPLY_BYTES)?, "reply")
}

/// The answer that arrived in place of a message of a phase, if there is one.
#[must_use]
pub fn reply_instead(channel: &mut Channel) -> Option<Reply> {
    decode(&channel.came_instead(REPLY, MAX_REPLY_BYTES)?, "reply").ok()
}

/// The error for a well-formed answer that does not belong at this point.
#[must_use]
pub fn misplaced(request: &'static str, reply: &Reply) -> WireError {
    let reply: String = format!("{reply:?}").chars().take(200).collect();
    WireError::Unexpected { what: "reply", detail: format!("{reply} to {request}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_decode_completely() {
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
