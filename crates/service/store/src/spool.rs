//! Streams material to a file and back, in pieces: sealed if there is a key, and never in memory as
//! a whole.
use crate::StoreError;
use crate::seal::{Kind, Reader, SealFault, SealKey, Writer};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use zeroize::Zeroizing;

const PIECE_BYTES: usize = 1 << 20;

/// Default limit: larger material is read from disk while it is used.
pub const MAX_IN_MEMORY_BYTES: u64 = 64 << 20;

/// The content of claimed or picked material.
pub enum Claimed {
    /// The whole content.
    Memory(Zeroizing<Vec<u8>>),
    /// Length and source, which can be read once. The file of claimed material is already unlinked.
    Spooled(u64, Box<dyn Read + Send>),
}

/// Writes material of a length that is known in advance into a file, such as temporary material in
/// one without a name. Seeking to the start begins it anew, with another key if it is sealed.
pub struct Spool {
    output: Output,
    remaining: u64,
    key: Option<SealKey>,
    kind: Kind,
    bytes: u64,
}

enum Output {
    Plain(Digesting<File>),
    Sealed(Writer<Digesting<File>>),
}

impl Output {
    fn new(file: File, key: Option<&SealKey>, kind: Kind, bytes: u64) -> io::Result<Self> {
        let output = Digesting { inner: file, hasher: blake3::Hasher::new() };
        Ok(match key {
            None => Self::Plain(output),
            Some(key) => Self::Sealed(Writer::new(output, key, kind, bytes)?),
        })
    }

    fn file(&self) -> &File {
        match self {
            Self::Plain(output) => &output.inner,
            Self::Sealed(writer) => &writer.inner().inner,
        }
    }
}

impl Spool {
    pub(crate) fn new(file: File, key: Option<&SealKey>, kind: Kind, bytes: u64) -> io::Result<Self> {
        Ok(Self { output: Output::new(file, key, kind, bytes)?, remaining: bytes, key: key.cloned(), kind, bytes })
    }

    pub(crate) fn complete(self) -> io::Result<(File, [u8; 32])> {
        if self.remaining > 0 {
            let what = format!("{} bytes fewer than announced were written", self.remaining);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let output = match self.output {
            Output::Plain(output) => output,
            Output::Sealed(writer) => writer.finish()?,
        };
        Ok((output.inner, *output.hasher.finalize().as_bytes()))
    }

    /// Returns what was written, from its beginning.
    ///
    /// # Errors
    /// [`StoreError::Spool`]: the content is incomplete, or the disk fails.
    pub fn finish(self) -> Result<Box<dyn Read + Send>, StoreError> {
        let (key, kind) = (self.key.clone(), self.kind);
        let (file, _) = self.complete().map_err(StoreError::Spool)?;
        contents(file, key.as_ref(), kind).map_err(|fault| StoreError::Spool(io::Error::other(fault)))
    }
}

impl Seek for Spool {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        if position != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut file = self.output.file().try_clone()?;
        file.set_len(0)?;
        file.rewind()?;
        self.output = Output::new(file, self.key.as_ref(), self.kind, self.bytes)?;
        self.remaining = self.bytes;
        Ok(0)
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.remaining {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than announced were written"));
        }
        let count = match &mut self.output {
            Output::Plain(output) => output.write(bytes)?,
            Output::Sealed(writer) => writer.write(bytes)?,
        };
        self.remaining -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(output) => output.flush(),
            Output::Sealed(writer) => writer.flush(),
        }
    }
}

/// Reads a file from its beginning, opened if it is sealed.
pub(crate) fn contents(mut file: File, key: Option<&SealKey>, kind: Kind) -> Result<Box<dyn Read + Send>, SealFault> {
    file.rewind()?;
    Ok(match key {
        None => Box::new(file),
        Some(key) => Box::new(Reader::new(file, key, kind)?),
    })
}

pub(crate) fn digest(file: &mut File) -> io::Result<blake3::Hash> {
    let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&piece[..n]),
        };
    }
}

/// Digests everything that passes through.
pub(crate) struct Digesting<T> {
    pub(crate) inner: T,
    pub(crate) hasher: blake3::Hasher,
}

impl<T: Read> Read for Digesting<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.hasher.update(&out[..n]);
        Ok(n)
    }
}

impl<T: Write> Write for Digesting<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
