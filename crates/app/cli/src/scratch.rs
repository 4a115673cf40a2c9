//! Folders for the files of one command.
use crate::print;
use anyhow::Context;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A new folder that only this user may enter. Dropping it deletes the folder with its files.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder in the folder for temporary files (`TMPDIR`).
    ///
    /// # Errors
    /// The folder cannot be made, or the operating system gives no randomness.
    pub fn new() -> anyhow::Result<Self> {
        let mut name = [0; 8];
        getrandom::fill(&mut name).context("randomness of the operating system")?;
        let path = std::env::temp_dir().join(format!("tacit-{}", print::hex(&name)));
        // Fails if the path exists: a stranger may have made it.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making a scratch folder, {}", path.display()))?;
        Ok(Self(path))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that stay are the system's to delete.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_deleted_when_dropped() {
        let [scratch, other] = [Scratch::new().unwrap(), Scratch::new().unwrap()];
        assert_ne!(scratch.path(), other.path());
        assert_eq!(fs::metadata(scratch.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(scratch.path().join("file"), "text").unwrap();
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
        assert!(other.path().exists());
    }
}
