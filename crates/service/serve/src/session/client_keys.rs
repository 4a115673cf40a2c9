//! Uploads of a client that the server stores for a back end, such as keys.
use crate::shared::Shared;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::BackendError;
use tacit_backends::seam::{NoRoom, UploadName, Uploads};
use tacit_ids::ClientId;
use tacit_store::{Store, StoreError};

/// The uploads of one client.
pub(crate) struct ClientKeyStore {
    store: Arc<Store>,
    client: ClientId,
    most: u64,
    expire: Duration,
}

impl ClientKeyStore {
    /// Returns the client's uploads; `None` if the server has no folder or stores no uploads.
    pub(crate) fn of(shared: &Shared, client: ClientId) -> Option<Arc<dyn Uploads>> {
        let (store, config) = (shared.store.clone()?, &shared.config);
        let (most, expire) = (config.uploads_per_client, config.expire);
        (most > 0).then(|| Arc::new(Self { store, client, most, expire }) as Arc<dyn Uploads>)
    }
}

fn keeping(error: StoreError) -> BackendError {
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
        self.store.expire_uploads(self.expire).map_err(keeping)?;
        loop {
            match self.store.upload(self.client, plan, name, bytes, self.most, lasts) {
                Ok(place) => return Ok(Ok(place)),
                Err(StoreError::NoRoom { held, most }) => {
                    if !self.store.end_idle(self.client).map_err(keeping)? {
                        return Ok(Err(NoRoom { held, most }));
                    }
                }
                Err(e) => return Err(keeping(e)),
            }
        }
    }

    fn set_whole(&self, plan: &[u8; 32], name: &UploadName, is_whole: bool) -> Result<(), BackendError> {
        self.store.upload_is(self.client, plan, name, is_whole).map_err(keeping)
    }
}
