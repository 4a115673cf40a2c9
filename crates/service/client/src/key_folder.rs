//! Data that a client receives once per model, stored in the folder of stored material. It is not
//! secret on its own (see the back ends), and each use checks it.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tacit_backends::seam::{KeyStore, Place};
use tacit_ids::MaterialId;
use tacit_store::managed::is_hex_named;
use tacit_store::{Party, material_folder};

/// Files that are named by their expected digests.
pub struct KeyFolder {
    dir: PathBuf,
}

/// Most bytes in a folder; the oldest files are deleted first.
const MAX_FOLDER_BYTES: u64 = 4 << 30;
const KEPT_ENDING: &str = ".kept";
/// Ending of unfinished files; the writer holds a lock on each.
const UNFINISHED_ENDING: &str = ".part";

impl KeyFolder {
    /// Stores files in `dir`, which need not exist yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, key: [u8; 32]) -> PathBuf {
        let name: String = key.iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(name + KEPT_ENDING)
    }

    /// Also deletes unfinished files of interrupted writers.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if is_hex_named(&path, KEPT_ENDING, 64) {
                let meta = path.metadata()?;
                kept.push((meta.modified()?, meta.len(), path));
            } else if is_hex_named(&path, UNFINISHED_ENDING, 32)
                && File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
            {
                fs::remove_file(path)?;
            }
        }
        kept.sort();
        let mut total = bytes + kept.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, bytes, path) in kept {
            if total <= MAX_FOLDER_BYTES {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }

    fn begin(&self, key: [u8; 32], bytes: u64) -> io::Result<KeepPlace> {
        material_folder(&self.dir, Party::Client).map_err(io::Error::other)?;
        self.make_room(bytes)?;
        let path = self.path(key);
        let name = MaterialId::random().map_err(io::Error::other)?;
        let unfinished = self.dir.join(name.to_string() + UNFINISHED_ENDING);
        let file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
        let place = KeepPlace { file, unfinished, path, left: bytes };
        place.file.lock()?;
        Ok(place)
    }
}

struct KeepPlace {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    left: u64,
}

impl Write for KeepPlace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.left = self.left.checked_sub(written as u64).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Place for KeepPlace {
    fn keep(self: Box<Self>) {
        // A crash may damage the file; its next use detects that.
        if self.left == 0
            && let Err(error) = fs::rename(&self.unfinished, &self.path)
        {
            tracing::warn!("{}: it is not kept: {error}", self.path.display());
        }
    }
}

impl Drop for KeepPlace {
    fn drop(&mut self) {
        // After a rename there is no such file.
        let _ = fs::remove_file(&self.unfinished);
    }
}

impl KeyStore for KeyFolder {
    fn load(&self, key: [u8; 32]) -> Option<Box<dyn Read>> {
        // A file that cannot be read is fetched again.
        Some(Box::new(File::open(self.path(key)).ok()?))
    }

    fn place(&self, key: [u8; 32], bytes: u64) -> Option<Box<dyn Place>> {
        match self.begin(key, bytes) {
            Ok(place) => Some(Box::new(place)),
            Err(error) => {
                tracing::warn!("{}: nothing is kept there: {error}", self.dir.display());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(keep: &KeyFolder, key: [u8; 32], bytes: &[u8]) {
        let mut place = keep.place(key, bytes.len() as u64).unwrap();
        place.write_all(bytes).unwrap();
        place.keep();
    }

    fn loaded(keep: &KeyFolder, key: [u8; 32]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        keep.load(key)?.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }

    #[test]
    fn loads_saved_data() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        let keep = KeyFolder::new(&folder);
        assert_eq!(loaded(&keep, [1; 32]), None);
        save(&keep, [1; 32], b"one");
        save(&keep, [2; 32], b"two");
        save(&keep, [1; 32], b"uno");
        assert_eq!((loaded(&keep, [1; 32]), loaded(&keep, [2; 32])), (Some(b"uno".to_vec()), Some(b"two".to_vec())));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "and the mark");
        // An unusable folder is not an error.
        fs::write(dir.path().join("file"), b"").unwrap();
        assert!(KeyFolder::new(&dir.path().join("file")).place([3; 32], 5).is_none());
    }

    #[test]
    fn removes_unfinished_files() {
        let dir = tempfile::tempdir().unwrap();
        let keep = KeyFolder::new(dir.path());
        // All files except the mark, which the first write makes.
        let files = || fs::read_dir(dir.path()).unwrap().count() - 1;
        // An abandoned file, one too short and one too long.
        keep.place([1; 32], 3).unwrap().write_all(b"one").unwrap();
        keep.place([1; 32], 3).unwrap().keep();
        assert!(keep.place([1; 32], 3).unwrap().write_all(b"four").is_err());
        assert_eq!(files(), 0);
        // A killed process leaves its file unlocked. Files with other names belong to others.
        fs::write(dir.path().join(format!("{}.part", "0".repeat(32))), b"something").unwrap();
        fs::write(dir.path().join("taxes.part"), b"something").unwrap();
        let alive = keep.place([1; 32], 3).unwrap();
        assert_eq!(files(), 2, "the next one to write removes it");
        save(&keep, [2; 32], b"two");
        assert_eq!(files(), 3, "and leaves what is being written");
        drop(alive);
        assert_eq!(files(), 2);
    }
}
