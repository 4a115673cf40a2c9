//! What outlives a connection at either party: a client's secret under which it has sent keys, and these keys
//! at a server.

use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::BackendError;

/// What a client calls what it has sent: random, and the same whenever it comes back.
pub type UploadName = [u8; 32];

/// Where a client keeps the secrets of what it sends to servers once. As secret as its private key.
pub trait Secrets: Send + Sync {
    /// The secret for a plan, and whether it was there; what `fresh` gives, durably, if there is none.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn secret(&self, plan: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<(Zeroizing<Vec<u8>>, bool), BackendError>;

    /// Destroys the secret for a plan.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn forget(&self, plan: &[u8; 32]) -> Result<(), BackendError>;
}

/// Where a server keeps what one client sends once.
pub trait Uploads: Send + Sync {
    /// A file for what the client sends under `name` for a plan, `bytes` bytes in all, and whether it was
    /// [said to be whole](Self::set_whole); `Err` if that is more than the client may have.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn place(
        &self,
        plan: &[u8; 32],
        name: &UploadName,
        bytes: u64,
    ) -> Result<Result<(PathBuf, bool), NoRoom>, BackendError>;

    /// Says whether all of it is there: before a file grows, so that none does that is not counted, and at its
    /// end.
    ///
    /// # Errors
    /// [`BackendError::Keeping`]; also if it is not kept any more: then its file is gone.
    fn set_whole(&self, plan: &[u8; 32], name: &UploadName, is_whole: bool) -> Result<(), BackendError>;
}

/// A client has its share of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// Bytes of what it has.
    pub held: u64,
    /// Bytes that it may have.
    pub most: u64,
}
