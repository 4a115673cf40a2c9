//! Reserved room for necessary writes on a full disk.
//!
//! To use or destroy material, the ledger must record it durably, which takes some pages. A folder
//! has a reserve file of that size, made before any material is stored: the disk is full for new
//! material first, and stored material stays usable. If the disk has no room for the ledger, the
//! reserve file is deleted, the ledger's log is truncated, and the write is tried once more.
use crate::{StoreError, private};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Size of the reserve: more than the pages that a few dozen claims write before SQLite reuses its
/// log.
const RESERVE_BYTES: usize = 256 << 10;
const FILL_BYTE: u8 = 0x55;

pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join("reserve") }
    }

    /// Closes the file to other users, as every file of the folder.
    pub(crate) fn close_to_others(&self) -> Result<(), StoreError> {
        private::close_to_others(&self.path)
    }

    pub(crate) fn allocate(&self) -> Result<(), StoreError> {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        self.release();
        // Not zeros: some file systems allocate no room for zeros.
        let fill = vec![FILL_BYTE; RESERVE_BYTES];
        match private::write_new(&self.path, private::FILE_MODE, |file| file.write_all(&fill)) {
            // Another process is making it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result.map_err(StoreError::file("holding room on the disk in", &self.path)),
        }
    }

    /// Runs `write`, and if the disk is full, once more without the reserve and with SQLite's log
    /// shortened by `shrink`.
    pub(crate) fn retry_with_reserve<T>(
        &self,
        shrink: impl Fn(),
        write: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match write() {
            Err(error) if is_full(&error) => {
                self.release();
                shrink();
                write()
            }
            result => result,
        }
    }

    fn release(&self) {
        if self.is_reserve() {
            // If the removal fails, the next write reports the full disk.
            let _ = fs::remove_file(&self.path);
        }
    }

    pub(crate) fn is_reserve(&self) -> bool {
        let is_small = fs::symlink_metadata(&self.path).is_ok_and(|m| m.is_file() && m.len() <= RESERVE_BYTES as u64);
        is_small && fs::read(&self.path).is_ok_and(|bytes| bytes.iter().all(|&byte| byte == FILL_BYTE))
    }
}

/// Whether the disk, or this user's quota on it, is full.
fn is_full(error: &StoreError) -> bool {
    use rusqlite::{Error, ErrorCode};
    match error {
        // Some writes of SQLite beside the database fail with a general I/O error.
        StoreError::Ledger { source: Error::SqliteFailure(failure, _), .. } => {
            matches!(failure.code, ErrorCode::DiskFull | ErrorCode::SystemIoFailure)
        }
        StoreError::File { source, .. } => {
            matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn releases_reserve_once_when_disk_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::new(dir.path());
        let size = || fs::metadata(dir.path().join("reserve")).map_or(0, |meta| meta.len());
        reserve.allocate().unwrap();
        assert_eq!(size(), RESERVE_BYTES as u64);
        let full = || StoreError::file("writing", dir.path())(io::ErrorKind::StorageFull.into());
        let runs = Cell::new(0);
        let write = || {
            runs.set(runs.get() + 1);
            if size() == 0 { Ok(runs.get()) } else { Err(full()) }
        };
        assert_eq!(reserve.retry_with_reserve(|| (), write).unwrap(), 2);
        assert!(is_full(&reserve.retry_with_reserve(|| (), || Err::<(), _>(full())).unwrap_err()));
        reserve.allocate().unwrap();
        let other = || Err::<(), _>(StoreError::NoMaterial(tacit_ids::MaterialId::numbered(1)));
        let result = reserve.retry_with_reserve(|| (), other);
        assert!(matches!(result, Err(StoreError::NoMaterial(_))));
        assert_eq!(size(), RESERVE_BYTES as u64);
    }
}
