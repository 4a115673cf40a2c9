//! Requests about material on disk.
use crate::ServeError;
use crate::session::worker::Job;
use tacit_client::wire::{Half, MAX_IDS, Reply};
use tacit_ids::{FolderId, MaterialId};
use tacit_store::{Entry, StoreError};

impl Job<'_> {
    /// Lists material that is ready for the client's open model.
    pub(crate) fn list_stored(&mut self) -> Result<Reply, ServeError> {
        let binding = self.open_model()?.binding;
        let Some(store) = &self.shared.store else { return Ok(Reply::Ids(vec![])) };
        let entries = store.list(Some(binding))?;
        Ok(Reply::Ids(entries.iter().take(MAX_IDS).map(|e| e.id).collect()))
    }

    /// Lists material whose other half is in this folder. Usable material there is marked as
    /// wanted; material unused for too long expires.
    pub(crate) fn reconcile(&self, folder: FolderId, after: Option<MaterialId>) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Reconciled { folder: None, ids: vec![] }) };
        if after.is_none() {
            let mut wanted = store.list_of(self.client())?;
            wanted.retain(|entry| entry.peer == folder && self.is_offered(entry));
            store.mark_wanted(&wanted.iter().map(|entry| entry.id).collect::<Vec<_>>())?;
            match store.expire(self.shared.config.expire) {
                // A clock that may be wrong burns nothing, and the request still succeeds.
                Err(e @ StoreError::ClockJump { .. }) => tracing::error!("{e}"),
                result => drop(result?),
            }
        }
        let mut entries = self.entries_after(after)?;
        entries.retain(|entry| entry.peer == folder);
        let ids = entries.iter().take(MAX_IDS).map(|entry| entry.id).collect();
        Ok(Reply::Reconciled { folder: Some(store.folder()), ids })
    }

    pub(crate) fn list_halves(&self, after: Option<MaterialId>) -> Result<Reply, ServeError> {
        let page = self.entries_after(after)?;
        Ok(Reply::Halves(page.iter().take(MAX_IDS).map(|entry| self.half(entry)).collect()))
    }

    fn half(&self, entry: &Entry) -> Half {
        Half {
            id: entry.id,
            model: entry.binding.model,
            plan: entry.binding.plan,
            folder: entry.peer,
            created: entry.created,
            bytes: entry.bytes,
            offered: self.is_offered(entry),
        }
    }

    /// The client's material after an id, sorted by id.
    fn entries_after(&self, after: Option<MaterialId>) -> Result<Vec<Entry>, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(vec![]) };
        let mut entries = store.list_of(self.client())?;
        entries.retain(|entry| after.is_none_or(|after| entry.id > after));
        entries.sort_by_key(|entry| entry.id);
        Ok(entries)
    }

    /// Destroys material on disk. Returns all ids that are gone, including `destroyed` from memory.
    pub(crate) fn discard(&self, ids: &[MaterialId], mut destroyed: Vec<MaterialId>) -> Result<Reply, ServeError> {
        if let Some(store) = &self.shared.store {
            destroyed.extend(store.discard(ids, Some(self.client()))?);
        }
        Ok(Reply::Ids(destroyed))
    }

    pub(crate) fn full_message(&self, count: u64) -> Result<String, ServeError> {
        let orphans = self.entries_after(None)?.iter().filter(|entry| !self.is_offered(entry)).count();
        Ok(format!(
            "{count} materials are stored for you, as many as you may have ({orphans} of them for models that are gone): use some, or destroy \
             those that cannot be used with `tacit material discard --orphans`"
        ))
    }

    fn is_offered(&self, entry: &Entry) -> bool {
        self.shared.catalog.borrow().has(&entry.binding)
    }
}
