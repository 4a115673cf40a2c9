//! Requests about clients' stored uploads.
use crate::ServeError;
use crate::session::worker::Job;
use tacit_backends::seam::UploadName;
use tacit_client::wire::{Reply, Upload};
use tacit_store::Ended;

const MAX_LISTED: usize = 2048;

impl Job<'_> {
    /// Lists the client's uploads, after unused ones have expired.
    pub(crate) fn list_uploads(&self) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Uploads(vec![])) };
        store.expire_uploads(self.shared.config.expire)?;
        let catalog = self.shared.catalog();
        let stored = store.uploads()?.into_iter().filter(|stored| stored.client == self.client());
        let listed = stored.take(MAX_LISTED).map(|stored| Upload {
            name: stored.name,
            plan: stored.plan,
            bytes: stored.bytes,
            is_whole: stored.is_whole,
            created: stored.created,
            used: stored.used,
            offered: catalog.find_plan(&stored.plan),
        });
        Ok(Reply::Uploads(listed.collect()))
    }

    pub(crate) fn delete_upload(&self, name: &UploadName) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Deleted { uploads: 0 }) };
        let mut stored = store.uploads()?;
        stored.retain(|stored| stored.client == self.client() && stored.name == *name);
        Ok(Reply::Deleted { uploads: store.end_uploads(&stored, Ended::Deleted)? as u32 })
    }
}
