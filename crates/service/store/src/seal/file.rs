//! Whole files, sealed or plain.
use super::stream::Expected;
use super::{Kind, MAGIC, Reader, SealFault, SealKey, VERSION, Writer, is_sealed, sealed_bytes};
use crate::StoreError;
use crate::private::{FILE_MODE, close_to_others, replace, write_new};
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Writes a file with mode 0600, sealed if there is a key; it is durable when this returns. A crash
/// leaves the old file or the new one. The old one must be of the same kind.
///
/// # Errors
/// [`StoreError::NotReplaced`]: the existing file is of another kind; [`StoreError::File`].
pub fn write_file(path: &Path, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> Result<(), StoreError> {
    check_replaced(path, kind, content)?;
    replace(path, |path| write_new(path, FILE_MODE, |file| write_content(file, kind, key, content)))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(folder)
}

/// Checks that a file may be replaced by `content`: there is none, an empty one, or one of the same
/// kind, sealed or plain.
///
/// # Errors
/// [`StoreError::NotReplaced`], [`StoreError::File`].
pub fn check_replaced(path: &Path, kind: Kind, content: &[u8]) -> Result<(), StoreError> {
    let meta = StoreError::if_found(fs::symlink_metadata(path), "reading", path)?;
    let Some(meta) = meta else { return Ok(()) };
    match meta.is_file() && is_alike(path, kind, content).map_err(StoreError::file("reading", path))? {
        true => Ok(()),
        false => Err(StoreError::NotReplaced { path: path.to_owned(), kind }),
    }
}

fn is_alike(path: &Path, kind: Kind, content: &[u8]) -> io::Result<bool> {
    if is_sealed_as(path, kind)? {
        return Ok(true);
    }
    // The first bytes of a plain file tell its kind.
    let start = beginning(File::open(path)?, MAGIC.len())?;
    Ok(start.len() == MAGIC.len() && content.starts_with(&start))
}

/// Reads the first `len` bytes, or fewer if there are no more.
fn beginning(source: impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(len);
    source.take(len as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Makes changes of a folder's entries durable.
///
/// # Errors
/// [`StoreError::File`].
pub fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|d| d.sync_all());
    synced.map_err(StoreError::file("syncing", folder))
}

/// Whether a file is a regular one whose header says that it was sealed as `kind`, or one that is
/// cut short inside such a header. Needs no key and does not check the content.
///
/// # Errors
/// The file cannot be read.
pub fn is_sealed_as(path: &Path, kind: Kind) -> io::Result<bool> {
    let kind_bytes = kind.to_bytes();
    // For kinds other than material, the name does not count.
    let counted = if matches!(kind, Kind::Material(_)) { kind_bytes.len() } else { 1 };
    let wanted = [&MAGIC[..], &VERSION.to_le_bytes(), &kind_bytes[..counted]].concat();
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    Ok(wanted.starts_with(&beginning(File::open(path)?, wanted.len())?))
}

/// The path of the finished file, if [`write_file`] gives unfinished ones such a path.
#[must_use]
pub fn unfinished_of(path: &Path) -> Option<PathBuf> {
    let (rest, number) = path.file_name()?.to_str()?.strip_suffix(".part")?.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_number.then(|| path.with_file_name(rest))
}

/// Writes content, sealed if there is a key.
fn write_content(mut output: impl Write, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> io::Result<()> {
    match key {
        None => output.write_all(content),
        Some(key) => {
            let mut writer = Writer::new(output, key, kind, content.len() as u64)?;
            writer.write_all(content)?;
            writer.finish().map(drop)
        }
    }
}

/// Reads a file of at most `limit` bytes of content. A sealed one needs the key. With a key, a
/// plain file is refused: it may have been put in the place of a sealed one.
///
/// # Errors
/// [`StoreError::KeyNeeded`], [`StoreError::Plain`], [`StoreError::WrongKey`],
/// [`StoreError::Sealed`], [`StoreError::FileTooLarge`], [`StoreError::File`].
pub fn read_file(path: &Path, kind: Kind, key: Option<&SealKey>, limit: u64) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let (stream, bytes) = open_file(path, kind, key)?;
    let too_large = |bytes| StoreError::FileTooLarge { path: path.to_owned(), kind, bytes, limit };
    if bytes > limit {
        return Err(too_large(bytes));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(bytes as usize + 1));
    let result = stream.take(limit.saturating_add(1)).read_to_end(&mut content);
    result.map_err(|error| with_path(path, seal_fault(error)))?;
    // A plain file may have grown since its length was read.
    if content.len() as u64 > limit { Err(too_large(content.len() as u64)) } else { Ok(content) }
}

/// As [`read_file`], for a file of this program's own in a private folder. The file is first closed
/// to other users; with a key, a plain file is refused.
///
/// # Errors
/// As [`read_file`]; [`StoreError::NotPrivate`], [`StoreError::NotSealed`].
pub fn read_own_file(
    path: &Path,
    kind: Kind,
    key: Option<&SealKey>,
    limit: u64,
) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    close_to_others(path)?;
    let start = File::open(path).and_then(|file| beginning(file, MAGIC.len()));
    let start = start.map_err(StoreError::file("reading", path))?;
    if key.is_some() && !is_sealed(&start) {
        return Err(StoreError::NotSealed(path.to_owned()));
    }
    read_file(path, kind, key, limit)
}

