//! Whole files, sealed or plain.
use super::stream::Under;
use super::{Kind, MAGIC, Reader, SealFault, SealKey, VERSION, Writer, is_sealed, sealed_bytes};
use crate::StoreError;
use crate::private::{FILE_MODE, close_to_others, new_name};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Writes a file with mode 0600, sealed if there is a key, and durable when this returns. A crash leaves the
/// old file or the new one. The old one must be of the same kind.
///
/// # Errors
/// [`StoreError::NotReplaced`]: what is there is something else; [`StoreError::File`].
pub fn write_file(path: &Path, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> Result<(), StoreError> {
    check_replaced(path, kind, content)?;
    let part = new_name(path);
    let written = write_part(&part, kind, key, content)
        .and_then(|()| fs::rename(&part, path).inspect_err(|_| drop(fs::remove_file(&part))));
    written.map_err(StoreError::file("writing", path))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(folder)
}

/// Whether a file may be written that begins as `content` does: there is none, an empty one, or one of
/// the same kind, sealed or plain.
///
/// # Errors
/// [`StoreError::NotReplaced`], [`StoreError::File`].
pub fn check_replaced(path: &Path, kind: Kind, content: &[u8]) -> Result<(), StoreError> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(StoreError::file("reading", path))?,
    };
    // What is plain says by its first bytes what it is.
    let begins_alike = || {
        let mut found = Vec::with_capacity(MAGIC.len());
        let file = File::open(path)?;
        file.take(MAGIC.len() as u64).read_to_end(&mut found)?;
        io::Result::Ok(found.len() == MAGIC.len() && content.starts_with(&found))
    };
    let is_alike = || Ok(is_sealed_as(path, kind)? || begins_alike()?);
    match meta.is_file() && is_alike().map_err(StoreError::file("reading", path))? {
        true => Ok(()),
        false => Err(StoreError::NotReplaced { path: path.to_owned(), kind }),
    }
}

/// Makes what happened to the files of a folder durable.
///
/// # Errors
/// [`StoreError::File`].
pub fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|d| d.sync_all());
    synced.map_err(StoreError::file("syncing", folder))
}

/// Whether a file is a regular one whose header says that it was sealed as `kind`; or one that is unfinished,
/// cut short inside such a header. What it holds is not checked, and no key is needed.
///
/// # Errors
/// It cannot be read.
pub fn is_sealed_as(path: &Path, kind: Kind) -> io::Result<bool> {
    let kind_bytes = kind.to_bytes();
    // A file of another name is of the same kind.
    let named = if matches!(kind, Kind::Material(_)) { kind_bytes.len() } else { 1 };
    let wanted = [&MAGIC[..], &VERSION.to_le_bytes(), &kind_bytes[..named]].concat();
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(wanted.len());
    File::open(path)?.take(wanted.len() as u64).read_to_end(&mut found)?;
    Ok(wanted.starts_with(&found))
}

/// Whether a name is one that [`write_file`] gives a file until it is whole, and of which file.
#[must_use]
pub fn unfinished_of(path: &Path) -> Option<PathBuf> {
    let (rest, number) = path.file_name()?.to_str()?.strip_suffix(".part")?.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_number.then(|| path.with_file_name(rest))
}

fn write_part(part: &Path, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(part)?;
    let written = write_content(&mut file, kind, key, content).and_then(|()| file.sync_all());
    // What is cut short is no use to anybody, and the error says more than that of the removal.
    written.inspect_err(|_| drop(fs::remove_file(part)))
}

/// Writes content as it is, or sealed.
fn write_content(mut out: impl Write, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> io::Result<()> {
    match key {
        None => out.write_all(content),
        Some(key) => {
            let mut writer = Writer::new(out, key, kind, content.len() as u64)?;
            writer.write_all(content)?;
            writer.finish().map(drop)
        }
    }
}

/// Reads a file of at most `limit` bytes of content, sealed or not: a sealed one is recognised and needs the
/// key. With a key, a file that is not sealed is refused: it may have been put in the place of one that is.
///
/// # Errors
/// [`StoreError::KeyNeeded`], [`StoreError::Plain`], [`StoreError::WrongKey`], [`StoreError::Sealed`],
/// [`StoreError::FileTooLarge`], [`StoreError::File`].
pub fn read_file(path: &Path, kind: Kind, key: Option<&SealKey>, limit: u64) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let (stream, bytes) = open_file(path, kind, key)?;
    let too_large = |bytes| StoreError::FileTooLarge { path: path.to_owned(), kind, bytes, limit };
    if bytes > limit {
        return Err(too_large(bytes));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(bytes as usize + 1));
    let read = stream.take(limit.saturating_add(1)).read_to_end(&mut content);
    read.map_err(|error| named(path, fault(error)))?;
    // A plain file may have grown since.
    if content.len() as u64 > limit { Err(too_large(content.len() as u64)) } else { Ok(content) }
}

