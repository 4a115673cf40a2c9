//! What a device and its helper say. A connection has many requests, each with one answer; the bytes of a
//! sealed material follow one of them.
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
/// Most bytes of a reason.
const MAX_REASON: usize = 500;

/// What material is made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct What {
    /// Name of the model at the server.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub model: String,
    /// Name of the back end.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub backend: String,
    /// Digest of the model's public part.
    pub public: [u8; 32],
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// The device's folder of material: the server's half is for it.
    pub folder: FolderId,
}

/// One material to be made. Wiped on drop.
#[derive(Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub id: MaterialId,
    /// What the device's choices follow from.
    pub seed: [u8; 16],
    /// What it is sealed with.
    pub seal: [u8; 32],
}

impl Drop for Job {
    fn drop(&mut self) {
        self.seed.zeroize();
        self.seal.zeroize();
    }
}

/// What a device asks.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// Make these: [`MAX_JOBS`] at most.
    Make {
        /// For what.
        what: What,
        /// Which.
        jobs: Vec<Job>,
    },
    /// How these stand: [`MAX_JOBS`] at most.
    Stand {
        /// Which.
        ids: Vec<MaterialId>,
    },
    /// The sealed bytes of one that is made.
    Fetch {
        /// Which.
        id: MaterialId,
        /// All bytes from this one on.
        from: u64,
    },
    /// The device has these, or wants them no more: [`MAX_JOBS`] at most.
    Taken {
        /// Which.
        ids: Vec<MaterialId>,
    },
}

impl Ask {
    /// Reads a request.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, ASK.name())
    }
}

/// How an ordered material stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Nobody has ordered it, or the helper was started anew since: it will not be made.
    Unknown,
    /// It will be made, or is being made.
    Waits,
    /// It can be fetched.
    Made {
        /// Sealed.
        bytes: u64,
    },
    /// It was not made, and will not be.
    Failed {
        /// Why, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        why: String,
    },
}

/// What a helper answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done, or will be.
    Done,
    /// In the order of the request.
    Standings(Vec<Standing>),
    /// The bytes follow, in pieces of [`PIECE`] bytes but for the last.
    Bytes {
        /// Of all of the sealed material.
        bytes: u64,
    },
    /// Not granted.
    Refused {
        /// Why, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        reason: String,
    },
}

/// A reason, cut to what an answer has room for.
pub(crate) fn reason(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}

/// Sends a message now; what it was encoded in is wiped.
///
/// # Errors
/// Of the channel.
pub fn send<T: Serialize>(channel: &mut Channel, tag: Tag, message: &T) -> Result<(), NetError> {
    let bytes = postcard::to_stdvec(message).expect("plain data is always encoded into a growing buffer");
    channel.send(tag, &Zeroizing::new(bytes))?;
    channel.flush()
}

/// The next message.
///
/// # Errors
/// Of the channel; [`WireError::Unexpected`]: the bytes are none.
pub fn recv<T: for<'de> Deserialize<'de>>(channel: &mut Channel, tag: Tag) -> Result<T, WireError> {
    decode(&Zeroizing::new(channel.recv_max(tag, MAX_BYTES)?), tag.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_messages_have_room() {
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
