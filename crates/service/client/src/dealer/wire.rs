//! Messages between parties and their dealer. A connection carries many requests, each with one
//! answer; bytes of known length follow some of them.
use crate::wire::{WireError, decode, send};
use serde::{Deserialize, Serialize};
use tacit_backends::seam::{Claim, Seal, Ticket};
use tacit_net::{Channel, NetError, Tag};

/// A request to the dealer.
pub const ASK: Tag = Tag::new(0x0501, "request to the dealer");
/// Tag of the dealer's answer.
pub const ANSWER: Tag = Tag::new(0x0502, "answer of the dealer");
/// Bytes that a request or an answer announces.
pub const BYTES: Tag = Tag::new(0x0503, "bytes for or from the dealer");

/// Largest request or answer, in bytes.
pub const MAX_BYTES: usize = 4096;
/// Largest public part of a model that a dealer accepts, in bytes.
pub const MAX_PUBLIC: u64 = 64 << 20;
/// Largest dealer's part of a model, in bytes.
pub const MAX_PART: u64 = 1 << 20;
/// Largest client's half, in bytes: a seed, or with correction words as much as any material may
/// have.
pub const MAX_CLIENT_HALF: u64 = 8 << 30;
/// Largest piece of a half, in bytes.
pub const PIECE: usize = 1 << 20;

/// A request of a party.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Registers a server's model; the public part and the dealer's part follow.
    Register {
        /// Id of the back end.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        backend: String,
        /// Length of the public part.
        public: u64,
        /// Length of the dealer's part.
        part: u64,
    },
    /// Deals new material for a model.
    Deal {
        /// The digest of the plan for one input.
        digest: [u8; 32],
        /// Batch size of the material.
        batch: u32,
        /// The client that it is for.
        seal: Seal,
    },
    /// Fetches the client's half.
    Fetch {
        /// The material's ticket.
        ticket: Ticket,
        /// Proof that the material is for this client.
        claim: Claim,
    },
    /// The client has its half. The dealer does not answer.
    Taken {
        /// The material's ticket.
        ticket: Ticket,
    },
    /// The client gives up a material for an audit.
    Consent {
        /// The material's ticket.
        ticket: Ticket,
        /// Proof that the material is this client's.
        claim: Claim,
    },
    /// Asks for the seed of a server's material.
    Open {
        /// The material's ticket.
        ticket: Ticket,
    },
    /// Deals new material for a model, for the pool: its client is not known yet.
    Ahead {
        /// The digest of the plan for one input.
        digest: [u8; 32],
        /// Batch size of the material.
        batch: u32,
    },
    /// Assigns a material of the pool to a client.
    Bind {
        /// The material's ticket.
        ticket: Ticket,
        /// The client that it is for.
        seal: Seal,
    },
}

impl Ask {
    /// Decodes a request.
    ///
    /// # Errors
    /// [`WireError::Unexpected`]: the bytes are not a request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        decode(bytes, "request to the dealer")
    }
}

/// An answer of the dealer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request is carried out.
    Done,
    /// The server's half follows, in pieces.
    Dealt {
        /// Ticket for the client.
        ticket: Ticket,
        /// Length of the half.
        bytes: u64,
    },
    /// The client's half follows, in pieces.
    Half {
        /// Length of the half.
        bytes: u64,
    },
    /// The model is not registered, or the material does not exist (any more).
    Unknown,
    /// A material's seed.
    Opened {
        /// Seed of the dealing.
        seed: [u8; 16],
    },
    /// The dealer refuses.
    Refused {
        /// Reason, for people.
        #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
        reason: String,
    },
}

/// Sends a request and receives the answer.
///
/// # Errors
/// Errors of the channel; [`WireError::Unexpected`]: the bytes are not an answer.
pub fn ask(channel: &mut Channel, request: &Ask, parts: &[&[u8]]) -> Result<Answer, WireError> {
    send(channel, ASK, request)?;
    parts.iter().try_for_each(|part| channel.send(BYTES, part))?;
    channel.flush()?;
    decode(&channel.recv_max(ANSWER, MAX_BYTES)?, "answer of the dealer")
}

/// Sends an answer.
///
/// # Errors
/// Errors of the channel.
pub fn answer(channel: &mut Channel, answer: &Answer) -> Result<(), NetError> {
    send(channel, ANSWER, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_decode_completely() {
        let request = Ask::Fetch { ticket: [7; 32], claim: Claim { nonce: [1; 32], digest: [2; 32] } };
        let mut bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(Ask::from_bytes(&bytes).unwrap(), request);
        assert!(Ask::from_bytes(&bytes[..9]).is_err());
        bytes.push(0);
        assert!(Ask::from_bytes(&bytes).is_err());
        assert!(Ask::from_bytes(&[77]).is_err());
    }
}
