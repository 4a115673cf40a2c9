//! Private folders and files, closed to other users. Other users' files and links are refused. Our
//! own files that are open to others are narrowed, with a warning in the log.
use crate::StoreError;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// Permissions of files with secrets.
pub(crate) const FILE_MODE: u32 = 0o600;
const MAX_KEY_FILE: u64 = 1 << 20;
const FOLDER_MODE: u32 = 0o700;

/// Makes a folder and its parents, if they do not exist.
pub(crate) fn make_folder(dir: &Path, is_private: bool) -> Result<(), StoreError> {
    let mode = if is_private { FOLDER_MODE } else { 0o777 };
    let result = DirBuilder::new().recursive(true).mode(mode).create(dir);
    result.map_err(StoreError::file("making the folder", dir))
}

/// Checks that a folder is not a link and, if it is to be private, belongs to this user. Returns
/// its path without trailing separators, which would follow a link. Changes nothing.
pub(crate) fn check_folder(dir: &Path, is_private: bool) -> Result<PathBuf, StoreError> {
    let dir: PathBuf = dir.components().collect();
    let meta = fs::symlink_metadata(&dir).map_err(StoreError::file("opening the folder", &dir))?;
    if meta.is_symlink() {
        return Err(refuse(&dir, "it is a symbolic link: name the folder itself"));
    }
    if !meta.is_dir() {
        return Err(StoreError::file("opening the folder", &dir)(io::ErrorKind::NotADirectory.into()));
    }
    if is_private {
        narrower_mode(&dir, &meta, FOLDER_MODE)?;
    }
    Ok(dir)
}

/// Checks a folder of ours and closes it to other users. Returns its path as [`check_folder`].
pub(crate) fn close_folder(dir: &Path) -> Result<PathBuf, StoreError> {
    let dir = check_folder(dir, true)?;
    // Opens without following links, so that the checked folder is the one that is narrowed.
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&dir);
    let opened = opened.map_err(StoreError::file("opening the folder", &dir))?;
    let meta = opened.metadata().map_err(StoreError::file("reading the permissions of", &dir))?;
    if let Some(mode) = narrower_mode(&dir, &meta, FOLDER_MODE)? {
        opened.set_permissions(mode).map_err(StoreError::file("closing to others", &dir))?;
        warn_owner(&dir, &meta);
    }
    Ok(dir)
}

/// Checks a folder that holds keys among other things. Refuses links, other users' folders, and
/// folders that every user may write to (a group may). Changes nothing.
pub(crate) fn refuse_world_writable(dir: &Path) -> Result<PathBuf, StoreError> {
    let dir = check_folder(dir, true)?;
    let meta = fs::metadata(&dir).map_err(StoreError::file("reading the permissions of", &dir))?;
    if meta.mode() & 0o002 != 0 {
        let what = format!("others may write there (mode {:04o}): `chmod o-w` it first", meta.mode() & 0o777);
        return Err(refuse(&dir, what));
    }
    Ok(dir)
}

/// Opens a file of a checked folder for reading and writing, making it if needed, and closes it to
/// other users.
///
/// # Errors
/// [`StoreError::NotPrivate`] for a link and for another user's file; [`StoreError::File`].
pub fn open_private(path: &Path) -> Result<File, StoreError> {
    close_to_others(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let opened = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path);
    opened.map_err(StoreError::file("opening", path))
}

/// Makes an empty file in a checked folder, if there is none, without opening an existing one.
pub(crate) fn create_empty(path: &Path) -> Result<(), StoreError> {
    match rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(FILE_MODE), 0) {
        Ok(()) | Err(Errno::EXIST) => close_to_others(path),
        Err(e) => Err(StoreError::file("making", path)(e.into())),
    }
}

/// Reads a secret file of a checked folder, after closing it to other users.
pub(crate) fn read(path: &Path, doing: &'static str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    close_to_others(path)?;
    let mut file = File::open(path).map_err(StoreError::file(doing, path))?;
    let len = file.metadata().map_err(StoreError::file(doing, path))?.len();
    // Large enough from the start: growing would leave copies of the secret in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(len as usize + 1));
    file.read_to_end(&mut bytes).map_err(StoreError::file(doing, path))?;
    Ok(bytes)
}

/// A new, unused name beside a file.
pub(crate) fn new_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}-{number}.part"));
    path.with_file_name(name)
}

/// Makes a file, durably, with what `write` writes; removes an incomplete one.
pub(crate) fn write_new(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let result = write(&mut file).and_then(|()| file.sync_all());
    // An error of the removal is ignored in favour of the first error.
    result.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Replaces a file by one that `write` makes under another name.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), StoreError> {
    let temporary = new_name(path);
    let result = write(&temporary)
        .and_then(|()| fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary))));
    result.map_err(StoreError::file("writing", path))
}

/// Reads a public file of keys, such as a certificate.
pub(crate) fn read_open(path: &Path, doing: &'static str) -> Result<Vec<u8>, StoreError> {
    tacit_foreign::file::read(path, MAX_KEY_FILE).map_err(StoreError::file(doing, path))
}

/// Checks a file of a checked folder, if it exists, and closes it to other users.
///
/// Works by name, without opening the file. Other users cannot exchange files in a private folder,
/// and closing a file that SQLite has open elsewhere in this process would drop its locks.
pub(crate) fn close_to_others(path: &Path) -> Result<(), StoreError> {
    let meta = StoreError::if_found(fs::symlink_metadata(path), "reading the permissions of", path)?;
    let Some(meta) = meta else { return Ok(()) };
    if meta.is_symlink() {
        return Err(refuse(path, "it is a symbolic link: put the file itself there"));
    }
    if !meta.is_file() {
        return Err(refuse(path, "it is no regular file"));
    }
    let Some(mode) = narrower_mode(path, &meta, FILE_MODE)? else { return Ok(()) };
    // Another process may have removed it meanwhile.
    if StoreError::if_found(fs::set_permissions(path, mode), "closing to others", path)?.is_some() {
        warn_owner(path, &meta);
    }
    Ok(())
}

/// The narrower permissions of a file or folder of ours that has more than `mode`.
fn narrower_mode(path: &Path, meta: &Metadata, mode: u32) -> Result<Option<Permissions>, StoreError> {
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        let what = format!("it belongs to user {}, and this is user {user}: use a folder of your own", meta.uid());
        return Err(refuse(path, what));
    }
    let wide = meta.mode() & 0o777 & !mode != 0;
    Ok(wide.then(|| Permissions::from_mode(meta.mode() & mode)))
}

fn warn_owner(path: &Path, meta: &Metadata) {
    let (path, mode) = (path.display(), meta.mode() & 0o777);
    tracing::warn!(
        "{path} was open to other users (mode {mode:04o}) and is closed to them now; others may have read it before"
    );
}

fn refuse(path: &Path, what: impl Into<String>) -> StoreError {
    StoreError::NotPrivate { path: path.to_owned(), what: what.into() }
}
