//! What the clients of a model get once, kept in the folder of stored material: not secret on its own (see
//! the back ends), and checked whenever it is used.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tacit_backends::seam::Keep;

/// Files in a folder, named by what they must hash to.
pub struct KeepFolder {
    dir: PathBuf,
}

/// Most bytes kept in a folder; the oldest go first.
const MOST: u64 = 4 << 30;
const ENDING: &str = "kept";

impl KeepFolder {
    /// Keeps files in `dir`, which need not exist yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, key: [u8; 32]) -> PathBuf {
        let name: String = key.iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(name).with_extension(ENDING)
    }

    /// Makes room for so many bytes.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == ENDING) {
                let meta = path.metadata()?;
                kept.push((meta.modified()?, meta.len(), path));
            }
        }
        kept.sort();
        let mut total = bytes + kept.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, bytes, path) in kept {
            if total <= MOST {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }

    fn write(&self, key: [u8; 32], bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        self.make_room(bytes.len() as u64)?;
        let (path, unfinished) = (self.path(key), self.path(key).with_extension(format!("{}", std::process::id())));
        fs::write(&unfinished, bytes)?;
        fs::rename(unfinished, path)
    }
}

impl Keep for KeepFolder {
    fn load(&self, key: [u8; 32]) -> Option<Vec<u8>> {
        // What cannot be read is asked for again.
        fs::read(self.path(key)).ok()
    }

    fn save(&self, key: [u8; 32], bytes: &[u8]) {
        if let Err(error) = self.write(key, bytes) {
            tracing::warn!("{}: nothing is kept there: {error}", self.dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let keep = KeepFolder::new(&dir.path().join("new"));
        assert_eq!(keep.load([1; 32]), None);
        keep.save([1; 32], b"one");
        keep.save([2; 32], b"two");
        keep.save([1; 32], b"uno");
        assert_eq!((keep.load([1; 32]), keep.load([2; 32])), (Some(b"uno".to_vec()), Some(b"two".to_vec())));
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 2);
        // A folder that cannot be is no reason to fail.
        fs::write(dir.path().join("file"), b"").unwrap();
        KeepFolder::new(&dir.path().join("file")).save([3; 32], b"three");
    }
}
