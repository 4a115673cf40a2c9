//! Records one party's bytes, and runs that party alone against the recording.
//!
//! File: the line `tacit transcript 1`, then entries
//! `direction u8 (b'S' sent, b'R' received) | length u32 little endian | bytes`.
use crate::transport::Transport;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const MAGIC: &[u8; 19] = b"tacit transcript 1\n";

/// A transport that passes all bytes on and writes them to a file. The file holds the party's
/// secrets only as the peer sees them in transit, but is as confidential as the conversation.
pub struct RecordTransport<T: Transport> {
    inner: T,
    log: BufWriter<File>,
}

impl<T: Transport> RecordTransport<T> {
    /// Records `inner` into a new file at `path`.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(inner: T, path: &Path) -> io::Result<Self> {
        let mut log = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        log.write_all(MAGIC)?;
        Ok(Self { inner, log })
    }

    fn note(&mut self, direction: u8, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(1 << 30) {
            self.log.write_all(&[direction])?;
            self.log.write_all(&(piece.len() as u32).to_le_bytes())?;
            self.log.write_all(piece)?;
        }
        Ok(())
    }
}

impl<T: Transport> Read for RecordTransport<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.note(b'R', &buf[..n])?;
        Ok(n)
    }
}

impl<T: Transport> Write for RecordTransport<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.note(b'S', &buf[..n])?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.flush()?;
        self.inner.flush()
    }
}

impl<T: Transport> Transport for RecordTransport<T> {
    fn peer(&self) -> String {
        format!("{} (recorded)", self.inner.peer())
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

/// A transport without a peer. Reads return what the recorded party received. Writes are dropped, or
/// compared with what it sent.
pub struct ReplayTransport {
    received: EntryReader,
    sent_reader: Option<EntryReader>,
    written: u64,
    recorded: Vec<u8>,
}

impl ReplayTransport {
    /// Opens a recording. With `compare_sent`, a write that differs from the recording fails with
    /// the offset.
    ///
    /// # Errors
    /// If the file cannot be read or is no recording.
    pub fn open(path: &Path, compare_sent: bool) -> io::Result<Self> {
        Ok(Self {
            received: EntryReader::open(path, b'R')?,
            sent_reader: if compare_sent { Some(EntryReader::open(path, b'S')?) } else { None },
            written: 0,
            recorded: Vec::new(),
        })
    }
}

impl Read for ReplayTransport {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.received.read(buf)
    }
}

impl Write for ReplayTransport {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some(sent_reader) = &mut self.sent_reader else {
            return Ok(buf.len());
        };
        self.recorded.resize(buf.len().min(64 << 10), 0);
        let n = sent_reader.read(&mut self.recorded)?;
        let recorded = &self.recorded[..n];
        if recorded != &buf[..n] || n == 0 && !buf.is_empty() {
            let common_len = recorded.iter().zip(buf).take_while(|(a, b)| a == b).count();
            let offset = self.written + common_len as u64;
            return Err(invalid(format!("the party sends something else than was recorded, from byte {offset} on")));
        }
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for ReplayTransport {
    fn peer(&self) -> String {
        "recording".into()
    }

    fn set_stall_timeout(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_deadline(&mut self, _: Option<Instant>) {}
}

/// The bytes of one direction of a recording, as a stream.
struct EntryReader {
    file: BufReader<File>,
    direction: u8,
    remaining: usize,
}

impl EntryReader {
    fn open(path: &Path, direction: u8) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut magic = [0u8; MAGIC.len()];
        file.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(invalid(format!("{} is no tacit transcript", path.display())));
        }
        Ok(Self { file, direction, remaining: 0 })
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.remaining == 0 {
            let mut direction = [0u8];
            if self.file.read(&mut direction)? == 0 {
                return Ok(0);
            }
            let mut len = [0u8; 4];
            self.file.read_exact(&mut len)?;
            let len = u32::from_le_bytes(len);
            match direction[0] {
                d if d == self.direction => self.remaining = len as usize,
                b'S' | b'R' => self.file.seek_relative(i64::from(len))?,
                other => {
                    let offset = self.file.stream_position()?;
                    return Err(invalid(format!(
                        "the transcript is damaged before byte {offset}: no direction {other:#04x}"
                    )));
                }
            }
        }
        let n = buf.len().min(self.remaining);
        let n = self.file.read(&mut buf[..n])?;
        if n == 0 && !buf.is_empty() {
            return Err(invalid("the transcript ends inside an entry".into()));
        }
        self.remaining -= n;
        Ok(n)
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
