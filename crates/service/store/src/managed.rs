//! Managed folders: the only folders in which programs here delete, replace and change permissions.
//!
//! A managed folder has a mark, the file [`MARK`], which names party, kind and version. New and
//! empty folders get a mark, and folders whose content was all made by version 0.1, which had no
//! marks. Any other folder is refused, and nothing in it is touched.
use crate::seal::sync_folder;
use crate::{StoreError, private};
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Name of the mark.
pub const MARK: &str = ".tacit-folder";
const VERSION: u32 = 1;
const MAX_MARK_BYTES: u64 = 1 << 10;
const FIRST_LINE: &str = "Made and managed by tacit: what it makes here it may delete (docs/files.md).";

/// The purpose of a managed folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolderKind {
    /// The party that it belongs to: "client", "server", "helper", "lab".
    pub party: &'static str,
    /// Its content: "material".
    pub what: &'static str,
    /// Whether it is closed to other users.
    pub is_private: bool,
}

impl FolderKind {
    /// A folder with secrets, closed to other users.
    #[must_use]
    pub const fn private(party: &'static str, what: &'static str) -> Self {
        Self { party, what, is_private: true }
    }

    /// A folder that all users may read.
    #[must_use]
    pub const fn public(party: &'static str, what: &'static str) -> Self {
        Self { party, what, is_private: false }
    }

    fn text(self) -> String {
        let Self { party, what, .. } = self;
        format!("{FIRST_LINE}\nparty: {party}\nkind: {what}\nversion: {VERSION}\n")
    }
}

/// A folder in which a program here may delete files.
#[derive(Clone, Debug)]
pub struct ManagedFolder {
    path: PathBuf,
}

impl ManagedFolder {
    /// Opens the folder, or makes it. Marks it if it is empty, or if `is_ours` recognizes each
    /// entry, by name and content, as made by an earlier version. A private folder is then closed
    /// to other users.
    ///
    /// # Errors
    /// [`StoreError::NotManaged`]: it holds other files; [`StoreError::OtherFolder`]: it is marked
    /// for another purpose; [`StoreError::NotPrivate`]: it is a link or, if it is to be private,
    /// another user's; [`StoreError::File`]. Nothing was changed then.
    pub fn open_or_mark(dir: &Path, kind: FolderKind, is_ours: impl Fn(&Path) -> bool) -> Result<Self, StoreError> {
        private::make_folder(dir, kind.is_private)?;
        let path = private::check_folder(dir, kind.is_private)?;
        if !is_marked(&path, kind)? {
            match strange_entry(&path, is_ours)? {
                None => write_mark(&path, kind)?,
                // Another process has marked it meanwhile and may have made files.
                Some(_) if is_marked(&path, kind)? => {}
                Some(found) => {
                    return Err(StoreError::NotManaged { path, found, what: kind.what, party: kind.party });
                }
            }
        }
        if kind.is_private {
            private::close_folder(&path)?;
        }
        Ok(Self { path })
    }

    /// Its path, without trailing separators.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a folder is marked for this purpose.
///
/// # Errors
/// [`StoreError::OtherFolder`], [`StoreError::File`].
pub fn is_marked(dir: &Path, kind: FolderKind) -> Result<bool, StoreError> {
    let path = dir.join(MARK);
    let Some(text) = text_of(&path).map_err(StoreError::file("reading", &path))? else { return Ok(false) };
    if text == kind.text() {
        return Ok(true);
    }
    let [party, what, version] =
        ["party: ", "kind: ", "version: "].map(|name| text.lines().find_map(|line| line.strip_prefix(name)));
    let holds = match (party, what, version) {
        (Some(party), Some(what), Some(version)) if [party, what, version].into_iter().all(is_plain) => {
            format!("the {party}'s {what} (version {version})")
        }
        _ => format!("what its mark ({MARK}) does not say"),
    };
    let wanted = format!("the {}'s {} (version {VERSION})", kind.party, kind.what);
    Err(StoreError::OtherFolder { path: dir.to_owned(), holds, wanted })
}

fn is_plain(text: &str) -> bool {
    text.len() <= 64 && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

/// The text of a mark, if there is one: empty for anything but a regular file.
fn text_of(path: &Path) -> io::Result<Option<String>> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
        Ok(meta) if !meta.is_file() => return Ok(Some(String::new())),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_MARK_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8(bytes).unwrap_or_default()))
}

/// The name of an entry that is not ours; `None` if there is none.
pub(crate) fn strange_entry(dir: &Path, is_ours: impl Fn(&Path) -> bool) -> Result<Option<String>, StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::file("listing", dir))? {
        let entry = entry.map_err(StoreError::file("listing", dir))?;
        let name = entry.file_name();
        // Marks that another process is writing now, or left unfinished, are ours. The file
        // system makes the other entry if the folder is the root of a disk.
        let is_known = name.to_str().is_some_and(|name| name.starts_with(MARK)) || name == "lost+found";
        if !is_known && !is_ours(&entry.path()) {
            return Ok(Some(name.to_string_lossy().escape_debug().to_string()));
        }
    }
    Ok(None)
}

