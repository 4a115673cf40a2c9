//! Streams material to a file and back, in pieces: sealed if there is a key, and never in memory as
//! a whole.
use crate::StoreError;
use crate::seal::{Kind, Reader, SealFault, SealKey, Writer};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use zeroize::Zeroizing;

/// Bytes that are digested at a time.
const PIECE: usize = 1 << 20;

/// Default limit: larger material is read from disk while it is used.
pub const IN_MEMORY: u64 = 64 << 20;

/// The content of claimed or picked material.
pub enum Claimed {
    /// The whole content.
    Memory(Zeroizing<Vec<u8>>),
    /// Length and source, which can be read once. The file of claimed material is already unlinked.
    Spooled(u64, Box<dyn Read + Send>),
}

/// Writes material of a length that is known in advance into a file.
pub(crate) struct Filling {
    out: Out,
    /// Bytes still to be written.
    left: u64,
    key: Option<SealKey>,
    kind: Kind,
    bytes: u64,
}

enum Out {
    Plain(Digesting<File>),
    Sealed(Writer<Digesting<File>>),
}

impl Out {
    fn new(file: File, key: Option<&SealKey>, kind: Kind, bytes: u64) -> io::Result<Self> {
        let out = Digesting { inner: file, hasher: blake3::Hasher::new() };
        Ok(match key {
            None => Self::Plain(out),
            Some(key) => Self::Sealed(Writer::new(out, key, kind, bytes)?),
        })
    }

    fn file(&self) -> &File {
        match self {
            Self::Plain(out) => &out.inner,
            Self::Sealed(writer) => &writer.inner().inner,
        }
    }
}

impl Filling {
    pub(crate) fn new(file: File, key: Option<&SealKey>, kind: Kind, bytes: u64) -> io::Result<Self> {
        Ok(Self { out: Out::new(file, key, kind, bytes)?, left: bytes, key: key.cloned(), kind, bytes })
    }

    /// Starts over from byte 0; sealed material gets another key.
    pub(crate) fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut file = self.out.file().try_clone()?;
        file.set_len(0)?;
        file.rewind()?;
        self.out = Out::new(file, self.key.as_ref(), self.kind, self.bytes)?;
        self.left = self.bytes;
        Ok(0)
    }

    /// Returns the complete file and the digest of its content.
    pub(crate) fn finish(self) -> io::Result<(File, [u8; 32])> {
        if self.left > 0 {
            let what = format!("{} bytes fewer than announced were written", self.left);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let out = match self.out {
            Out::Plain(out) => out,
            Out::Sealed(writer) => writer.finish()?,
        };
        Ok((out.inner, *out.hasher.finalize().as_bytes()))
    }
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than announced were written"));
        }
        let written = match &mut self.out {
            Out::Plain(out) => out.write(bytes)?,
            Out::Sealed(writer) => writer.write(bytes)?,
        };
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Plain(out) => out.flush(),
            Out::Sealed(writer) => writer.flush(),
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

/// The digest of a file, as [`Filling`] computes it.
pub(crate) fn digest(file: &mut File) -> io::Result<blake3::Hash> {
    let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&piece[..n]),
        };
    }
}

/// Temporary material of one process, in a file without a name. Seeking to the start begins it
/// anew.
pub struct Spool(Filling);

impl Spool {
    pub(crate) fn new(file: File, key: Option<&SealKey>, kind: Kind, bytes: u64) -> io::Result<Self> {
        Filling::new(file, key, kind, bytes).map(Self)
    }

    /// Returns what was written, from its beginning.
    ///
    /// # Errors
    /// [`StoreError::Spool`]: the content is incomplete, or the disk fails.
    pub fn finish(self) -> Result<Box<dyn Read + Send>, StoreError> {
        let (key, kind) = (self.0.key.clone(), self.0.kind);
        let (file, _) = self.0.finish().map_err(StoreError::Spool)?;
        contents(file, key.as_ref(), kind).map_err(|fault| StoreError::Spool(io::Error::other(fault)))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Spool {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Computes the digest of everything that passes through.
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
