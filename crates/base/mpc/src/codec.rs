//! Material as bytes. Every length follows from the plan, so no byte of the input can make a reader
//! allocate: the reader has the exact total, and each piece states its share of the total.

use tacit_arith::bits::Bits;
use tacit_arith::pack;

use zeroize::Zeroizing;

use crate::{MpcError, planes};

/// Ring elements of one width, packed.
#[derive(Clone, PartialEq, Eq, zeroize::ZeroizeOnDrop)]
pub struct Packed {
    bytes: Vec<u8>,
    #[zeroize(skip)]
    count: usize,
    #[zeroize(skip)]
    width: u32,
}

impl Packed {
    /// Packs the low `width` bits (0 to 64; 0 stores nothing) of each value.
    pub fn new(values: &[u64], width: u32) -> Self {
        let mut bytes = Vec::new();
        if width > 0 {
            pack::pack_slice(values, width, &mut bytes);
        }
        Self { bytes, count: values.len(), width }
    }

    /// Two values for each of `n` elements, packed as by [`pack::pack_pairs`].
    pub(crate) fn pairs(n: usize, widths: [u32; 2], f: impl Fn(usize, [&mut [u64]; 2]) + Sync) -> [Self; 2] {
        let [first, second] = pack::pack_pairs(n, widths, f);
        [(first, widths[0]), (second, widths[1])].map(|(bytes, width)| Self { bytes, count: n, width })
    }

    /// The values as a message, the format of
    /// [`send_packed`](crate::wire::PackedMessages::send_packed).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values, each below 2^width.
    pub fn values(&self) -> Vec<u64> {
        if self.width == 0 {
            return vec![0; self.count];
        }
        let values = pack::unpack(&self.bytes, self.count, self.width, u64::MAX);
        values.expect("`new` packed these bytes, or `Reader::packed` has checked them")
    }

    /// Size of `count` values of `width` bits, in bytes.
    pub fn len_bytes(count: usize, width: u32) -> usize {
        (count * width as usize).div_ceil(8)
    }
}

/// Appends material to a byte vector.
#[derive(Default)]
pub struct Writer {
    bytes: Zeroizing<Vec<u8>>,
}

impl Writer {
    /// Makes room for `additional` bytes and wipes the outgrown buffer.
    fn grow(&mut self, additional: usize) {
        let needed = self.bytes.len() + additional;
        if needed > self.bytes.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.bytes.capacity())));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.grow(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends planes.
    pub fn planes(&mut self, planes: &[Bits]) {
        for plane in planes {
            self.grow(plane.len().div_ceil(8));
            planes::put(&mut self.bytes, plane);
        }
    }

    /// Appends packed ring elements.
    pub fn packed(&mut self, packed: &Packed) {
        self.bytes(&packed.bytes);
    }

    /// The written bytes.
    pub fn finish(self) -> Zeroizing<Vec<u8>> {
        self.bytes
    }
}

/// Reads material back.
pub struct Reader<'a> {
    unread: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { unread: bytes }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `Material` if fewer bytes are left.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], MpcError> {
        if len > self.unread.len() {
            return Err(MpcError::Material { what: format!("{len} bytes expected, {} left", self.unread.len()) });
        }
        let (head, tail) = self.unread.split_at(len);
        self.unread = tail;
        Ok(head)
    }

    /// The next `count` planes of `n` bits.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn planes(&mut self, count: usize, n: usize) -> Result<Vec<Bits>, MpcError> {
        (0..count).map(|_| self.plane(n)).collect()
    }

    /// The next plane of `n` bits.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn plane(&mut self, n: usize) -> Result<Bits, MpcError> {
        Ok(planes::get(self.bytes(n.div_ceil(8))?, n))
    }

    /// The next `count` packed ring elements.
    ///
    /// # Errors
    /// `Material` if too few bytes are left or the padding bits are not zero.
    pub fn packed(&mut self, count: usize, width: u32) -> Result<Packed, MpcError> {
        let bytes = self.bytes(Packed::len_bytes(count, width))?;
        if width > 0
            && let Err(error) = pack::check(bytes, count, width)
        {
            return Err(MpcError::Material { what: error.to_string() });
        }
        Ok(Packed { bytes: bytes.to_vec(), count, width })
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// `Material` if bytes are left over.
    pub fn finish(self) -> Result<(), MpcError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        Err(MpcError::Material { what: format!("{} bytes too many", self.unread.len()) })
    }
}