fn write_mark(dir: &Path, kind: FolderKind) -> Result<(), StoreError> {
    let mode = if kind.is_private { private::FILE_MODE } else { 0o644 };
    private::replace(&dir.join(MARK), |path| {
        private::write_new(path, mode, |file| file.write_all(kind.text().as_bytes()))
    })?;
    sync_folder(dir)?;
    // Another process may have marked the folder for another purpose at the same time.
    is_marked(dir, kind).map(drop)
}

/// Whether a file is a SQLite database with this application's number, or an empty file.
#[must_use]
pub fn is_database(path: &Path, application: i32) -> bool {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() == 0 => return true,
        Ok(meta) if meta.is_file() => {}
        _ => return false,
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let id = Connection::open_with_flags(path, flags)
        .and_then(|db| db.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0)));
    id.is_ok_and(|id| id == application)
}

/// A file's name without `ending`, if the rest is `digits` lower-case hexadecimal digits.
#[must_use]
pub fn hex_stem<'a>(path: &'a Path, ending: &str, digits: usize) -> Option<&'a str> {
    let stem = path.file_name()?.to_str()?.strip_suffix(ending)?;
    let is_hex = stem.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (stem.len() == digits && is_hex).then_some(stem)
}

/// Whether `path` is a regular file, not a link, of a name as of [`hex_stem`].
#[must_use]
pub fn is_hex_named(path: &Path, ending: &str, digits: usize) -> bool {
    hex_stem(path, ending, digits).is_some() && path.symlink_metadata().is_ok_and(|meta| meta.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const CLIENT: FolderKind = FolderKind::private("client", "material");
    const SERVER: FolderKind = FolderKind::private("server", "material");

    fn open(dir: &Path, kind: FolderKind) -> Result<ManagedFolder, StoreError> {
        ManagedFolder::open_or_mark(dir, kind, |path| path.ends_with("ours"))
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn marks_new_and_empty_folders_for_one_purpose() {
        let dir = tempfile::tempdir().unwrap();
        let (new, empty) = (dir.path().join("a/new"), dir.path().join("empty"));
        fs::create_dir(&empty).unwrap();
        for folder in [&new, &empty] {
            open(folder, CLIENT).unwrap();
            let text = fs::read_to_string(folder.join(MARK)).unwrap();
            assert!(text.contains("party: client\nkind: material\nversion: 1\n"), "{text}");
            assert_eq!(mode(folder), 0o700);
            fs::write(folder.join("x"), "later").unwrap();
            open(folder, CLIENT).unwrap();
            let error = open(folder, SERVER).unwrap_err().to_string();
            assert!(error.contains("the client's material"), "{error}");
            assert!(error.contains("server"), "{error}");
        }
    }

    #[test]
    fn refuses_folder_with_other_files_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["ours", "taxes.ods"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let error = open(folder, CLIENT).unwrap_err().to_string();
        assert!(error.contains("taxes.ods"), "{error}");
        assert!(error.contains("empty folder"), "{error}");
        let state = || (mode(folder), fs::read_dir(folder).unwrap().count());
        assert_eq!(state(), (0o755, 2));
        fs::remove_file(folder.join("taxes.ods")).unwrap();
        open(folder, CLIENT).unwrap();
        assert_eq!(state(), (0o700, 2));
    }

    #[test]
    fn refuses_foreign_and_linked_marks() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a");
        open(&folder, CLIENT).unwrap();
        let mark = folder.join(MARK);
        for text in ["", "\u{1b}[31m\nparty: \u{7}\nkind: x\nversion: 1\n", &CLIENT.text().replace(": 1", ": 2")] {
            fs::write(&mark, text).unwrap();
            let error = open(&folder, CLIENT).unwrap_err();
            assert!(matches!(error, StoreError::OtherFolder { .. }), "{error}");
            assert!(!error.to_string().contains(['\u{1b}', '\u{7}']));
        }
        fs::rename(&mark, dir.path().join("mark")).unwrap();
        symlink(dir.path().join("mark"), &mark).unwrap();
        assert!(matches!(open(&folder, CLIENT), Err(StoreError::OtherFolder { .. })));
    }

    #[test]
    fn hex_stem_is_strict() {
        let name = |name: &str| hex_stem(Path::new(name), ".material", 4).map(str::to_owned);
        assert_eq!(name("/a/00ff.material").as_deref(), Some("00ff"));
        for file in ["00fF.material", "00ff.materia", "00f.material", "00fff.material", ".material", "00ff"] {
            assert_eq!(name(file), None, "{file}");
        }
    }
}
