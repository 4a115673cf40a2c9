//! Room on a full disk for what must still be written.
//!
//! To use or destroy material, the ledger must say so durably, which takes some pages. A folder keeps a file
//! of that much, made before any material is stored: so the disk is full for new material first, and what is
//! there can be used to the last. Where the disk has no room for the ledger, the file goes, the ledger's log
//! is written back and cut, and the write is tried once more.
use crate::{StoreError, private};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes held back: more than the pages that a few dozen claims write before SQLite uses its log anew.
const BYTES: usize = 256 << 10;
/// What is in it.
const FILL: u8 = 0x55;

/// The file that holds room.
pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    pub(crate) fn of(dir: &Path) -> Self {
        Self { path: dir.join("reserve") }
    }

    /// Nothing secret is in it; every file of the folder is this user's alone.
    pub(crate) fn close_to_others(&self) -> Result<(), StoreError> {
        private::close_to_others(&self.path)
    }

    /// Holds room, if it does not yet.
    pub(crate) fn hold(&self) -> Result<(), StoreError> {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() == BYTES as u64) {
            return Ok(());
        }
        self.give();
        let opened = OpenOptions::new().write(true).create_new(true).mode(private::FILE_MODE).open(&self.path);
        // Not zeros: some file systems keep no room for those.
        let written = opened.and_then(|mut file| file.write_all(&vec![FILL; BYTES]).and_then(|()| file.sync_all()));
        match written {
            // Somebody else is at it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => {
                self.give();
                Err(StoreError::file("holding room on the disk in", &self.path)(error))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Runs `write`; where the disk is full for it, gives the room away, has SQLite's log shortened by
    /// `shrink`, and runs it again.
    pub(crate) fn roomy<T>(
        &self,
        shrink: impl Fn(),
        write: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match write() {
            Err(error) if is_full(&error) => {
                self.give();
                shrink();
                write()
            }
            other => other,
        }
    }

    fn give(&self) {
        if self.is_own() {
            // What cannot be removed gives no room: the next write tells.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Whether what has the name holds nothing but room.
    pub(crate) fn is_own(&self) -> bool {
        let is_small = fs::symlink_metadata(&self.path).is_ok_and(|m| m.is_file() && m.len() <= BYTES as u64);
        is_small && fs::read(&self.path).is_ok_and(|bytes| bytes.iter().all(|&byte| byte == FILL))
    }
}

/// Whether the disk, or this user's share of it, is full.
fn is_full(error: &StoreError) -> bool {
    use rusqlite::{Error, ErrorCode};
    match error {
        // Some of what SQLite writes beside the database fails as any other write does.
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
    fn room_is_held_given_once_and_held_again() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(dir.path());
        let held = || fs::metadata(dir.path().join("reserve")).map_or(0, |meta| meta.len());
        reserve.hold().unwrap();
        assert_eq!(held(), BYTES as u64);
        let full = || StoreError::File {
            doing: "writing",
            path: dir.path().into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        let runs = Cell::new(0);
        let second = reserve.roomy(
            || (),
            || {
                runs.set(runs.get() + 1);
                if held() == 0 { Ok(runs.get()) } else { Err(full()) }
            },
        );
        assert_eq!(second.unwrap(), 2);
        assert!(is_full(&reserve.roomy(|| (), || Err::<(), _>(full())).unwrap_err()), "not for ever");
        reserve.hold().unwrap();
        let other = reserve.roomy(|| (), || Err::<(), _>(StoreError::NoMaterial(tacit_ids::MaterialId::numbered(1))));
        assert!(matches!(other, Err(StoreError::NoMaterial(_))));
        assert_eq!(held(), BYTES as u64, "kept where the disk is not full");
    }
}
