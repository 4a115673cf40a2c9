//! A key file that grows as keys arrive, across connections and crashes.

use super::super::context::Context;
use super::file::{DIGEST, FileState, bind, digest, header, io, part_path};
use super::id::KeyId;
use super::switch::SwitchKey;
use crate::HeError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A key file under its name with `.part`, locked against other writers, until
/// [`finish`](Self::finish). Keys are not synced one by one: [`resume`](Self::resume) finds those
/// that a crash has damaged.
pub struct PartFile {
    path: PathBuf,
    part: PathBuf,
    /// Locked exclusively.
    file: File,
    bound: [u8; DIGEST],
    ids: Vec<KeyId>,
    /// Number of complete keys, and the offset at which they end.
    complete_count: usize,
    end: u64,
}

impl PartFile {
    /// Opens the part file for `path` after its last intact key, or creates it; see
    /// [`KeyFile::write`](super::KeyFile::write). A complete file at `path` becomes a part file.
    /// Returns `None` if the file is in use. If `is_checked` accepts the file's state, its keys are
    /// not read again.
    ///
    /// # Errors
    /// [`HeError::File`]; [`HeError::Format`] for more keys than a file can have.
    pub fn resume(
        path: &Path,
        context: &Context,
        client: &[u8; 32],
        ids: &[KeyId],
        is_checked: impl FnOnce(&FileState) -> bool,
    ) -> Result<Option<Self>, HeError> {
        let mut header = header(context, client, ids)?;
        let bound = bind(&header);
        header.extend_from_slice(&bound);
        let part = part_path(path);
        let Some(file) = Self::open_locked(path, &part)? else { return Ok(None) };
        let end = header.len() as u64;
        let mut file_part =
            Self { path: path.to_owned(), part, file, bound, ids: ids.to_vec(), complete_count: 0, end };
        let mut first = vec![0; header.len()];
        if file_part.file.read_exact_at(&mut first, 0).is_ok() && first == header {
            let is_checked = is_checked(&file_part.state()?);
            file_part.count_intact_keys(context, is_checked).map_err(io(&file_part.part))?;
        } else {
            file_part.file.write_all_at(&header, 0).map_err(io(&file_part.part))?;
        }
        file_part.file.set_len(file_part.end).map_err(io(&file_part.part))?;
        Ok(Some(file_part))
    }

