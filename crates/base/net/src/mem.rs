//! Transports and channels between two parties in one process.
use crate::Channel;
use crate::queue::ByteQueue;
use crate::transport::{DEFAULT_STALL, Transport, allowed_wait};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One end of an in-memory duplex stream.
pub struct MemTransport {
    outgoing: Arc<ByteQueue>,
    incoming: Arc<ByteQueue>,
    chunk: Vec<u8>,
    position: usize,
    stall: Duration,
    deadline: Option<Instant>,
}

impl MemTransport {
    /// Two connected ends.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let (a, b) = (Arc::new(ByteQueue::default()), Arc::new(ByteQueue::default()));
        (Self::new(a.clone(), b.clone()), Self::new(b, a))
    }

    fn new(outgoing: Arc<ByteQueue>, incoming: Arc<ByteQueue>) -> Self {
        Self { outgoing, incoming, chunk: Vec::new(), position: 0, stall: DEFAULT_STALL, deadline: None }
    }
}

/// Two connected channels in one process.
#[must_use]
pub fn mem_pair() -> (Channel, Channel) {
    let (a, b) = MemTransport::pair();
    (Channel::new(Box::new(a)), Channel::new(Box::new(b)))
}

impl Read for MemTransport {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.position == self.chunk.len() {
            match self.incoming.pop(allowed_wait(self.stall, self.deadline)?)? {
                Some(chunk) => (self.chunk, self.position) = (chunk, 0),
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.chunk.len() - self.position);
        buf[..n].copy_from_slice(&self.chunk[self.position..self.position + n]);
        self.position += n;
        Ok(n)
    }
}

impl Write for MemTransport {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if !buf.is_empty() {
            self.outgoing.push(buf.to_vec(), allowed_wait(self.stall, self.deadline)?)?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for MemTransport {
    fn peer(&self) -> String {
        "memory".into()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stall = timeout;
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Drop for MemTransport {
    fn drop(&mut self) {
        self.outgoing.close();
        self.incoming.close();
    }
}