/// Opens a file's content as a stream, sealed or not (see [`read_file`]), and returns its length.
/// All bytes read from a sealed file are authentic; that none are missing is known only at the end.
///
/// # Errors
/// [`StoreError::KeyNeeded`], [`StoreError::Plain`], [`StoreError::WrongKey`],
/// [`StoreError::Sealed`], [`StoreError::File`].
pub fn open_file(path: &Path, kind: Kind, key: Option<&SealKey>) -> Result<(Box<dyn Read>, u64), StoreError> {
    let OpenedFile { content, bytes, is_sealed } = open_any(path, key, Expected::Name(kind))?;
    match key {
        Some(_) if !is_sealed => Err(StoreError::Plain(path.to_owned())),
        _ => Ok((content, bytes)),
    }
}

/// As [`open_file`], but accepts any name under which the file was sealed, and plain files even
/// with a key. For an owner who has renamed the file, or not sealed it yet, and vouches for it.
///
/// # Errors
/// As [`open_file`].
pub fn open_renamed(path: &Path, kind: Kind, key: Option<&SealKey>) -> Result<(Box<dyn Read>, u64), StoreError> {
    let opened = open_any(path, key, Expected::AnyName(kind))?;
    Ok((opened.content, opened.bytes))
}

struct OpenedFile {
    content: Box<dyn Read>,
    bytes: u64,
    is_sealed: bool,
}

fn open_any(path: &Path, key: Option<&SealKey>, expected: Expected) -> Result<OpenedFile, StoreError> {
    let mut file = tacit_foreign::file::open(path).map_err(StoreError::file("reading", path))?;
    let len = file.metadata().map_err(StoreError::file("reading", path))?.len();
    let start = beginning(&mut file, MAGIC.len()).map_err(StoreError::file("reading", path))?;
    let sealed = is_sealed(&start);
    let source = Cursor::new(start).chain(file);
    if !sealed {
        return Ok(OpenedFile { content: Box::new(source), bytes: len, is_sealed: false });
    }
    let Some(key) = key else { return Err(StoreError::KeyNeeded(path.to_owned())) };
    let reader = Reader::with_expected(source, key, expected).map_err(|fault| with_path(path, fault))?;
    let content = reader.content_bytes();
    // Checked here, so that no memory is allocated by the mere claim of a header.
    if len < sealed_bytes(content) {
        let fault = SealFault::Truncated { missing: sealed_bytes(content) - len };
        return Err(StoreError::Sealed { path: path.to_owned(), fault });
    }
    Ok(OpenedFile { content: Box::new(reader), bytes: content, is_sealed: true })
}

/// Reads all of a sealed file of `len` bytes. Allocates nothing by the mere claim of its header.
pub(crate) fn read_sealed<R: Read>(mut reader: Reader<R>, len: u64) -> Result<Zeroizing<Vec<u8>>, SealFault> {
    let expected = sealed_bytes(reader.content_bytes());
    if len < expected {
        return Err(SealFault::Truncated { missing: expected - len });
    }
    let mut content = Zeroizing::new(vec![0; reader.content_bytes() as usize]);
    reader.read_exact(&mut content).map_err(seal_fault)?;
    // Checks that the content ends where the header says.
    match reader.read(&mut [0]) {
        Ok(0) => Ok(content),
        Ok(_) => Err(SealFault::Trailing),
        Err(e) => Err(seal_fault(e)),
    }
}

/// The fault inside an error of [`Reader`]'s `Read`.
fn seal_fault(error: io::Error) -> SealFault {
    error.downcast::<SealFault>().unwrap_or_else(SealFault::Io)
}

fn with_path(path: &Path, fault: SealFault) -> StoreError {
    match fault {
        SealFault::WrongKey => StoreError::WrongKey(path.to_owned()),
        SealFault::Io(source) => StoreError::File { doing: "reading", path: path.to_owned(), source },
        fault => StoreError::Sealed { path: path.to_owned(), fault },
    }
}
