//! The opening message, in which both parties state version, plan and public part, and compare.
use crate::{Channel, NetError, Tag};

/// Version of all messages; raised with every change of one.
pub const PROTOCOL_VERSION: u32 = 7;

const MAGIC: [u8; 8] = *b"tacit\0hs";
/// Largest opening message accepted, in bytes.
pub const MAX_HELLO_BYTES: usize = 1024;

/// A party's version, plan and public part, compared in the order `version`, `public`, `plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the party.
    pub version: u32,
    /// Digest of the party's plan of the model, options included; zeros while no model is open.
    pub plan: [u8; 32],
    /// Digest of the model's public part; zeros while no model is open.
    pub public: [u8; 32],
}

impl Hello {
    /// A hello of this build's version before a model is open.
    #[must_use]
    pub fn without_model() -> Self {
        Self::for_model([0; 32], [0; 32])
    }

    /// A hello of this build's version for an open model.
    #[must_use]
    pub fn for_model(plan: [u8; 32], public: [u8; 32]) -> Self {
        Self { version: PROTOCOL_VERSION, plan, public }
    }

    /// The payload of a [`Tag::HELLO`] message.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.plan);
        out.extend_from_slice(&self.public);
        out
    }

    /// Compares the peer's payload with this hello.
    ///
    /// # Errors
    /// [`NetError::NotTacit`], [`NetError::VersionMismatch`], [`NetError::PublicMismatch`],
    /// [`NetError::PlanMismatch`].
    pub fn check(&self, bytes: &[u8]) -> Result<(), NetError> {
        // The version decides how far the bytes after the magic are parsed.
        let Some(tail) = bytes.strip_prefix(&MAGIC) else {
            return Err(NetError::NotTacit { got: bytes.iter().take(16).copied().collect() });
        };
        let (version, tail) = tail.split_first_chunk::<4>().ok_or_else(|| self.malformed(bytes))?;
        // The version comes before the length check: another version may have another layout.
        let peer_version = u32::from_le_bytes(*version);
        if peer_version != self.version {
            return Err(NetError::VersionMismatch { ours: self.version, theirs: peer_version });
        }
        let (plan, tail) = tail.split_first_chunk::<32>().ok_or_else(|| self.malformed(bytes))?;
        let (public, tail) = tail.split_first_chunk::<32>().ok_or_else(|| self.malformed(bytes))?;
        if !tail.is_empty() {
            return Err(self.malformed(bytes));
        }
        // The public part comes first: different public parts give different plans.
        if *public != self.public {
            return Err(NetError::PublicMismatch { ours: short_hex(&self.public), theirs: short_hex(public) });
        }
        if *plan != self.plan {
            return Err(NetError::PlanMismatch { ours: short_hex(&self.plan), theirs: short_hex(plan) });
        }
        Ok(())
    }

    fn malformed(&self, bytes: &[u8]) -> NetError {
        NetError::Malformed {
            tag: Tag::HELLO,
            what: format!("it has {} bytes, version {} has {}", bytes.len(), self.version, self.to_bytes().len()),
        }
    }
}

/// Sends this party's hello, then receives and compares the peer's: both sides name a mismatch.
///
/// # Errors
/// [`NetError::NotTacit`], [`NetError::VersionMismatch`], [`NetError::PublicMismatch`],
/// [`NetError::PlanMismatch`], or a failure of the channel. The channel must be dropped afterwards.
pub fn handshake(channel: &mut Channel, ours: &Hello) -> Result<(), NetError> {
    channel.send(Tag::HELLO, &ours.to_bytes())?;
    let peer_hello = channel.recv_max(Tag::HELLO, MAX_HELLO_BYTES)?;
    ours.check(&peer_hello)
}

fn short_hex(digest: &[u8; 32]) -> String {
    digest[..8].iter().map(|b| format!("{b:02x}")).collect()
}
