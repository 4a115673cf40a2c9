//! Requests about clients' stored uploads.
use crate::ServeError;
use crate::session::worker::Job;
use tacit_backends::seam::UploadName;
use tacit_client::wire::{Reply, Upload};
use tacit_store::Ended;

/// Most uploads in one answer.
const MAX_LISTED: usize = 2048;

impl Job<'_> {
    /// Lists the client's uploads, after unused ones have expired.
    pub(crate) fn uploads(&self) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Uploads(vec![])) };
        store.expire_uploads(self.shared.config.expire)?;
        let catalog = self.shared.catalog();
        let kept = store.uploads()?.into_iter().filter(|kept| kept.client == self.client());
        let told = kept.take(MAX_LISTED).map(|kept| Upload {
            name: kept.name,
            plan: kept.plan,
            bytes: kept.bytes,
            is_whole: kept.is_whole,
            created: kept.created,
            used: kept.used,
            offered: catalog.of_plan(&kept.plan),
        });
        Ok(Reply::Uploads(told.collect()))
    }

    /// Deletes the client's uploads of this name.
    pub(crate) fn delete_upload(&self, name: &UploadName) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Deleted { uploads: 0 }) };
        let mut kept = store.uploads()?;
        kept.retain(|kept| kept.client == self.client() && kept.name == *name);
        Ok(Reply::Deleted { uploads: store.end_uploads(&kept, Ended::Deleted)? as u32 })
    }
}
