//! Temporary files in the material folder for halves that are being made.
use std::io::{self, Read, Write};
use std::sync::Arc;
use tacit_backends::BackendError;
use tacit_backends::seam;
use tacit_ids::MaterialId;
use tacit_store::{Spool, Store};

/// Creates files without names in the store's folder, sealed if the folder is.
pub(crate) struct Spools(pub(crate) Arc<Store>);

struct Spooled(Spool);

impl seam::Spools for Spools {
    fn spool(&self, bytes: u64) -> Result<Box<dyn seam::Spool>, BackendError> {
        let id = MaterialId::random().map_err(|e| spool_error(e.to_string()))?;
        Ok(Box::new(Spooled(self.0.spool(id, bytes).map_err(|e| spool_error(e.to_string()))?)))
    }
}

fn spool_error(what: String) -> BackendError {
    BackendError::Spool { what }
}

impl Write for Spooled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl seam::Spool for Spooled {
    fn contents(self: Box<Self>) -> Result<Box<dyn Read + Send>, BackendError> {
        self.0.finish().map_err(|e| spool_error(e.to_string()))
    }
}
