//! Sealing and opening streams, a chunk at a time.
use super::{CHUNK_BYTES, HEADER_BYTES, Kind, MAGIC, SealFault, SealKey, TAG_BYTES, VERSION, chunks};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use std::io::{self, Read, Write};
use zeroize::{Zeroize, Zeroizing};

const FILE_KEY: &str = "file key";
const KEY_CHECK: &str = "key check";

/// The cipher of one file. Its key is used for this file only, so chunk numbers suffice as nonces.
struct Chunks {
    cipher: ChaCha20Poly1305,
    header: [u8; HEADER_BYTES],
    /// Chunks of the whole file.
    total: u64,
    next: u64,
}

impl Chunks {
    fn new(key: &SealKey, salt: &[u8; 32], header: [u8; HEADER_BYTES], bytes: u64) -> Self {
        let mut file_key = *key.value(FILE_KEY, salt).as_bytes();
        let cipher = ChaCha20Poly1305::new((&file_key).into());
        file_key.zeroize();
        Self { cipher, header, total: chunks(bytes), next: 0 }
    }

    /// The nonce of the next chunk: its number, and 1 if it is the last.
    fn nonce(&self) -> Nonce {
        let mut nonce = Nonce::default();
        nonce[..8].copy_from_slice(&self.next.to_le_bytes());
        nonce[8] = u8::from(self.next + 1 == self.total);
        nonce
    }
}

/// Seals what is written to it. The content's length must be known in advance;
/// [`finish`](Self::finish) must be called.
pub struct Writer<W: Write> {
    inner: W,
    chunks: Chunks,
    buffer: Zeroizing<Vec<u8>>,
    remaining: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header for content of `bytes` bytes.
    ///
    /// # Errors
    /// `inner` fails, or the operating system gives no randomness.
    pub fn new(mut inner: W, key: &SealKey, kind: Kind, bytes: u64) -> io::Result<Self> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let mut header = [0; HEADER_BYTES];
        let mut unwritten = &mut header[..];
        let (version, kind, length, check) =
            (VERSION.to_le_bytes(), kind.to_bytes(), bytes.to_le_bytes(), key.value(KEY_CHECK, &salt));
        let parts: [&[u8]; 6] = [&MAGIC, &version, &kind, &length, &salt, check.as_bytes()];
        parts.into_iter().try_for_each(|field| unwritten.write_all(field))?;
        inner.write_all(&header)?;
        let buffer = Zeroizing::new(Vec::with_capacity(CHUNK_BYTES));
        Ok(Self { inner, chunks: Chunks::new(key, &salt, header, bytes), buffer, remaining: bytes })
    }

    /// The destination; the last chunks are not written yet.
    pub(crate) fn inner(&self) -> &W {
        &self.inner
    }

    /// Writes the last chunk and returns the destination, not flushed.
    ///
    /// # Errors
    /// Fewer bytes were written than announced, or the destination fails.
    pub fn finish(mut self) -> io::Result<W> {
        if self.remaining > 0 {
            let what = format!("{} bytes fewer than announced were written to be sealed", self.remaining);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.chunks.next < self.chunks.total {
            self.write_chunk()?;
        }
        Ok(self.inner)
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        let Chunks { cipher, header, .. } = &self.chunks;
        let tag = cipher
            .encrypt_inout_detached(&self.chunks.nonce(), header, self.buffer.as_mut_slice().into())
            .expect("a chunk is far below the cipher's limit");
        self.inner.write_all(&self.buffer)?;
        self.inner.write_all(&tag)?;
        self.chunks.next += 1;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.remaining {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more bytes than announced were written to be sealed",
            ));
        }
        let len = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        self.remaining -= len as u64;
        if self.buffer.len() == CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(len)
    }

    /// Flushes complete chunks; a partial chunk stays in memory.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The kind, and possibly the name, that a header must state.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// This kind, under its name.
    Name(Kind),
    /// This kind, under any name.
    AnyName(Kind),
}

/// Opens what [`Writer`] sealed. Returns only authentic bytes; that none are missing is known only
/// at the end.
pub struct Reader<R: Read> {
    inner: R,
    chunks: Chunks,
    buffer: Zeroizing<Vec<u8>>,
    /// Bytes of the buffer that were already returned.
    consumed: usize,
    /// Bytes of content in chunks that are not read yet.
    remaining: u64,
    bytes: u64,
}

