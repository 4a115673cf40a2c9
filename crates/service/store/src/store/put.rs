//! Material that is being made and written.
use super::{Store, new_file};
use crate::StoreError;
use crate::ledger::Stored;
use crate::limits::MAX_MATERIAL_BYTES;
use crate::seal::{Kind, sync_folder};
use crate::spool::Spool;
use crate::step::Step;
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use tacit_ids::MaterialId;

/// A reserved id for material that is being made. Dropping it without material releases the id.
pub struct Reserved<'a> {
    pub(super) store: &'a Store,
    pub(super) id: MaterialId,
    pub(super) finished: bool,
}

impl<'a> Reserved<'a> {
    /// Stores the material; it is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`]; [`StoreError::File`] and [`StoreError::Ledger`] if the disk
    /// refuses.
    pub fn put(self, material: &[u8]) -> Result<(), StoreError> {
        let path = self.store.path(self.id);
        let mut placing = self.place(material.len() as u64)?;
        placing.write_all(material).map_err(StoreError::file("writing material", &path))?;
        placing.finish()
    }

    /// Returns space for material of `bytes` bytes, to be written as a stream.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`]; [`StoreError::File`] if the disk refuses.
    pub fn place(self, bytes: u64) -> Result<Placing<'a>, StoreError> {
        let (store, id) = (self.store, self.id);
        if bytes > MAX_MATERIAL_BYTES {
            return Err(StoreError::TooLarge { id, bytes });
        }
        let path = store.path(id);
        let failed = || StoreError::file("writing material", &path);
        let file = new_file(&path).map_err(failed())?;
        let unfinished = Unfinished { path: path.clone(), finished: false };
        let spool = Spool::new(file, store.key.as_ref(), Kind::Material(id), bytes).map_err(failed())?;
        Ok(Placing { spool, unfinished, bytes, reserved: self })
    }
}

/// A file that is deleted on drop unless it is finished.
struct Unfinished {
    path: PathBuf,
    finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, recovery deletes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Material that is being written. Seeking to the start begins it anew. Dropping it unfinished
/// deletes it and releases its id.
pub struct Placing<'a> {
    spool: Spool,
    unfinished: Unfinished,
    bytes: u64,
    reserved: Reserved<'a>,
}

impl Placing<'_> {
    /// Finishes after all bytes are written: the material is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::File`]: fewer bytes were written than announced, or the disk refuses;
    /// [`StoreError::Ledger`].
    pub fn finish(mut self) -> Result<(), StoreError> {
        let Reserved { store, id, .. } = self.reserved;
        let result = self.spool.complete();
        store.steps.report(Step::Written);
        let result = result.and_then(|(file, digest)| file.sync_all().map(|()| digest));
        let digest = result.map_err(StoreError::file("writing material", &self.unfinished.path))?;
        sync_folder(&store.dir)?;
        store.steps.report(Step::Synced);
        store.ledger.finish(id, Stored { bytes: self.bytes, digest })?;
        self.reserved.finished = true;
        self.unfinished.finished = true;
        store.steps.report(Step::Ready);
        Ok(())
    }
}

impl Write for Placing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.spool.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spool.flush()
    }
}

impl Seek for Placing<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.spool.seek(position)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Recovery releases the id if this fails.
            let _ = self.store.ledger.release(self.id);
        }
    }
}
