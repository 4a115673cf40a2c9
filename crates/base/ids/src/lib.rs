//! Ids that several crates share, one type for each concept.
//!
//! Ids are opaque bytes. They name things and grant no rights.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The error for text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no id: {digits} hexadecimal digits are")]
pub struct NotAnId {
    /// The text, shortened.
    text: String,
    /// Number of hexadecimal digits of this kind of id.
    digits: usize,
}

/// The error when the operating system gives no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no randomness from the operating system: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// An id for tests and simulations: `number` in its last eight bytes, big endian, so
            /// that ids sort as numbers do.
            #[must_use]
            pub fn numbered(number: u64) -> Self {
                let mut bytes = [0; $bytes];
                bytes[$bytes - 8..].copy_from_slice(&number.to_be_bytes());
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                if text.len() != 2 * $bytes || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(NotAnId { text: text.chars().take(80).collect(), digits: 2 * $bytes });
                }
                let mut id = [0; $bytes];
                for (i, byte) in id.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("these are hexadecimal digits");
                }
                Ok(Self(id))
            }
        }
    };
}

id!(
    /// The material of one inference, at both parties. Sixteen random bytes made by the party that
    /// asks for it, so that ids never collide across restarts or machines.
    MaterialId, 16
);
id!(
    /// A client, as the server authenticated it: the BLAKE3 fingerprint of its certificate.
    ClientId, 32
);

id!(
    /// A folder of material: sixteen random bytes made with the folder. One party names by it where
    /// the other has its halves.
    FolderId, 16
);

impl MaterialId {
    /// A fresh id.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        let id = MaterialId::random().unwrap();
        assert_eq!(id.to_string().parse::<MaterialId>().unwrap(), id);
        assert_ne!(id, MaterialId::random().unwrap());
        for bad in ["", "00", &"g0".repeat(16), &"é".repeat(16), &"00".repeat(17)] {
            assert!(bad.parse::<MaterialId>().is_err(), "{bad}");
        }
        assert_eq!("00".repeat(32).parse::<ClientId>().unwrap(), ClientId([0; 32]));
    }

    #[test]
    fn numbered_ids_sort_as_their_numbers() {
        assert!(ClientId::numbered(255) < ClientId::numbered(256));
        let id = MaterialId::numbered(7);
        assert_eq!(serde_json::from_str::<MaterialId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
    }
}
