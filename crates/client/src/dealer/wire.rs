//! What parties and their dealer say. A connection has many requests, each with one answer; bytes of known
//! length follow some of them.
use crate::wire::{WireError, decode, send};
use serde::{Deserialize, Serialize};
use tacit_backends::seam::{Claim, Seal, Ticket};
use tacit_net::{Channel, NetError, Tag};

/// A request to the dealer.
pub const ASK: Tag = Tag::new(0x0501, "request to the dealer");
/// The dealer's answer.
pub const ANSWER: Tag = Tag::new(0x0502, "answer of the dealer");
/// Bytes that a request or an answer announces.
pub const BYTES: Tag = Tag::new(0x0503, "bytes for or from the dealer");

/// Largest request or answer.
pub const MAX_BYTES: usize = 4096;
/// Largest public part of a model that a dealer takes.
pub const MAX_PUBLIC: u64 = 64 << 20;
/// Largest dealer's part of a model.
pub const MAX_PART: u64 = 1 << 20;
/// Largest client's half: a seed, or with correction words as much as any material may have.
pub const MAX_CLIENT_HALF: u64 = 8 << 30;
/// Piece of a half.
pub const PIECE: usize = 1 << 20;

/// What a party asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// A server's model; the public part and the dealer's follow.
    Register {
        /// Id of the back end.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        backend: String,
        /// Length of the public part.
        public: u64,
        /// Length of the dealer's.
        part: u64,
    },
    /// New material for a model.
    Deal {
        /// The digest of the plan for one input.
        digest: [u8; 32],
        /// Inputs that it is for.
        batch: u32,
        /// Whom it is for.
        seal: Seal,
    },
    /// The client's half.
    Fetch {
        /// Which.
        ticket: Ticket,
        /// That it is for this client.
        claim: Claim,
    },
    /// The client has its half. Not answered.
    Taken {
        /// Which.
        ticket: Ticket,
    },
    /// The client gives a material up for an audit.
    Consent {
        /// Which.
        ticket: Ticket,
        /// That it is this client's.
        claim: Claim,
    },
    /// What a server's material was dealt from.
    Open {
        /// Which.
        ticket: Ticket,
    },
    /// New material for a model, for nobody yet.
    Ahead {
        /// The digest of the plan for one input.
        digest: [u8; 32],
        /// Inputs that it is for.
        batch: u32,
    },
    /// Whose a material is that was dealt for nobody yet.
    Bind {
        /// Which.
        ticket: Ticket,
        /// Whom it is for.
        seal: Seal,
    },
}

impl Ask {
    /// Reads a request.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, "request to the dealer")
    }
}

/// What the dealer answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was done.
    Done,
    /// The server's half follows, in pieces.
    Dealt {
        /// For the client.
        ticket: Ticket,
        /// Length of the half.
        bytes: u64,
    },
    /// The client's half follows, in pieces.
    Half {
        /// Its length.
        bytes: u64,
    },
    /// The model must be registered first; or there is no such material (any more).
    Unknown,
    /// A material's seed.
    Opened {
        /// Of the dealing.
        seed: [u8; 16],
    },
    /// Not done.
    Refused {
        /// Why, for people.
        #[serde(deserialize_with = "tacit_foreign::text::decoded")]
        reason: String,
    },
}

/// Asks, and hears the answer.
///
/// # Errors
/// Of the channel; [`WireError::Unexpected`]: what comes is no answer.
pub fn ask(channel: &mut Channel, request: &Ask, parts: &[&[u8]]) -> Result<Answer, WireError> {
    send(channel, ASK, request)?;
    parts.iter().try_for_each(|part| channel.send(BYTES, part))?;
    channel.flush()?;
    decode(&channel.recv_max(ANSWER, MAX_BYTES)?, "answer of the dealer")
}

/// Answers.
///
/// # Errors
/// Of the channel.
pub fn answer(channel: &mut Channel, answer: &Answer) -> Result<(), NetError> {
    send(channel, ANSWER, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_or_not_at_all() {
        let request = Ask::Fetch { ticket: [7; 32], claim: Claim { nonce: [1; 32], digest: [2; 32] } };
        let mut bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(Ask::from_bytes(&bytes).unwrap(), request);
        assert!(Ask::from_bytes(&bytes[..9]).is_err());
        bytes.push(0);
        assert!(Ask::from_bytes(&bytes).is_err());
        assert!(Ask::from_bytes(&[77]).is_err());
    }
}
