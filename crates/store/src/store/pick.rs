//! Material that is in hand and not used up: its owner asks whether it may be used, and claims it when it
//! may.
use super::Store;
use crate::StoreError;
use crate::entry::Binding;
use std::fs::{File, TryLockError};
use tacit_ids::MaterialId;
use zeroize::Zeroizing;

/// Ready material that nobody else picks while this is there. Dropped, the material is as it was.
pub struct Picked {
    id: MaterialId,
    binding: Binding,
    /// Locked.
    _file: File,
}

/// Material in hand, and its content.
pub type InHand = (Picked, Zeroizing<Vec<u8>>);

impl Store {
    /// Takes ready material in hand, and its content, of which nothing may be used before
    /// [`claim_picked`](Self::claim_picked); `None` if somebody else has it in hand. What is damaged is
    /// burnt.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn pick(&self, id: MaterialId, binding: Binding) -> Result<Option<InHand>, StoreError> {
        let found = self.ledger.ready(id, binding)?;
        let picked = self.claimed_file(id, &found).and_then(|file| {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(StoreError::file("locking", &self.path(id))(e)),
            }
            // Whoever had it in hand may have used it up.
            let stored = self.ledger.ready(id, binding)?;
            let content = self.read_from(id, &file, &stored)?;
            Ok(Some((Picked { id, binding, _file: file }, content)))
        });
        if let Err(StoreError::Damaged { .. }) = &picked {
            self.discard(&[id], Some(binding.client))?;
        }
        picked
    }

    /// Takes material that is in hand for its one use: claimed and burnt, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::Burnt`]: it was destroyed meanwhile; [`StoreError::File`], [`StoreError::Ledger`]: it is
    /// not to be used then.
    pub fn claim_picked(&self, picked: Picked) -> Result<(), StoreError> {
        self.claimed(picked.id, picked.binding, |_| Ok(()))
    }
}
