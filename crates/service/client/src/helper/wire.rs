//! Messages between a device and its helper. A connection carries many requests, each with one
//! answer; the bytes of a sealed material follow the answer to a fetch.
use crate::wire::{WireError, decode};
use serde::{Deserialize, Serialize};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, NetError, Tag};
use zeroize::{Zeroize, Zeroizing};

/// A request to the helper.
pub const ASK: Tag = Tag::new(0x0a01, "request to the helper");
/// The helper's answer.
pub const ANSWER: Tag = Tag::new(0x0a02, "answer of the helper");
/// A piece of a sealed material.
pub const BYTES: Tag = Tag::new(0x0a03, "sealed material of the helper");

/// Most materials in one request.
pub const MAX_JOBS: usize = 256;
/// Largest request or answer, in bytes.
pub const MAX_BYTES: usize = 256 << 10;
/// Largest piece of a sealed material, in bytes.
pub const PIECE: usize = 1 << 20;
const MAX_REASON: usize = 500;

/// Model, back end and folder that material is made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct What {
    /// Name of the model at the server.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub model: String,
    /// Name of the back end.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub backend: String,
    /// Digest of the model's public part.
    pub public: [u8; 32],
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// The device's folder of material, which the server's half names.
    pub folder: FolderId,
}

/// One material to be made. Wiped on drop.
#[derive(Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub id: MaterialId,
    /// Seed of the device's random choices.
    pub seed: [u8; 16],
    /// Key that seals the material.
    pub seal: [u8; 32],
}

impl Drop for Job {
    fn drop(&mut self) {
        self.seed.zeroize();
        self.seal.zeroize();
    }
}

/// A request of the device.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// Makes materials, at most [`MAX_JOBS`].
    Make {
        /// What they are made for.
        what: What,
        /// The materials.
        jobs: Vec<Job>,
    },
    /// Asks for the states of materials, at most [`MAX_JOBS`].
    Stand {
        /// The materials.
        ids: Vec<MaterialId>,
    },
    /// Fetches the sealed bytes of a finished material.
    Fetch {
        /// The material.
        id: MaterialId,
        /// First byte to send.
        from: u64,
    },
    /// Deletes materials, at most [`MAX_JOBS`]: the device has them or no longer wants them.
    Taken {
        /// The materials.
        ids: Vec<MaterialId>,
    },
}

impl Ask {
    /// Decodes a request.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are not a request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, ASK.name())
    }
}

/// State of an ordered material.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It was never ordered, or the helper was restarted since: it will not be made.
    Unknown,
    /// It is queued or being made.
    Waits,
    /// It can be fetched.
    Made {
        /// Size of the sealed file.
        bytes: u64,
    },
    /// Making it failed; it will not be made.
    Failed {
        /// Reason, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        why: String,
    },
}

/// An answer of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request is carried out, or will be.
    Done,
    /// States, in the order of the request.
    Standings(Vec<Standing>),
    /// The bytes follow, in pieces of [`PIECE`] bytes; the last may be smaller.
    Bytes {
        /// Size of the whole sealed material.
        bytes: u64,
    },
    /// The helper refuses.
    Refused {
        /// Reason, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        reason: String,
    },
}

pub(crate) fn reason(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}

/// Sends a message now and wipes its encoding.
///
/// # Errors
/// Errors of the channel.
pub fn send<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), NetError> {
    let bytes = postcard::to_stdvec(message).expect("plain data is always encoded into a growing buffer");
    channel.send(tag, &Zeroizing::new(bytes))?;
    channel.flush()
}

/// Receives the next message.
///
/// # Errors
/// Errors of the channel; [`WireError::Unexpected`]: the bytes do not decode.
pub fn recv<T: for<'de> Deserialize<'de>>(channel: &mut Channel, tag: Tag) -> Result<T, WireError> {
    decode(&Zeroizing::new(channel.recv_max(tag, MAX_BYTES)?), tag.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_messages_fit() {
        let ids = || (0..MAX_JOBS).map(|_| MaterialId([255; 16]));
        let jobs = ids().map(|id| Job { id, seed: [255; 16], seal: [255; 32] }).collect();
        let what = What {
            model: "m".repeat(200),
            backend: "b".repeat(50),
            public: [255; 32],
            plan: [255; 32],
            folder: FolderId([255; 16]),
        };
        let most = Ask::Make { what, jobs };
        assert!(postcard::to_stdvec(&most).unwrap().len() < MAX_BYTES);
        let failed = Standing::Failed { why: reason(&"x".repeat(2000)) };
        assert!(postcard::to_stdvec(&Answer::Standings(vec![failed; MAX_JOBS])).unwrap().len() < MAX_BYTES);
    }
}
