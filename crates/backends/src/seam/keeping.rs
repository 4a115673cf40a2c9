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

    /// Destroys the secret for a plan, durably.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn forget(&self, plan: &[u8; 32]) -> Result<(), BackendError>;

    /// Destroys those that have not been used for as long as they are kept.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn expire(&self) -> Result<(), BackendError>;
}

/// Where a server keeps what one client sends once.
pub trait Uploads: Send + Sync {
    /// A file for what the client sends for a plan under a name, `bytes` bytes in all, and whether it was
    /// [said to be whole](Self::set_whole); `Err` if that is more than the client may have. Of what does not
    /// last (the client that ends knows its name no more) something that is not in use goes for it.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    fn place(
        &self,
        plan_and_name: (&[u8; 32], &UploadName),
        bytes: u64,
        lasts: bool,
    ) -> Result<Result<(PathBuf, bool), NoRoom>, BackendError>;

    /// Says whether all of it is there: before a file grows, so that none does that is not counted, and at
    /// its end.
    ///
    /// # Errors
    /// [`BackendError::Keeping`]; also if it is not kept any more: then its file is gone.
    fn set_whole(&self, plan_and_name: (&[u8; 32], &UploadName), is_whole: bool) -> Result<(), BackendError>;
}

/// A client has its share of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// Bytes of what it has.
    pub held: u64,
    /// Bytes that it may have.
    pub most: u64,
}
