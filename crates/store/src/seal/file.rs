//! Whole files, sealed or plain.
use super::{Kind, MAGIC, Reader, SealFault, SealKey, Writer, is_sealed, sealed_bytes};
use crate::StoreError;
use crate::private::{FILE_MODE, close_to_others};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Writes a file with mode 0600, sealed if there is a key, and durable when this returns. A crash leaves the
/// old file or the new one.
///
/// # Errors
/// [`StoreError::File`].
pub fn write_file(path: &Path, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> Result<(), StoreError> {
    let part = part_path(path);
    let written = write_part(&part, kind, key, content).and_then(|()| fs::rename(&part, path));
    if let Err(e) = written {
        // What is cut short is no use to anybody, and this error says more than that of the removal.
        let _ = fs::remove_file(&part);
        return Err(StoreError::file("writing", path)(e));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(folder)
}

/// Makes what happened to the files of a folder durable.
///
/// # Errors
/// [`StoreError::File`].
pub fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|d| d.sync_all());
    synced.map_err(StoreError::file("syncing", folder))
}

/// A name beside the file that no other process uses.
fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

fn write_part(part: &Path, kind: Kind, key: Option<&SealKey>, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(part) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        // Left by a crash of a process that had our number.
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(part)?;
    write_content(&mut file, kind, key, content)?;
    file.sync_all()
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
/// key. With a key, a file that is not sealed is read all the same, as its owner may have both; it is not
/// authenticated then.
///
/// # Errors
/// [`StoreError::KeyNeeded`], [`StoreError::WrongKey`], [`StoreError::Sealed`], [`StoreError::FileTooLarge`],
/// [`StoreError::File`].
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
/// [`StoreError::KeyNeeded`], [`StoreError::WrongKey`], [`StoreError::Sealed`], [`StoreError::File`].
pub fn open_file(path: &Path, kind: Kind, key: Option<&SealKey>) -> Result<(Box<dyn Read>, u64), StoreError> {
    let mut file = File::open(path).map_err(StoreError::file("reading", path))?;
    let len = file.metadata().map_err(StoreError::file("reading", path))?.len();
    let mut start = Vec::with_capacity(MAGIC.len());
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut start).map_err(StoreError::file("reading", path))?;
    let sealed = is_sealed(&start);
    let source = Cursor::new(start).chain(file);
    if !sealed {
        return Ok((Box::new(source), len));
    }
    let Some(key) = key else { return Err(StoreError::KeyNeeded(path.to_owned())) };
    let reader = Reader::new(source, key, kind).map_err(|fault| named(path, fault))?;
    let content = reader.content_bytes();
    // Nothing may be allocated by what a header merely claims.
    if len < sealed_bytes(content) {
        let fault = SealFault::Truncated { missing: sealed_bytes(content) - len };
        return Err(StoreError::Sealed { path: path.to_owned(), fault });
    }
    Ok((Box::new(reader), content))
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
