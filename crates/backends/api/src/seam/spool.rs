//! Buffers for large data: streamed material, and data that a party reads once more before its phase ends.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom, Write};

use zeroize::Zeroizing;

use crate::BackendError;

/// Data above this size is buffered on disk if the party has [`Spools`].
const MAX_MEMORY_BYTES: u64 = 64 << 20;
/// Bytes of memory per allocation.
const CHUNK_BYTES: usize = 1 << 18;

/// Takes a stream of material. The only seek is to the start: it discards all bytes.
pub trait MaterialPlace: Write + Seek + Send {}

impl<T: Write + Seek + Send> MaterialPlace for T {}

/// A party's disk buffers for data that is too large for memory, removed when the phase ends.
pub trait Spools: Send + Sync {
    /// Opens a buffer for `bytes` bytes.
    ///
    /// # Errors
    /// [`BackendError::Spool`] if there is no space.
    fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>, BackendError>;
}

/// A buffer that takes bytes and returns them once. Dropping it removes the bytes.
pub trait Spool: Write + Send {
    /// The written bytes, from the first on.
    ///
    /// # Errors
    /// [`BackendError::Spool`] if the bytes cannot be read.
    fn contents(self: Box<Self>) -> Result<Box<dyn Read + Send>, BackendError>;
}

/// A buffer in memory, which grows as bytes are written, regardless of announced sizes, and shrinks as they
/// are read.
#[derive(Default)]
pub struct Chunks {
    chunks: VecDeque<Zeroizing<Vec<u8>>>,
    /// Bytes of the first chunk that are already read.
    read: usize,
}

impl Chunks {
    /// All bytes in one piece.
    pub fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.chunks.iter().map(|chunk| chunk.len()).sum()));
        self.chunks.into_iter().for_each(|chunk| bytes.extend_from_slice(&chunk));
        bytes
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunks.back().is_none_or(|chunk| chunk.len() == CHUNK_BYTES) {
            self.chunks.push_back(Zeroizing::new(Vec::with_capacity(CHUNK_BYTES)));
        }
        let chunk = self.chunks.back_mut().expect("there is one now");
        let count = bytes.len().min(CHUNK_BYTES - chunk.len());
        chunk.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(chunk) = self.chunks.front() else { return Ok(0) };
        let unread = &chunk[self.read..];
        let count = unread.len().min(out.len());
        out[..count].copy_from_slice(&unread[..count]);
        self.read += count;
        if self.read == chunk.len() {
            self.chunks.pop_front();
            self.read = 0;
        }
        Ok(count)
    }
}

impl Seek for Chunks {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        if position != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        *self = Self::default();
        Ok(0)
    }
}

impl Spool for Chunks {
    fn contents(self: Box<Self>) -> Result<Box<dyn Read + Send>, BackendError> {
        Ok(self)
    }
}

/// Opens a buffer, in memory if `spools` is `None` or `bytes` is at most [`MAX_MEMORY_BYTES`].
///
/// # Errors
/// [`BackendError::Spool`] if there is no space.
pub(super) fn spool(spools: Option<&dyn Spools>, bytes: u64) -> Result<Box<dyn Spool>, BackendError> {
    match spools {
        Some(spools) if bytes > MAX_MEMORY_BYTES => spools.spool(bytes),
        _ => Ok(Box::<Chunks>::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_return_written_bytes_and_rewind() {
        let bytes: Vec<u8> = (0..2 * CHUNK_BYTES + 77).map(|i| (i * i / 7) as u8).collect();
        let mut chunks = Chunks::default();
        chunks.write_all(&[1; 100]).unwrap();
        chunks.rewind().unwrap();
        assert!(chunks.seek(SeekFrom::Start(1)).is_err());
        for piece in bytes.chunks(1001) {
            chunks.write_all(piece).unwrap();
        }
        let mut head = vec![0; CHUNK_BYTES + 5];
        chunks.read_exact(&mut head).unwrap();
        assert_eq!(chunks.chunks.len(), 2);
        let mut tail = Vec::new();
        chunks.read_to_end(&mut tail).unwrap();
        assert!([head, tail].concat() == bytes);
        let mut whole = Chunks::default();
        whole.write_all(&bytes).unwrap();
        assert!(*whole.into_bytes() == bytes);
    }

    #[test]
    fn large_data_is_spooled_to_disk() {
        struct Full;
        impl Spools for Full {
            fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>, BackendError> {
                Err(BackendError::Spool { what: format!("no room for {bytes}") })
            }
        }
        assert!(spool(Some(&Full), MAX_MEMORY_BYTES).is_ok());
        assert!(spool(Some(&Full), MAX_MEMORY_BYTES + 1).is_err());
        assert!(spool(None, u64::MAX).is_ok());
    }
}
