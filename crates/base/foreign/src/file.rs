//! Reads files that a user names. A path may lead to a named pipe without a writer, an endless
//! device or a folder. Only regular files are read, up to a limit that the caller states.
use rustix::fs::OFlags;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading, without blocking. Other files are not opened: opening a named
/// pipe would wait for a writer, and opening a device may have effects.
///
/// # Errors
/// The file does not exist, cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    check_regular(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    // The path may lead to another file by now, so check the opened one.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads all bytes of a regular file.
///
/// # Errors
/// As [`open`]; the file has more than `max_bytes` bytes.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    if size > max_bytes {
        return Err(too_large(size, max_bytes));
    }
    // A file that grows meanwhile is read up to `max_bytes`.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large(bytes.len() as u64, max_bytes));
    }
    Ok(bytes)
}

/// Reads a whole text file.
///
/// # Errors
/// As [`read`]; the text is not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, max_bytes)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

fn too_large(size: u64, max_bytes: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {size} bytes or more, the limit is {max_bytes}"))
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    match kind.is_file() {
        true => Ok(()),
        false if kind.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder, not a file")),
        false => Err(io::Error::other(format!("it is {}, not a regular file", kind_name(kind)))),
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "of another kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode};
    use std::os::unix::net::UnixListener;

    #[test]
    fn refuses_other_than_regular_files_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(CWD, path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        std::os::unix::fs::symlink(path("pipe"), path("link")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        for (path, kind) in [
            (path("pipe"), "a named pipe"),
            (path("link"), "a named pipe"),
            (path("socket"), "a socket"),
            (folder.path().into(), "a folder"),
            ("/dev/zero".into(), "a device"),
        ] {
            let error = read(&path, 10).unwrap_err().to_string();
            assert!(error.contains(kind), "{}: {error}", path.display());
        }
        assert_eq!(read(&path("none"), 10).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn refuses_files_above_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "ten bytes.").unwrap();
        assert_eq!(read_text(&path, 10).unwrap(), "ten bytes.");
        let error = read(&path, 9).unwrap_err();
        assert_eq!(error.to_string(), "it has 10 bytes or more, the limit is 9");
        // A sparse file has a size without any data.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path, 1 << 30).is_err());
        // This file states size 0 and yet has bytes.
        assert!(read(Path::new("/proc/self/status"), 20).is_err());
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("Name:"));
    }
}
