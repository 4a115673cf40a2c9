//! Material that is in hand and not used up: its owner asks whether it may be used, and claims it when it
//! may.
use super::Store;
use crate::StoreError;
use crate::entry::Binding;
use crate::held::Held;
use crate::ledger::Stored;
use crate::spool::Claimed;
use std::fs::File;
use tacit_ids::MaterialId;
use zeroize::Zeroizing;

/// Ready material that nobody else picks while this is there. Dropped, the material is as it was.
pub struct Picked {
    id: MaterialId,
    binding: Binding,
    _file: Held,
}

/// Material in hand, and its content.
pub type InHand<T = Claimed> = (Picked, T);

impl Store {
    /// Takes ready material in hand, and its content, of which nothing may be used before
    /// [`claim_picked`](Self::claim_picked); `None` if somebody else has it in hand. What is damaged is
    /// burnt.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn pick(&self, id: MaterialId, binding: Binding) -> Result<Option<InHand<Zeroizing<Vec<u8>>>>, StoreError> {
        self.picked(id, binding, |file, stored| self.read_from(id, file, stored))
    }

    /// As [`pick`](Self::pick), for material that is read as it is used where it has more than `in_memory`
    /// bytes.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn pick_within(&self, id: MaterialId, binding: Binding, in_memory: u64) -> Result<Option<InHand>, StoreError> {
        self.picked(id, binding, |file, stored| {
            if stored.bytes <= in_memory {
                return Ok(Claimed::Memory(self.read_from(id, file, stored)?));
            }
            // The lock is that of the file in hand; its place in the file is nobody else's.
            let file = file.try_clone().map_err(StoreError::file("reading material", &self.path(id)))?;
            Ok(Claimed::Spooled(stored.bytes, self.checked_contents(id, file, stored)?))
        })
    }

    fn picked<T>(
        &self,
        id: MaterialId,
        binding: Binding,
        read: impl FnOnce(&File, &Stored) -> Result<T, StoreError>,
    ) -> Result<Option<InHand<T>>, StoreError> {
        let found = self.ledger.ready(id, binding)?;
        let picked = self.claimed_file(id, &found).and_then(|file| {
            let Some(file) = Held::alone(file).map_err(StoreError::file("locking", &self.path(id)))? else {
                return Ok(None);
            };
            // Whoever had it in hand may have used it up.
            let stored = self.ledger.ready(id, binding)?;
            let content = read(file.file(), &stored)?;
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
