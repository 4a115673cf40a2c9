//! A party's half of a material: its length, its digest, and how it arrives.

use zeroize::Zeroizing;

use super::source::{Sink, Source};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::check_made_for;

#[derive(Clone, Copy)]
pub(crate) struct HalfBytes {
    /// What the offline phase needs at once.
    pub(crate) head: usize,
    /// The half as dealt, without digest.
    pub(crate) dealt: usize,
    /// What the party stores after the offline phase, without digest.
    pub(crate) stored: usize,
    pub(crate) digest: usize,
}

impl HalfBytes {
    /// Length of the half as dealt with its digest, in bytes.
    pub(crate) fn dealt_len(&self) -> u64 {
        (self.dealt + self.digest) as u64
    }

    /// Length of the stored material with its digest, in bytes.
    pub(crate) fn stored_len(&self) -> u64 {
        (self.stored + self.digest) as u64
    }
}

/// The digest of a half, from its bytes in pieces; empty for halves without one.
#[derive(Default)]
pub(crate) struct HalfDigest(Option<blake3::Hasher>);

impl HalfDigest {
    pub(crate) const BYTES: usize = 32;

    /// Starts a digest with `domain` and bytes of fixed length.
    pub(crate) fn new(domain: &str, start: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(domain);
        for bytes in start {
            hasher.update(bytes);
        }
        Self(Some(hasher))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    /// The digest of all bytes so far.
    pub(crate) fn finish(&self) -> Vec<u8> {
        self.0.iter().flat_map(|hasher| *hasher.finalize().as_bytes()).collect()
    }

    /// Checks the digest that a half states.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the digest differs.
    pub(crate) fn check(&self, stated: &[u8]) -> Result<(), BackendError> {
        if self.finish() == *stated {
            return Ok(());
        }
        let what = "it is damaged, of another model, or the other party's half";
        Err(BackendError::Material { what: what.into() })
    }
}

/// Receives a half from the dealer as a stream. The half must not be used before its digest is
/// checked.
pub(crate) struct HalfReceiver {
    bytes: HalfBytes,
    head: Zeroizing<Vec<u8>>,
    /// Number of missing bytes before the digest.
    left: usize,
    /// The digest that the half states, so far.
    stated: Vec<u8>,
    digest: HalfDigest,
}

impl HalfReceiver {
    /// Begins a half of lengths `bytes`, with a digest to which no content was added.
    pub(crate) fn new(bytes: HalfBytes, digest: HalfDigest) -> Self {
        let head = Zeroizing::new(Vec::with_capacity(bytes.head));
        Self { bytes, head, left: bytes.dealt, stated: Vec::with_capacity(bytes.digest), digest }
    }

    /// Takes the next bytes of the half and gives all but the digest to `place`. The order checks
    /// the length ([`super::audit`]).
    pub(crate) fn push(&mut self, bytes: &[u8], place: &mut Sink<'_>) -> Result<(), BackendError> {
        let (content, stated) = bytes.split_at(bytes.len().min(self.left));
        self.left -= content.len();
        self.stated.extend_from_slice(stated);
        self.digest.update(content);
        let missing = self.bytes.head - self.head.len();
        self.head.extend_from_slice(&content[..content.len().min(missing)]);
        place(content)
    }

    /// Checks the digest. Returns the head of the half, and the digest.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the half states another digest.
    pub(crate) fn finish(self) -> Result<(Zeroizing<Vec<u8>>, HalfDigest), BackendError> {
        self.digest.check(&self.stated)?;
        Ok((self.head, self.digest))
    }
}

/// A party's stored material at the start of an online phase.
pub(crate) struct StoredHalf<'a> {
    /// Digest of the plan that the material was read for.
    pub(crate) made_for: [u8; 32],
    pub(crate) source: Source<'a>,
}

impl<'a> StoredHalf<'a> {
    /// Opens the material for the plan of digest `binding`.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if the material belongs to another plan.
    pub(crate) fn open(self, binding: &[u8; 32]) -> Result<Source<'a>, BackendError> {
        check_made_for(&self.made_for, binding).map(|()| self.source)
    }
}
