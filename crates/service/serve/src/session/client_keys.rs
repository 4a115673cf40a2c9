//! Uploads of a client that the server stores for a back end, such as keys.
use crate::shared::Shared;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::BackendError;
use tacit_backends::seam::{NoRoom, UploadName, Uploads};
use tacit_ids::ClientId;
use tacit_store::{Store, StoreError};

pub(crate) struct ClientKeyStore {
    store: Arc<Store>,
    client: ClientId,
    max_bytes: u64,
    expire: Duration,
}

impl ClientKeyStore {
    /// Returns the client's uploads; `None` if the server has no folder or stores no uploads.
    pub(crate) fn open(shared: &Shared, client: ClientId) -> Option<Arc<dyn Uploads>> {
        let (store, config) = (shared.store.clone()?, &shared.config);
        let (max_bytes, expire) = (config.uploads_per_client, config.expire);
        (max_bytes > 0).then(|| Arc::new(Self { store, client, max_bytes, expire }) as Arc<dyn Uploads>)
    }
}

fn keeping_error(error: StoreError) -> BackendError {
    BackendError::Keeping { what: error.to_string() }
}

impl Uploads for ClientKeyStore {
    fn place(
        &self,
        plan: &[u8; 32],
        name: &UploadName,
        bytes: u64,
        lasts: bool,
    ) -> Result<Result<(PathBuf, bool), NoRoom>, BackendError> {
        self.store.expire_uploads(self.expire).map_err(keeping_error)?;
        loop {
            match self.store.open_upload(self.client, plan, name, bytes, self.max_bytes, lasts) {
                Ok(place) => return Ok(Ok(place)),
                Err(StoreError::NoRoom { held, most }) => {
                    if !self.store.end_idle(self.client).map_err(keeping_error)? {
                        return Ok(Err(NoRoom { held, most }));
                    }
                }
                Err(e) => return Err(keeping_error(e)),
            }
        }
    }

    fn set_whole(&self, plan: &[u8; 32], name: &UploadName, is_whole: bool) -> Result<(), BackendError> {
        self.store.set_upload_complete(self.client, plan, name, is_whole).map_err(keeping_error)
    }
}
