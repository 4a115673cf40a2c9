//! Data that outlives a connection: a client's secret for keys that it has sent, and these keys at the
//! server.

use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::BackendError;

/// A client's random name for the keys that it has sent, the same on every connection.
pub type UploadName = [u8; 32];

/// A client's store for the secrets behind uploaded keys, as sensitive as the client's private key.
pub trait Secrets: Send + Sync {
    /// The secret for a plan and whether it was stored; if not, stores `fresh` durably.
    ///
    /// # Errors
    /// [`BackendError::Keeping`] if the store cannot be read or written.
    fn secret(&self, plan: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<(Zeroizing<Vec<u8>>, bool), BackendError>;

    /// Destroys the secret for a plan, durably.
    ///
    /// # Errors
    /// [`BackendError::Keeping`] if the secret cannot be destroyed.
    fn forget(&self, plan: &[u8; 32]) -> Result<(), BackendError>;

    /// Destroys secrets that were not used within the storage time.
    ///
    /// # Errors
    /// [`BackendError::Keeping`] if a secret cannot be destroyed.
    fn expire(&self) -> Result<(), BackendError>;
}

/// A server's store for what one client sends once.
pub trait Uploads: Send + Sync {
    /// The file for `bytes` bytes that the client sends for a plan under a name, and whether it is
    /// [whole](Self::set_whole). The inner `Err`: the client would exceed its share. For an upload that does
    /// not last (the client forgets the name at its end), an unused one is deleted to make room.
    ///
    /// # Errors
    /// [`BackendError::Keeping`] if the store cannot be read or written.
    fn place(
        &self,
        plan: &[u8; 32],
        name: &UploadName,
        bytes: u64,
        lasts: bool,
    ) -> Result<Result<(PathBuf, bool), NoRoom>, BackendError>;

    /// Records whether the file is complete: before it grows, so that every byte on disk is counted, and at
    /// its end.
    ///
    /// # Errors
    /// [`BackendError::Keeping`]; also if the entry no longer exists: then its file is deleted.
    fn set_whole(&self, plan: &[u8; 32], name: &UploadName, is_whole: bool) -> Result<(), BackendError>;
}

/// The client has used up its share of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// Bytes that the client has stored.
    pub held: u64,
    /// Bytes that the client may store.
    pub most: u64,
}
