//! The sensor part of a file system: the real one, or one in memory for tests and fuzzing.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longest sensor file.
const MAX_BYTES: u64 = 4096;

/// Small files by absolute path (`/sys/class/hwmon/hwmon0/name`).
pub trait Tree: Send + Sync {
    /// The file's text, at most 4096 bytes, without surrounding white space.
    ///
    /// # Errors
    /// The system's error: missing, not permitted, device gone.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Names in a folder, sorted; links count as their targets.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
}

/// Files on disk, below a root.
#[derive(Clone, Debug)]
pub struct Disk {
    root: PathBuf,
}

impl Disk {
    /// Reads all paths below `root`; `/` is the machine itself.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path.trim_start_matches('/')))
    }
}

impl Tree for Disk {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.path(path))?.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(folder))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Files in memory that can change, vanish or be forbidden while a source reads them.
#[derive(Debug, Default)]
pub struct MemoryTree {
    files: Mutex<BTreeMap<String, Result<String, io::ErrorKind>>>,
}

impl MemoryTree {
    /// A tree with these files.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.into_iter().map(|(path, text)| (path.to_string(), Ok(text.to_string()))).collect();
        Self { files: Mutex::new(files) }
    }

    // A test that panicked under the lock has left whole entries behind.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Result<String, io::ErrorKind>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates or changes a file.
    pub fn write(&self, path: &str, text: impl ToString) {
        self.lock().insert(path.to_string(), Ok(text.to_string()));
    }

    /// Makes reading a file fail; the folder still lists the file.
    pub fn forbid(&self, path: &str, kind: io::ErrorKind) {
        self.lock().insert(path.to_string(), Err(kind));
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) {
        self.lock().remove(path);
    }
}

impl Tree for MemoryTree {
    fn read(&self, path: &str) -> io::Result<String> {
        match self.lock().get(path) {
            Some(Ok(text)) => Ok(text.trim().to_string()),
            Some(Err(kind)) => Err((*kind).into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let files = self.lock();
        let below = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|suffix| suffix.split('/').next()).collect();
        if names.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names.into_iter().map(str::to_string).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_and_memory_agree() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys/a")).unwrap();
        std::fs::write(folder.path().join("sys/a/power1_input"), "1200\n").unwrap();
        let memory = MemoryTree::new([("/sys/a/power1_input", "1200\n")]);
        for tree in [&Disk::new(folder.path()) as &dyn Tree, &memory] {
            assert_eq!(tree.read("/sys/a/power1_input").unwrap(), "1200");
            assert_eq!(tree.list("/sys").unwrap(), ["a"]);
            assert_eq!(tree.read("/sys/none").unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(tree.list("/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn truncates_long_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("long"), vec![b'7'; 100_000]).expect("a file");
        assert_eq!(Disk::new(folder.path()).read("/long").expect("a file").len(), 4096);
    }
}
