//! Messages of the protocol.
//!
//! Setup: the client names its key set by 32 random bytes; the server says whether it has it. If not, the
//! client sends the keys in the order of the public part, each with a digest, and the server confirms all of
//! them. Online: a ciphertext up, a ciphertext down.

use tacit_net::Tag;

use crate::seam::digest;

pub(super) const HELLO: Tag = Tag::new(0x0601, "name of a key set");
pub(super) const WELCOME: Tag = Tag::new(0x0602, "whether keys are needed");
pub(super) const KEY: Tag = Tag::new(0x0603, "switching key");
pub(super) const CONFIRMED: Tag = Tag::new(0x0604, "digest of all keys");
pub(super) const INPUT: Tag = Tag::new(0x0605, "encrypted input");
pub(super) const OUTPUT: Tag = Tag::new(0x0606, "encrypted output");

/// Bytes of a key set's name. Whoever knows it may use the set.
pub(super) const HELLO_BYTES: usize = 32;
/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;
/// What the server says of a key set.
pub(super) const WELCOME_BYTES: usize = 1;

/// The server's answer to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Welcome {
    /// It has the keys.
    Known,
    /// It wants them.
    Send,
    /// It has no room for them.
    Full,
}

impl Welcome {
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Known => 0,
            Self::Send => 1,
            Self::Full => 2,
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        match bytes {
            [0] => Ok(Self::Known),
            [1] => Ok(Self::Send),
            [2] => Ok(Self::Full),
            other => Err(format!("an answer of {} bytes that means nothing", other.len())),
        }
    }
}

/// Digest of the key in place `index` of the set `name` for the plan `plan`.
pub(super) fn key_digest(plan: &[u8; 32], name: &[u8], index: usize, bytes: &[u8]) -> [u8; DIGEST] {
    digest("tacit 2026-11 ckks key", &[plan, name, &(index as u64).to_le_bytes(), bytes])
}

/// Digest of a whole set, from those of its keys.
pub(super) fn set_digest(plan: &[u8; 32], digests: &[[u8; DIGEST]]) -> [u8; DIGEST] {
    digest("tacit 2026-11 ckks key set", &[plan, &digests.concat()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_three() {
        for answer in [Welcome::Known, Welcome::Send, Welcome::Full] {
            assert_eq!(Welcome::from_bytes(&[answer.to_byte()]), Ok(answer));
        }
        assert!(Welcome::from_bytes(&[3]).is_err() && Welcome::from_bytes(&[]).is_err());
    }
}
