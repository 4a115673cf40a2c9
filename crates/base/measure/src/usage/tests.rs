//! Pseudo-filesystems in a temporary folder.
use super::Roots;
use std::fmt::Display;
use std::fs;

pub(super) struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn roots(&self) -> Roots {
        Roots { proc: self.folder.path().join("proc"), sys: self.folder.path().join("sys") }
    }

    pub(super) fn write_file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a line to a file of a control group.
    pub(super) fn write_group(&self, path: &str, line: impl Display) {
        self.write_file(&format!("sys/fs/cgroup/{path}"), &format!("{line}\n"));
    }
}
