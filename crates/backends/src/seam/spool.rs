//! Places for bytes on their way: where a party's material goes as it comes, and where a party puts what it
//! reads once more before its phase is over.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom, Write};

use zeroize::Zeroizing;

use crate::BackendError;

/// What has more bytes than this lies on disk meanwhile, where a party has a place for it.
const IN_MEMORY: u64 = 64 << 20;
/// Bytes of memory that are taken at a time.
const CHUNK: usize = 1 << 18;

/// Takes the bytes of material as they come. It can be rewound, and goes nowhere else: they come from the
/// beginning again then, and nothing is left of those that came before.
pub trait MaterialPlace: Write + Seek + Send {}

impl<T: Write + Seek + Send> MaterialPlace for T {}

/// Where a party puts what is too large for memory and goes with the phase.
pub trait Spools: Send + Sync {
    /// A place for so many bytes.
    ///
    /// # Errors
    /// [`BackendError::Spool`].
    fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>, BackendError>;
}

/// Takes bytes, and gives them back once. Nothing is left of one that is dropped.
pub trait Spool: Write + Send {
    /// What was written, from its beginning.
    ///
    /// # Errors
    /// [`BackendError::Spool`].
    fn contents(self: Box<Self>) -> Result<Box<dyn Read + Send>, BackendError>;
}

/// Bytes in memory: room is taken as they come, not as they are announced, and given back as they are read.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: VecDeque<Zeroizing<Vec<u8>>>,
    /// Bytes of the first chunk that were read.
    read: usize,
}

impl Chunks {
    /// All of it in one piece.
    pub(crate) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.chunks.iter().map(|chunk| chunk.len()).sum()));
        self.chunks.into_iter().for_each(|chunk| bytes.extend_from_slice(&chunk));
        bytes
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunks.back().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push_back(Zeroizing::new(Vec::with_capacity(CHUNK)));
        }
        let chunk = self.chunks.back_mut().expect("there is one now");
        let taken = bytes.len().min(CHUNK - chunk.len());
        chunk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(chunk) = self.chunks.front() else { return Ok(0) };
        let rest = &chunk[self.read..];
        let taken = rest.len().min(out.len());
        out[..taken].copy_from_slice(&rest[..taken]);
        self.read += taken;
        if self.read == chunk.len() {
            self.chunks.pop_front();
            self.read = 0;
        }
        Ok(taken)
    }
}

impl Seek for Chunks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
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

/// A place for so many bytes: in memory, if there is no other or they are few.
///
/// # Errors
/// [`BackendError::Spool`].
pub(super) fn spool(spools: Option<&dyn Spools>, bytes: u64) -> Result<Box<dyn Spool>, BackendError> {
    match spools {
        Some(spools) if bytes > IN_MEMORY => spools.spool(bytes),
        _ => Ok(Box::<Chunks>::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_give_what_they_took_and_begin_anew() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 77).map(|i| (i * i / 7) as u8).collect();
        let mut chunks = Chunks::default();
        chunks.write_all(&[1; 100]).unwrap();
        chunks.rewind().unwrap();
        assert!(chunks.seek(SeekFrom::Start(1)).is_err());
        for piece in bytes.chunks(1001) {
            chunks.write_all(piece).unwrap();
        }
        let mut first = vec![0; CHUNK + 5];
        chunks.read_exact(&mut first).unwrap();
        assert_eq!(chunks.chunks.len(), 2, "what was read is gone");
        let mut rest = Vec::new();
        chunks.read_to_end(&mut rest).unwrap();
        assert!([first, rest].concat() == bytes);
        let mut whole = Chunks::default();
        whole.write_all(&bytes).unwrap();
        assert!(*whole.into_bytes() == bytes);
    }

    #[test]
    fn what_is_large_lies_where_the_party_has_a_place() {
        struct Full;
        impl Spools for Full {
            fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>, BackendError> {
                Err(BackendError::Spool { what: format!("no room for {bytes}") })
            }
        }
        assert!(spool(Some(&Full), IN_MEMORY).is_ok() && spool(Some(&Full), IN_MEMORY + 1).is_err());
        assert!(spool(None, u64::MAX).is_ok(), "nothing is taken before it comes");
    }
}
