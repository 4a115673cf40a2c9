//! The bytes of a material or a half for a phase, from memory or streamed from disk.

use std::io::Read;
use std::ops::Deref;

use tacit_mpc::codec::{Packed, Reader, Writer};
use zeroize::Zeroizing;

use tacit_backend_api::BackendError;
use tacit_ring::Node;

/// Bytes per piece when bytes are passed on.
const PIECE_BYTES: usize = 1 << 20;

/// Takes bytes in pieces.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + 'a;

/// A phase's source of a party's bytes, read from their beginning.
pub(crate) enum Source<'a> {
    Memory(Reader<'a>),
    Spooled(Box<dyn Read + Send>),
}

/// The next bytes of a [`Source`].
pub(crate) enum Bytes<'a> {
    Memory(&'a [u8]),
    Spooled(Zeroizing<Vec<u8>>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Spooled(bytes) => bytes,
        }
    }
}

impl<'a> Source<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<Bytes<'a>, BackendError> {
        match self {
            Self::Memory(reader) => Ok(Bytes::Memory(reader.bytes(len)?)),
            Self::Spooled(source) => {
                let mut bytes = Zeroizing::new(vec![0; len]);
                source.read_exact(&mut bytes).map_err(|e| BackendError::Material { what: e.to_string() })?;
                Ok(Bytes::Spooled(bytes))
            }
        }
    }

    /// Gives the next `len` bytes to `sink` in pieces.
    pub(crate) fn pass(&mut self, len: usize, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let mut left = len;
        while left > 0 {
            let now = left.min(PIECE_BYTES);
            sink(&self.bytes(now)?)?;
            left -= now;
        }
        Ok(())
    }

    /// Reads `n` ring elements of a node's tensor.
    pub(crate) fn packed(&mut self, node: &Node, n: usize) -> Result<Vec<u64>, BackendError> {
        let width = node.fixed.width;
        let bytes = self.bytes(Packed::len_bytes(n, width))?;
        Ok(Reader::new(&bytes).packed(n, width)?.values())
    }
}

/// Encodes elements of a ring of `width` bits, for [`Source::packed`].
pub(crate) fn packed_bytes(elements: &[u64], width: u32) -> Zeroizing<Vec<u8>> {
    let mut out = Writer::default();
    out.packed(&Packed::new(elements, width));
    out.finish()
}
