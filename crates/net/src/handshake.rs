//! The opening message: both parties state what they are about to do, then compare.
use crate::{Channel, NetError, Tag};

/// Version of everything that goes over the wire; raised with every change of a message.
pub const PROTOCOL_VERSION: u32 = 1;

/// Digest that stands for "no model chosen yet".
pub const NO_MODEL: [u8; 32] = [0; 32];

const MAGIC: [u8; 8] = *b"tacit\0hs";
const MAX_HELLO_BYTES: usize = 1024;

/// What a party is about to do. Compared in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the party.
    pub version: u32,
    /// Digest of the cryptographic parameters in use.
    pub parameters: [u8; 32],
    /// Digest of the model's public part, or [`NO_MODEL`].
    pub model: [u8; 32],
}

impl Hello {
    /// A hello of this build's version.
    #[must_use]
    pub fn new(parameters: [u8; 32], model: [u8; 32]) -> Self {
        Self { version: PROTOCOL_VERSION, parameters, model }
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.parameters);
        out.extend_from_slice(&self.model);
        out
    }

    /// Parses what follows the magic as far as the version allows.
    fn check(&self, bytes: &[u8]) -> Result<(), NetError> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Err(NetError::NotTacit { got: bytes.iter().take(16).copied().collect() });
        };
        let malformed = || NetError::Malformed {
            tag: Tag::HELLO,
            what: format!("it has {} bytes, version {} has {}", bytes.len(), self.version, self.to_bytes().len()),
        };
        let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        // The version comes before the length check: another version may have another layout.
        let theirs = u32::from_le_bytes(*version);
        if theirs != self.version {
            return Err(NetError::VersionMismatch { ours: self.version, theirs });
        }
        let (parameters, rest) = rest.split_first_chunk::<32>().ok_or_else(malformed)?;
        let (model, rest) = rest.split_first_chunk::<32>().ok_or_else(malformed)?;
        if !rest.is_empty() {
            return Err(malformed());
        }
        if *parameters != self.parameters {
            return Err(NetError::ParametersMismatch {
                ours: short_hex(&self.parameters),
                theirs: short_hex(parameters),
            });
        }
        if *model != self.model {
            return Err(NetError::ModelMismatch { ours: short_hex(&self.model), theirs: short_hex(model) });
        }
        Ok(())
    }
}

/// Sends this party's view, then receives the peer's and compares: a mismatch is named on both sides.
///
/// # Errors
/// [`NetError::NotTacit`], [`NetError::VersionMismatch`], [`NetError::ParametersMismatch`], [`NetError::ModelMismatch`], or a failure
/// of the channel. The channel must be dropped afterwards.
pub fn handshake(channel: &mut Channel, ours: &Hello) -> Result<(), NetError> {
    channel.send(Tag::HELLO, &ours.to_bytes())?;
    let theirs = channel.recv_max(Tag::HELLO, MAX_HELLO_BYTES)?;
    ours.check(&theirs)
}

fn short_hex(digest: &[u8; 32]) -> String {
    digest[..8].iter().map(|b| format!("{b:02x}")).collect()
}