    /// Opens and locks the part file; `None` if it is in use.
    fn open_locked(path: &Path, part: &Path) -> Result<Option<File>, HeError> {
        let is_named = !part.exists() && path.exists();
        let target_path = if is_named { path } else { part };
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(target_path);
        let file = opened.map_err(io(target_path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(io(target_path)(e)),
        }
        // The last holder of the lock may have renamed the file.
        let same = fs::metadata(target_path).and_then(|now| Ok(now.ino() == file.metadata()?.ino()));
        if !same.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(false) } else { Err(io(target_path)(e)) })? {
            return Ok(None);
        }
        if is_named {
            fs::rename(path, part).map_err(io(path))?;
        } else if path.exists() {
            // Another writer completed the file: this one is an empty duplicate.
            fs::remove_file(part).map_err(io(part))?;
            return Ok(None);
        }
        Ok(Some(file))
    }

    /// A deleted file would grow unseen.
    fn has_name(&self) -> Result<(), HeError> {
        match self.file.metadata().map_err(io(&self.part))?.nlink() {
            0 => Err(io(&self.part)(std::io::Error::new(ErrorKind::NotFound, "it was deleted while keys came"))),
            _ => Ok(()),
        }
    }

    /// Counts the intact keys.
    fn count_intact_keys(&mut self, context: &Context, is_checked: bool) -> std::io::Result<()> {
        let len = self.file.metadata()?.len();
        while let Some(&id) = self.ids.get(self.complete_count) {
            let bytes = SwitchKey::packed_bytes(context, id) + DIGEST;
            if self.end + bytes as u64 > len || !(is_checked || self.is_whole(bytes)?) {
                break;
            }
            self.complete_count += 1;
            self.end += bytes as u64;
        }
        Ok(())
    }

    /// Whether the next key, of so many bytes, is as written.
    fn is_whole(&self, bytes: usize) -> std::io::Result<bool> {
        let mut bytes = vec![0; bytes];
        self.file.read_exact_at(&mut bytes, self.end)?;
        let (key, stored) = bytes.split_at(bytes.len() - DIGEST);
        Ok(stored == digest(&self.bound, self.complete_count, key))
    }

    /// State of the file, whose keys are intact.
    ///
    /// # Errors
    /// [`HeError::File`].
    pub fn state(&self) -> Result<FileState, HeError> {
        self.file.metadata().map(|metadata| FileState::from_metadata(&metadata)).map_err(io(&self.part))
    }

    /// Number of keys present, the first of the list.
    pub fn complete_count(&self) -> usize {
        self.complete_count
    }

    /// Appends the next key of the list, packed.
    ///
    /// # Errors
    /// [`HeError::File`], also for a deleted file; errors of [`SwitchKey::read`], without an
    /// effect.
    ///
    /// # Panics
    /// If all keys are present.
    pub fn push(&mut self, context: &Context, packed: &[u8]) -> Result<(), HeError> {
        self.has_name()?;
        SwitchKey::read(context, self.ids[self.complete_count], packed)?;
        let digest = digest(&self.bound, self.complete_count, packed);
        let written = self.file.write_all_at(packed, self.end);
        let end = self.end + packed.len() as u64;
        written.and_then(|()| self.file.write_all_at(&digest, end)).map_err(io(&self.part))?;
        (self.complete_count, self.end) = (self.complete_count + 1, end + DIGEST as u64);
        Ok(())
    }

    /// Renames the file to its final name, durably, in place of a file of that name.
    ///
    /// # Errors
    /// [`HeError::File`].
    ///
    /// # Panics
    /// If keys are missing.
    pub fn finish(self) -> Result<(), HeError> {
        assert_eq!(self.complete_count, self.ids.len(), "a key file has all its keys");
        self.has_name()?;
        self.file.sync_all().and_then(|()| fs::rename(&self.part, &self.path)).map_err(io(&self.part))?;
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Bench, spec};
    use super::super::{KeyFile, KeyKind, KeyMaker, KeySet};
    use super::*;

    const CLIENT: [u8; 32] = [7; 32];

    /// A folder that is deleted when the test ends.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn part_files_resume_after_the_last_intact_key() {
        let (mut bench, context) = Bench::with_context(&spec(6), 77);
        let kinds = [1, 2, 3].map(|k| KeyKind::Galois(context.rotation_element(k)));
        let ids = kinds.map(|kind| KeyId::for_level(&context, kind, 3));
        let mut maker = KeyMaker::new(&bench.secret, &mut bench.prg);
        let packed = ids.map(|id| {
            let mut bytes = Vec::new();
            maker.make(id).unwrap().write(&context, &mut bytes).unwrap();
            bytes
        });
        let folder = Folder(std::env::temp_dir().join(format!("tacit-part-{}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("set.keys");
        let resume = |client: &[u8; 32]| PartFile::resume(&path, &context, client, &ids, |_| false).unwrap();
        let mut part = resume(&CLIENT).unwrap();
        assert_eq!(part.complete_count(), 0);
        part.push(&context, &packed[0]).unwrap();
        part.push(&context, &packed[1]).unwrap();
        assert!(part.push(&context, &[0xff; 10]).is_err() && part.complete_count() == 2);
        assert!(resume(&CLIENT).is_none(), "it is being written");
        drop(part);
        // Half a key, and a damaged one: both are written again.
        let length = fs::metadata(part_path(&path)).unwrap().len();
        let file = OpenOptions::new().write(true).open(part_path(&path)).unwrap();
        file.set_len(length + 5).unwrap();
        assert_eq!(resume(&CLIENT).unwrap().complete_count(), 2);
        file.write_all_at(&[0xaa; 8], length - 40).unwrap();
        let trusted = PartFile::resume(&path, &context, &CLIENT, &ids, |_| true).unwrap();
        assert_eq!(trusted.unwrap().complete_count(), 2, "not read again");
        let mut part = resume(&CLIENT).unwrap();
        assert_eq!(part.complete_count(), 1);
        packed[1..].iter().for_each(|key| part.push(&context, key).unwrap());
        assert!(!path.exists());
        part.finish().unwrap();
        let set = KeySet::paged(&context, KeyFile::open(&path, &context, &CLIENT).unwrap(), 0);
        set.check(&ids).unwrap();
        ids.iter().for_each(|id| drop(set.get(id.kind, 3).unwrap()));
        assert!(resume(&CLIENT).is_none() && path.exists(), "it is used");
        drop(set);
        // A complete file is resumed after its last intact key; for another client it starts anew.
        assert_eq!(resume(&CLIENT).unwrap().complete_count(), 3);
        resume(&CLIENT).unwrap().finish().unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xaa; 8], length - 40).unwrap();
        assert!(KeyFile::open(&path, &context, &CLIENT).unwrap().check(&context).is_err());
        assert_eq!(resume(&CLIENT).unwrap().complete_count(), 1);
        assert_eq!(resume(&[8; 32]).unwrap().complete_count(), 0);
        // A deleted file does not grow, and does not replace another.
        let mut part = resume(&CLIENT).unwrap();
        part.push(&context, &packed[0]).unwrap();
        fs::remove_file(part_path(&path)).unwrap();
        assert!(part.push(&context, &packed[1]).unwrap_err().to_string().contains("deleted"));
        let mut foreign = resume(&CLIENT).unwrap();
        packed.iter().for_each(|key| foreign.push(&context, key).unwrap());
        foreign.finish().unwrap();
        fs::write(part_path(&path), b"begun as the other became whole").unwrap();
        assert!(resume(&CLIENT).is_none());
        assert!(path.exists() && !part_path(&path).exists());
    }
}
