//! Reads ahead, as `std::io::BufReader` does, and frees the buffer when the connection is idle.
use crate::Transport;
use std::io::{self, Read};

/// A transport that is read in pieces of [`Buffered::BYTES`].
pub(crate) struct Buffered {
    transport: Box<dyn Transport>,
    /// Empty, or of full length; the bytes read ahead are `read_bytes..filled`.
    buffer: Vec<u8>,
    read_bytes: usize,
    filled: usize,
}

impl Buffered {
    /// Most bytes that are read ahead.
    pub(crate) const BYTES: usize = 64 << 10;

    pub(crate) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, buffer: Vec::new(), read_bytes: 0, filled: 0 }
    }

    pub(crate) fn get_ref(&self) -> &dyn Transport {
        &*self.transport
    }

    /// The inner transport. Reading from it directly would skip the bytes read ahead.
    pub(crate) fn get_mut(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read_bytes == self.filled
    }

    /// Frees the buffer if it is empty.
    pub(crate) fn free_if_empty(&mut self) {
        if self.is_empty() {
            (self.buffer, self.read_bytes, self.filled) = (Vec::new(), 0, 0);
        }
    }
}

impl Read for Buffered {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            if out.len() >= Self::BYTES {
                return self.transport.read(out);
            }
            self.buffer.resize(Self::BYTES, 0);
            (self.read_bytes, self.filled) = (0, 0);
            self.filled = self.transport.read(&mut self.buffer)?;
        }
        let n = out.len().min(self.filled - self.read_bytes);
        out[..n].copy_from_slice(&self.buffer[self.read_bytes..self.read_bytes + n]);
        self.read_bytes += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemTransport;
    use std::io::Write;

    #[test]
    fn reads_ahead_in_order_and_frees_an_empty_buffer() {
        let (mut remote, local) = MemTransport::pair();
        let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        remote.write_all(&bytes).unwrap();
        drop(remote);
        let mut buffered = Buffered::new(Box::new(local));
        let (mut received, mut size) = (Vec::new(), 1);
        while received.len() < bytes.len() {
            let mut piece = vec![0; size];
            let n = buffered.read(&mut piece).unwrap();
            assert!(n > 0, "{} bytes", received.len());
            received.extend_from_slice(&piece[..n]);
            buffered.free_if_empty();
            assert_eq!(buffered.buffer.is_empty(), buffered.is_empty());
            // Sizes beyond that of the buffer occur too.
            size = size * 3 % 100_003 + 1;
        }
        assert!(received == bytes);
        assert_eq!(buffered.read(&mut [0]).unwrap(), 0);
    }
}
