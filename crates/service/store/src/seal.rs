//! Files encrypted at rest.
//!
//! ChaCha20-Poly1305 in the STREAM construction: 64 KiB chunks, each with its own tag. A chunk's
//! nonce holds its number and whether it is the last, so chunks cannot be left out, repeated or
//! moved. A file of any length needs one chunk of memory. ChaCha rather than AES, because a
//! Raspberry Pi has no AES instructions, and software AES is slow or leaks through the cache.
//!
//! Each file has its own key, derived from the [`SealKey`] and 32 random bytes in its header, so
//! nonces need not be unique across files. The whole header is associated data of every chunk: a
//! sealed file opens only as the kind that was sealed (a model, or the material of one id), with
//! its original length. The cipher does not commit to its key; the check value in the header does,
//! and tells a wrong key from damage. Header, 101 bytes, little endian:
//!
//! ```text
//! "TACITSEA" | version u32 = 1 | kind u8 | id 16 (of material; of all others the name) | length u64 | salt 32 | check of key and salt 32
//! ```
//!
//! Then follow, per chunk, the ciphertext and its tag of 16 bytes. Empty content is one empty
//! chunk. Sealing does not hide sizes, times and names, and does not detect an older sealed file in
//! the place of a newer one of the same kind and name. A model, a lowering and a secret are bound
//! to the name of their file and do not open under another. Version 0.1 left the name out: its
//! files must be sealed anew (`tacit model seal`).
mod file;
mod key;
mod stream;

pub(crate) use file::read_sealed;
pub use file::{
    check_replaced, is_sealed_as, open_file, open_renamed, read_file, read_own_file, sync_folder, unfinished_of,
    write_file,
};
pub use key::SealKey;
pub use stream::{Reader, Writer};

use std::fmt;
use std::path::Path;
use tacit_ids::MaterialId;

const MAGIC: [u8; 8] = *b"TACITSEA";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 1 + 16 + 8 + 32 + 32;
/// Bytes of content in a chunk; the last one may have fewer.
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;

/// The kind of a file; it opens only as that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One party's material of this id.
    Material(MaterialId),
    /// A model owner's `.tacit` file.
    Model(FileName),
    /// A model lowered by a back end.
    Lowered(FileName),
    /// A secret from which a client's stored keys follow.
    Secret(FileName),
}

/// The name of a file, as stored in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileName([u8; 16]);

impl FileName {
    /// The name of a file; its folder does not count.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tacit 2026-11 name of a sealed file");
        hasher.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        let mut name = [0; 16];
        name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(name)
    }
}

impl Kind {
    /// The kind of a model's file.
    #[must_use]
    pub fn model(path: &Path) -> Self {
        Self::Model(FileName::from_path(path))
    }

    /// The kind of a lowered model's file.
    #[must_use]
    pub fn lowered(path: &Path) -> Self {
        Self::Lowered(FileName::from_path(path))
    }

    /// The kind of a client secret's file.
    #[must_use]
    pub fn secret(path: &Path) -> Self {
        Self::Secret(FileName::from_path(path))
    }

    /// The kind of a model owner's file: `*.lowered` is a lowered model, any other a model.
    #[must_use]
    pub fn of_owner_file(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension == "lowered" => Self::lowered(path),
            _ => Self::model(path),
        }
    }

    fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[0] = match self {
            Self::Material(_) => 1,
            Self::Model(_) => 2,
            Self::Lowered(_) => 3,
            Self::Secret(_) => 4,
        };
        bytes[1..].copy_from_slice(match &self {
            Self::Material(id) => &id.0,
            Self::Model(name) | Self::Lowered(name) | Self::Secret(name) => &name.0,
        });
        bytes
    }

    /// Decodes a header's kind; `None` if no such kind exists.
    fn parse(bytes: [u8; 17]) -> Option<Self> {
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[1..]);
        let kind = match bytes[0] {
            1 => Self::Material(MaterialId(id)),
            2 => Self::Model(FileName(id)),
            3 => Self::Lowered(FileName(id)),
            4 => Self::Secret(FileName(id)),
            _ => return None,
        };
        Some(kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Material(id) => write!(f, "material {id}"),
            Self::Model(_) => f.write_str("a model"),
            Self::Lowered(_) => f.write_str("a lowered model"),
            Self::Secret(_) => f.write_str("a secret"),
        }
    }
}

/// Why sealed content does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealFault {
    /// The file was not made by [`Writer`].
    #[error("this is no sealed file")]
    NotSealed,
    /// The file was made by another version of this program.
    #[error("sealed in version {found} of the format, this program reads {VERSION}")]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// The header's kind has an unknown number.
    #[error("what was sealed here is of no kind that this program knows")]
    UnknownKind,
    /// The file was sealed under another name: it was renamed or exchanged.
    #[error(
        "{kind} was sealed here under another name than the file has: it was renamed or exchanged, or version 0.1 sealed it, which left \
         the name out; a model that you renamed yourself is sealed under its new name with `tacit model seal`"
    )]
    OtherName {
        /// Its kind.
        kind: Kind,
    },
    /// The file was sealed as another kind: it was exchanged.
    #[error("{found} was sealed here, not {wanted}: files were exchanged")]
    OtherKind {
        /// The kind in the header.
        found: Kind,
        /// The expected kind.
        wanted: Kind,
    },
    /// The key does not fit.
    #[error("sealed with another key than the one given (or its header was changed)")]
    WrongKey,
    /// The end is missing.
    #[error("cut short: {missing} bytes are missing")]
    Truncated {
        /// Least number of missing bytes.
        missing: u64,
    },
    /// Bytes follow the end.
    #[error("bytes follow the end of what was sealed")]
    Trailing,
    /// The header is complete and the key fits, but a chunk was changed or moved.
    #[error("chunk {index} was changed or moved")]
    Chunk {
        /// Number of the chunk, from 0; the header counts as part of chunk 0.
        index: u64,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

pub(crate) const fn sealed_bytes(bytes: u64) -> u64 {
    // Saturates if a forged header claims more than any disk holds.
    bytes.saturating_add(chunks(bytes) * TAG_BYTES as u64).saturating_add(HEADER_BYTES as u64)
}

const fn chunks(bytes: u64) -> u64 {
    if bytes == 0 { 1 } else { bytes.div_ceil(CHUNK_BYTES as u64) }
}

/// Whether a file with this beginning is sealed.
#[must_use]
pub fn is_sealed(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}
