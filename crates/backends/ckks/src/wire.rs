//! Messages of the protocol.
//!
//! Setup: the client names its key set by 32 random bytes, and says whether it stores the secret. The server
//! answers how many of its keys have arrived before. The client sends the others in the order of the public
//! part, each with a digest, and the server confirms these. Online: one ciphertext up, one down.

use tacit_net::Tag;

use tacit_backend_api::seam::{UploadName, digest};

pub(super) const HELLO: Tag = Tag::new(0x0601, "name of a key set");
pub(super) const WELCOME: Tag = Tag::new(0x0602, "which keys are needed");
pub(super) const KEY: Tag = Tag::new(0x0603, "switching key");
pub(super) const CONFIRMED: Tag = Tag::new(0x0604, "digest of all keys");
pub(super) const INPUT: Tag = Tag::new(0x0605, "encrypted input");
pub(super) const OUTPUT: Tag = Tag::new(0x0606, "encrypted output");

/// A key set's name, and one byte for `lasts`.
pub(super) const HELLO_BYTES: usize = 33;
/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;
/// Bytes of a [`Welcome`]: its kind, one byte, and two numbers.
pub(super) const WELCOME_BYTES: usize = 17;

/// The client's first message: the key set that it wants to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// Any connection of the client that knows the name may use the set.
    pub name: UploadName,
    /// Whether the client stores the secret, so that it can use the set after a restart.
    pub lasts: bool,
}

impl Hello {
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [self.lasts.into(); HELLO_BYTES];
        bytes[..32].copy_from_slice(&self.name);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first_chunk::<32>() {
            Some((&name, [lasts @ (0 | 1)])) => Ok(Self { name, lasts: *lasts == 1 }),
            _ => Err(format!("{} bytes that name no key set", bytes.len())),
        }
    }
}

/// The server's answer: what it has of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Welcome {
    Known,
    /// The server has the first `there` keys and needs the others.
    Send {
        there: u64,
    },
    Full,
    /// The client's quota of stored bytes is exhausted.
    Quota {
        held: u64,
        most: u64,
    },
    Busy,
}

impl Welcome {
    pub fn to_bytes(self) -> [u8; WELCOME_BYTES] {
        let (kind, a, b) = match self {
            Self::Known => (0, 0, 0),
            Self::Send { there } => (1, there, 0),
            Self::Full => (2, 0, 0),
            Self::Quota { held, most } => (3, held, most),
            Self::Busy => (4, 0, 0),
        };
        let mut bytes = [kind; WELCOME_BYTES];
        bytes[1..9].copy_from_slice(&u64::to_le_bytes(a));
        bytes[9..].copy_from_slice(&u64::to_le_bytes(b));
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (&kind, rest) = bytes.split_first().ok_or_else(|| meaningless(bytes))?;
        let ([first, second], []) = rest.as_chunks::<8>() else { return Err(meaningless(bytes)) };
        let read = match (kind, u64::from_le_bytes(*first), u64::from_le_bytes(*second)) {
            (0, ..) => Self::Known,
            (1, there, _) => Self::Send { there },
            (2, ..) => Self::Full,
            (3, held, most) => Self::Quota { held, most },
            (4, ..) => Self::Busy,
            _ => return Err(meaningless(bytes)),
        };
        if read.to_bytes() == bytes { Ok(read) } else { Err(meaningless(bytes)) }
    }
}

fn meaningless(bytes: &[u8]) -> String {
    format!("an answer of {} bytes that means nothing", bytes.len())
}

pub(super) fn key_digest(plan: &[u8; 32], name: &[u8], index: usize, bytes: &[u8]) -> [u8; DIGEST] {
    digest("tacit 2026-11 ckks key", &[plan, name, &(index as u64).to_le_bytes(), bytes])
}

/// Digest of the keys that arrived on one connection after the first `skipped`.
pub(super) fn set_digest(plan: &[u8; 32], skipped: u64, digests: &[[u8; DIGEST]]) -> [u8; DIGEST] {
    digest("tacit 2026-11 ckks key set", &[plan, &skipped.to_le_bytes(), &digests.concat()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_round_trips() {
        for lasts in [false, true] {
            let hello = Hello { name: [7; 32], lasts };
            assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
        }
        for bad in [&[7; 32][..], &[7; 34], &[7; 33], &[]] {
            assert!(Hello::from_bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn welcome_round_trips() {
        let quota = Welcome::Quota { held: 1 << 40, most: 7 };
        for answer in [Welcome::Known, Welcome::Send { there: 3 }, Welcome::Full, quota, Welcome::Busy] {
            assert_eq!(Welcome::from_bytes(&answer.to_bytes()), Ok(answer));
        }
        let valid = Welcome::Known.to_bytes();
        assert!(Welcome::from_bytes(&[5; WELCOME_BYTES]).is_err());
        assert!(Welcome::from_bytes(&valid[1..]).is_err());
        assert!(Welcome::from_bytes(&[&valid[..16], &[1]].concat()).is_err());
        assert!(Welcome::from_bytes(&[]).is_err());
    }
}