/// The same of a file of this program's own, in a folder that is this user's alone: it is closed to others
/// first, and with a key one that is not sealed is refused.
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
    let mut start = Vec::with_capacity(MAGIC.len());
    let file = File::open(path).map_err(StoreError::file("reading", path))?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(StoreError::file("reading", path))?;
    if key.is_some() && !is_sealed(&start) {
        return Err(StoreError::NotSealed(path.to_owned()));
    }
    read_file(path, kind, key, limit)
}

/// A file's content as a stream, sealed or not (see [`read_file`]), and how many bytes that has. What is read
/// of a sealed file is authentic; that it is all of it shows at its end.
///
/// # Errors
/// [`StoreError::KeyNeeded`], [`StoreError::Plain`], [`StoreError::WrongKey`], [`StoreError::Sealed`],
/// [`StoreError::File`].
pub fn open_file(path: &Path, kind: Kind, key: Option<&SealKey>) -> Result<(Box<dyn Read>, u64), StoreError> {
    let opened = opened(path, key, Under::Name(kind))?;
    match (key, opened) {
        (Some(_), Opened { is_sealed: false, .. }) => Err(StoreError::Plain(path.to_owned())),
        (_, Opened { content, bytes, .. }) => Ok((content, bytes)),
    }
}

/// As [`open_file`], whatever name the file was sealed under, and plain ones with a key, too: for an
/// owner who has renamed it, or has not sealed it yet, and vouches for it.
///
/// # Errors
/// As [`open_file`].
pub fn open_renamed(path: &Path, kind: Kind, key: Option<&SealKey>) -> Result<(Box<dyn Read>, u64), StoreError> {
    let opened = opened(path, key, Under::AnyName(kind))?;
    Ok((opened.content, opened.bytes))
}

/// A file's content.
struct Opened {
    content: Box<dyn Read>,
    bytes: u64,
    is_sealed: bool,
}

fn opened(path: &Path, key: Option<&SealKey>, under: Under) -> Result<Opened, StoreError> {
    let mut file = tacit_foreign::file::open(path).map_err(StoreError::file("reading", path))?;
    let len = file.metadata().map_err(StoreError::file("reading", path))?.len();
    let mut start = Vec::with_capacity(MAGIC.len());
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut start).map_err(StoreError::file("reading", path))?;
    let sealed = is_sealed(&start);
    let source = Cursor::new(start).chain(file);
    if !sealed {
        return Ok(Opened { content: Box::new(source), bytes: len, is_sealed: false });
    }
    let Some(key) = key else { return Err(StoreError::KeyNeeded(path.to_owned())) };
    let reader = Reader::under(source, key, under).map_err(|fault| named(path, fault))?;
    let content = reader.content_bytes();
    // Nothing may be allocated by what a header merely claims.
    if len < sealed_bytes(content) {
        let fault = SealFault::Truncated { missing: sealed_bytes(content) - len };
        return Err(StoreError::Sealed { path: path.to_owned(), fault });
    }
    Ok(Opened { content: Box::new(reader), bytes: content, is_sealed: true })
}

/// All of a sealed file of `len` bytes. Nothing is allocated by what its header merely claims.
pub(crate) fn read_sealed<R: Read>(mut reader: Reader<R>, len: u64) -> Result<Zeroizing<Vec<u8>>, SealFault> {
    let expected = sealed_bytes(reader.content_bytes());
    if len < expected {
        return Err(SealFault::Truncated { missing: expected - len });
    }
    let mut content = Zeroizing::new(vec![0; reader.content_bytes() as usize]);
    reader.read_exact(&mut content).map_err(fault)?;
    // The end is where the header says.
    match reader.read(&mut [0]) {
        Ok(0) => Ok(content),
        Ok(_) => Err(SealFault::Trailing),
        Err(e) => Err(fault(e)),
    }
}

/// The fault inside an error of [`Reader`]'s `Read`.
fn fault(error: io::Error) -> SealFault {
    error.downcast::<SealFault>().unwrap_or_else(SealFault::Io)
}

fn named(path: &Path, fault: SealFault) -> StoreError {
    match fault {
        SealFault::WrongKey => StoreError::WrongKey(path.to_owned()),
        SealFault::Io(source) => StoreError::File { doing: "reading", path: path.to_owned(), source },
        fault => StoreError::Sealed { path: path.to_owned(), fault },
    }
}
