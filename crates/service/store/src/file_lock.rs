//! Locks on files.
use std::fs::{File, TryLockError};
use std::io;

/// A lock on an open file, released on drop: closing the file would not release the lock while a
/// process that is being started has a copy of the file.
pub(crate) struct FileLock(File);

impl FileLock {
    /// Takes an exclusive lock; `None` if another process has a lock.
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Takes a shared lock; waits while another process has an exclusive one.
    pub fn shared(file: File) -> io::Result<Self> {
        file.lock_shared()?;
        Ok(Self(file))
    }

    pub fn downgrade(&self) -> io::Result<()> {
        self.0.unlock()?;
        self.0.lock_shared()
    }

    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Err(e) = self.0.unlock() {
            tracing::warn!("unlocking a file: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_releases_lock_of_duplicated_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).unwrap();
        let lock = FileLock::try_exclusive(open()).unwrap().expect("nobody has it");
        let copy = lock.file().try_clone().unwrap();
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        lock.downgrade().unwrap();
        let other = FileLock::shared(open()).unwrap();
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        drop((lock, other));
        assert!(FileLock::try_exclusive(open()).unwrap().is_some());
        drop(copy);
    }
}
