//! Key files and their folders.
use crate::seal::sync_folder;
use crate::{FolderKind, ManagedFolder, StoreError, managed, private};
use rcgen::KeyPair;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const FOLDER: FolderKind = FolderKind::private("certificate authority", "keys");
/// The first line of a key file has fewer bytes than this.
const MAX_LINE_BYTES: usize = 64;
const WRITING_NEW: &str = "writing (an existing file is never overwritten)";

pub(super) struct File {
    pub(super) name: String,
    pub(super) content: Zeroizing<String>,
    mode: u32,
}

impl File {
    /// `NAME.pem`, which all users may read.
    pub(super) fn certificate(name: &str, pem: String) -> Self {
        Self { name: format!("{name}.pem"), content: Zeroizing::new(pem), mode: 0o644 }
    }

    pub(super) fn private_key(name: &str, key: &KeyPair) -> Self {
        let content = Zeroizing::new(key.serialize_pem());
        Self { name: format!("{name}.key"), content, mode: private::FILE_MODE }
    }
}

/// Writes new files into a folder and marks it: all of them, or none.
///
/// # Errors
/// As [`write_all`]; the folder holds other files than keys.
pub(super) fn write_new(dir: &Path, files: &[File]) -> Result<(), StoreError> {
    if write_at_once(dir, files)? {
        return Ok(());
    }
    check_free(dir, files)?;
    write_all(ManagedFolder::open_or_mark(dir, FOLDER, is_key_file)?.path(), files)
}

/// Checks a folder of keys. Closes it to other users if it is marked, or holds keys and nothing
/// else. Leaves any other folder, into which keys were copied, as it is.
pub(super) fn key_folder(dir: &Path) -> Result<PathBuf, StoreError> {
    let is_ours =
        matches!(managed::is_marked(dir, FOLDER), Ok(true)) || managed::strange_entry(dir, is_key_file)?.is_none();
    if is_ours { private::close_folder(dir) } else { private::refuse_world_writable(dir) }
}

/// Reads a private-key file, after closing it to other users. Does not touch a file without a
/// private key.
pub(super) fn read_key(path: &Path, doing: &'static str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) && !is_key_file(path) {
        return Ok(Zeroizing::new(fs::read(path).map_err(StoreError::file(doing, path))?));
    }
    private::read(path, doing)
}

/// Whether an entry of a folder is a certificate or a private key, by name and content.
fn is_key_file(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    let Some(first) = is_file.then(|| first_line(path)).and_then(Result::ok) else { return false };
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("pem" | "new") => first == "-----BEGIN CERTIFICATE-----",
        Some("key") => first.starts_with("-----BEGIN ") && first.ends_with("PRIVATE KEY-----"),
        _ => false,
    }
}

fn first_line(path: &Path) -> io::Result<String> {
    let mut start = Zeroizing::new(Vec::with_capacity(MAX_LINE_BYTES));
    fs::File::open(path)?.take(MAX_LINE_BYTES as u64).read_to_end(&mut start)?;
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).trim_end().to_owned())
}

/// Writes the files into a folder that does not exist or is empty, made beside it and then renamed:
/// if this process is killed, the target has none of them. `false`, with nothing done, if that is
/// impossible (a folder with content, a link, a mount point, or no right to its parent).
fn write_at_once(dir: &Path, files: &[File]) -> Result<bool, StoreError> {
    let dir: PathBuf = dir.components().collect();
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(false) };
    let is_bare = match fs::symlink_metadata(&dir) {
        Err(e) => e.kind() == io::ErrorKind::NotFound,
        Ok(meta) => meta.is_dir() && fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none()),
    };
    if !is_bare {
        return Ok(false);
    }
    let mut hidden = OsString::from(".");
    hidden.push(name);
    let new_dir = private::new_name(&parent.join(hidden));
    // The folder is made here, so all of its content is ours.
    if DirBuilder::new().mode(0o700).create(&new_dir).is_err() {
        return Ok(false);
    }
    let marked = ManagedFolder::open_or_mark(&new_dir, FOLDER, |_| false);
    let result = marked.and_then(|folder| write_all(folder.path(), files));
    let renamed = result.map(|()| fs::rename(&new_dir, &dir).is_ok());
    if !matches!(renamed, Ok(true)) {
        // An error of the removal is ignored in favour of the first error.
        let _ = fs::remove_dir_all(&new_dir);
        return renamed;
    }
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    sync_folder(parent).map(|()| true)
}

/// Checks that none of these files exists in a folder.
fn check_free(dir: &Path, files: &[File]) -> Result<(), StoreError> {
    let mut paths = files.iter().map(|file| dir.join(&file.name));
    match paths.find(|path| path.symlink_metadata().is_ok()) {
        Some(existing) => Err(StoreError::file(WRITING_NEW, &existing)(io::ErrorKind::AlreadyExists.into())),
        None => Ok(()),
    }
}

/// Writes new files into a folder: all of them, durably, or none.
pub(super) fn write_all(dir: &Path, files: &[File]) -> Result<(), StoreError> {
    check_free(dir, files)?;
    let paths: Vec<PathBuf> = files.iter().map(|file| dir.join(&file.name)).collect();
    for (count, (path, file)) in paths.iter().zip(files).enumerate() {
        if let Err(e) = write(path, file) {
            // An incomplete set is useless; errors of its removal are ignored.
            paths[..count].iter().for_each(|path| drop(fs::remove_file(path)));
            return Err(StoreError::file(WRITING_NEW, path)(e));
        }
    }
    sync_folder(dir)
}

pub(super) fn write(path: &Path, file: &File) -> io::Result<()> {
    private::write_new(path, file.mode, |output| output.write_all(file.content.as_bytes()))
}