impl<R: Read> Reader<R> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// The header is not a sealed file's, is of another `kind` or name, or was sealed with another
    /// key.
    pub fn new(inner: R, key: &SealKey, kind: Kind) -> Result<Self, SealFault> {
        Self::with_expected(inner, key, Expected::Name(kind))
    }

    /// As [`new`](Self::new); `expected` says whether the name in the header counts.
    pub(super) fn with_expected(mut inner: R, key: &SealKey, expected: Expected) -> Result<Self, SealFault> {
        let mut header = [0; HEADER_BYTES];
        read_or_truncated(&mut inner, &mut header, 0)?;
        let mut fields = &header[..];
        if take(&mut fields) != MAGIC {
            return Err(SealFault::NotSealed);
        }
        let version = u32::from_le_bytes(take(&mut fields));
        if version != VERSION {
            return Err(SealFault::Version { found: version });
        }
        let stated = Kind::parse(take(&mut fields)).ok_or(SealFault::UnknownKind)?;
        let (Expected::Name(kind) | Expected::AnyName(kind)) = expected;
        let is_renamed = !matches!(stated, Kind::Material(_)) && stated.to_bytes()[0] == kind.to_bytes()[0];
        match expected {
            _ if stated == kind => {}
            Expected::AnyName(_) if is_renamed => {}
            Expected::Name(_) if is_renamed => return Err(SealFault::OtherName { kind }),
            _ => return Err(SealFault::OtherKind { found: stated, wanted: kind }),
        }
        let bytes = u64::from_le_bytes(take(&mut fields));
        let salt = take(&mut fields);
        // `blake3::Hash` compares in constant time.
        if key.value(KEY_CHECK, &salt) != take(&mut fields) {
            return Err(SealFault::WrongKey);
        }
        let buffer = Zeroizing::new(Vec::with_capacity(CHUNK_BYTES));
        Ok(Self { inner, chunks: Chunks::new(key, &salt, header, bytes), buffer, consumed: 0, remaining: bytes, bytes })
    }

    /// Length of the content according to the header. Authentic once a chunk was read: check it
    /// against the source before allocating memory by it.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.bytes
    }

    fn next_chunk(&mut self) -> Result<bool, SealFault> {
        if self.chunks.next == self.chunks.total {
            return match self.inner.read(&mut [0]) {
                Ok(0) => Ok(false),
                Ok(_) => Err(SealFault::Trailing),
                Err(e) => Err(e.into()),
            };
        }
        let len = self.remaining.min(CHUNK_BYTES as u64) as usize;
        // A forged header may claim any length: the header is authentic only with the first chunk.
        let following =
            (self.remaining - len as u64).saturating_add((self.chunks.total - self.chunks.next - 1) * TAG_BYTES as u64);
        // No byte of a chunk that fails may be returned.
        self.consumed = 0;
        self.buffer.clear();
        let mut chunk = Zeroizing::new(std::mem::take(&mut *self.buffer));
        chunk.resize(len, 0);
        read_or_truncated(&mut self.inner, &mut chunk, following.saturating_add(TAG_BYTES as u64))?;
        let mut tag = Tag::default();
        read_or_truncated(&mut self.inner, &mut tag, following)?;
        let Chunks { cipher, header, .. } = &self.chunks;
        let opened = cipher.decrypt_inout_detached(&self.chunks.nonce(), header, chunk.as_mut_slice().into(), &tag);
        opened.map_err(|_| SealFault::Chunk { index: self.chunks.next })?;
        self.buffer = chunk;
        self.remaining -= len as u64;
        self.chunks.next += 1;
        Ok(true)
    }
}

impl<R: Read> Read for Reader<R> {
    /// Errors hold a [`SealFault`].
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.consumed == self.buffer.len() && !out.is_empty() {
            match self.next_chunk() {
                // Continues after an empty chunk, so that the end is checked.
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(SealFault::Io(e)) => return Err(e),
                Err(fault) => return Err(io::Error::new(io::ErrorKind::InvalidData, fault)),
            }
        }
        let len = out.len().min(self.buffer.len() - self.consumed);
        out[..len].copy_from_slice(&self.buffer[self.consumed..self.consumed + len]);
        self.consumed += len;
        Ok(len)
    }
}

/// Fills `out`. If the source ends before, the error counts the missing bytes and the `following`
/// ones.
fn read_or_truncated(source: &mut impl Read, out: &mut [u8], following: u64) -> Result<(), SealFault> {
    let mut filled = 0;
    while filled < out.len() {
        match source.read(&mut out[filled..]) {
            Ok(0) => {
                return Err(SealFault::Truncated { missing: following.saturating_add((out.len() - filled) as u64) });
            }
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Takes the next `N` bytes, which exist since the header has a fixed length.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, tail) = bytes.split_first_chunk().expect("a header is as long as its fields");
    *bytes = tail;
    *head
}
