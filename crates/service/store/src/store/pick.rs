//! Picked material: exclusively held, not yet used up. Its owner claims it when the peer agrees.
use super::Store;
use crate::StoreError;
use crate::entry::Binding;
use crate::file_lock::FileLock;
use crate::ledger::Stored;
use crate::spool::Claimed;
use std::fs::File;
use tacit_ids::MaterialId;
use zeroize::Zeroizing;

/// Ready material that no other process can pick while this exists.
pub struct Picked {
    id: MaterialId,
    binding: Binding,
    _file: FileLock,
}

/// Picked material and its content.
pub type PickedContent<T = Claimed> = (Picked, T);

impl Store {
    /// Picks ready material and returns its content. The content must not be used before
    /// [`claim_picked`](Self::claim_picked). `None` if another process has picked it. Damaged
    /// material is burnt.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn pick(
        &self,
        id: MaterialId,
        binding: Binding,
    ) -> Result<Option<PickedContent<Zeroizing<Vec<u8>>>>, StoreError> {
        self.picked(id, binding, |file, stored| self.read_from(id, file, stored))
    }

    /// As [`pick`](Self::pick); material of more than `in_memory` bytes is read while it is used.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn pick_within(
        &self,
        id: MaterialId,
        binding: Binding,
        in_memory: u64,
    ) -> Result<Option<PickedContent>, StoreError> {
        self.picked(id, binding, |file, stored| {
            if stored.bytes <= in_memory {
                return Ok(Claimed::Memory(self.read_from(id, file, stored)?));
            }
            // The copy shares the lock and the position of the picked file, which nothing else
            // reads.
            let file = file.try_clone().map_err(StoreError::file("reading material", &self.path(id)))?;
            Ok(Claimed::Spooled(stored.bytes, self.checked_contents(id, file, stored)?))
        })
    }

    fn picked<T>(
        &self,
        id: MaterialId,
        binding: Binding,
        load: impl FnOnce(&File, &Stored) -> Result<T, StoreError>,
    ) -> Result<Option<PickedContent<T>>, StoreError> {
        let stored = self.ledger.ready(id, binding)?;
        let picked = self.claimed_file(id, &stored).and_then(|file| {
            let Some(file) = FileLock::try_exclusive(file).map_err(StoreError::file("locking", &self.path(id)))? else {
                return Ok(None);
            };
            // A process that had picked it before may have used it up.
            let stored = self.ledger.ready(id, binding)?;
            let content = load(file.file(), &stored)?;
            Ok(Some((Picked { id, binding, _file: file }, content)))
        });
        if let Err(StoreError::Damaged { .. }) = &picked {
            self.discard(&[id], Some(binding.client))?;
        }
        picked
    }

    /// Claims picked material for its single use: claimed and burnt, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::Burnt`]: it was destroyed meanwhile; [`StoreError::File`],
    /// [`StoreError::Ledger`]: it must not be used.
    pub fn claim_picked(&self, picked: Picked) -> Result<(), StoreError> {
        self.claim_with(picked.id, picked.binding, |_| Ok(()))
    }
}
