//! Requests and answers between client and server, around the protocol phases.
//!
//! The client asks, the server answers; after [`Reply::Go`] both run the phase on the same connection, then the server reports
//! its figures with [`Reply::Done`]. The model's public section follows [`Reply::Model`] as a message of its own.
use crate::ServeError;
use crate::measure::Figures;
use serde::{Deserialize, Serialize};
use tacit_ids::MaterialId;
use tacit_net::{Channel, Tag};

pub(crate) const REQUEST: Tag = Tag::new(0x0101, "request");
pub(crate) const REPLY: Tag = Tag::new(0x0102, "reply");
pub(crate) const PUBLIC: Tag = Tag::new(0x0103, "public section");

/// Largest request: a list of [`MAX_IDS`] ids.
pub(crate) const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Largest answer apart from a public section: a catalog.
pub(crate) const MAX_REPLY_BYTES: usize = 1 << 20;
/// Most ids in one request or answer.
pub(crate) const MAX_IDS: usize = 2048;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The catalog.
    List,
    /// Use this model for the rest of the connection.
    Open { model: String },
    /// Make keys and base OTs.
    Setup,
    /// Make material for one input, kept on disk or in memory for this client's connections.
    Prepare { id: MaterialId, on_disk: bool },
    /// Use material for one input.
    Infer { id: MaterialId },
    /// Ids of this client's material for the model that are ready on disk.
    Stored,
    /// Destroy material.
    Discard { ids: Vec<MaterialId> },
    /// Nothing more.
    Bye,
}

impl Request {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Request::List => "the list of models",
            Request::Open { .. } => "to open the model",
            Request::Setup => "the setup",
            Request::Prepare { .. } => "to prepare material",
            Request::Infer { .. } => "the inference",
            Request::Stored => "the list of material",
            Request::Discard { .. } => "to destroy material",
            Request::Bye => "the goodbye",
        }
    }
}

/// A model on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name to open it by.
    pub name: String,
    /// Digest of its public section.
    pub digest: [u8; 32],
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The connection is accepted.
    Welcome,
    /// The catalog.
    Models(Vec<ModelInfo>),
    /// The public section follows.
    Model { bytes: u64 },
    /// The phase begins.
    Go,
    /// The phase is over; `material_bytes` is the size of what the server keeps.
    Done { figures: Figures, material_bytes: u64 },
    /// Ids.
    Ids(Vec<MaterialId>),
    /// Not granted; the connection stays usable unless the server closes it.
    Refused { reason: String },
}

pub(crate) fn send<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), ServeError> {
    let bytes = postcard::to_stdvec(message)
        .map_err(|e| ServeError::Unexpected { what: "message to send", detail: e.to_string() })?;
    channel.send(tag, &bytes)?;
    Ok(channel.flush()?)
}

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8], what: &'static str) -> Result<T, ServeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(ServeError::Unexpected { what, detail: format!("{} bytes left over", rest.len()) }),
        Err(e) => Err(ServeError::Unexpected { what, detail: e.to_string() }),
    }
}

pub(crate) fn recv_request(channel: &mut Channel) -> Result<Request, ServeError> {
    decode(&channel.recv_max(REQUEST, MAX_REQUEST_BYTES)?, "request")
}

/// The answer to `request`; a refusal is an error.
pub(crate) fn recv_reply(channel: &mut Channel, request: &'static str) -> Result<Reply, ServeError> {
    match decode(&channel.recv_max(REPLY, MAX_REPLY_BYTES)?, "reply")? {
        Reply::Refused { reason } => Err(ServeError::Refused { request, reason }),
        reply => Ok(reply),
    }
}

/// The error of a well-formed answer that does not belong here.
pub(crate) fn misplaced(request: &'static str, reply: &Reply) -> ServeError {
    let reply: String = format!("{reply:?}").chars().take(200).collect();
    ServeError::Unexpected { what: "reply", detail: format!("{reply} to {request}") }
}
