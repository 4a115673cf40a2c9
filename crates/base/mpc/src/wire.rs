//! Ring elements and words as messages: packed little endian, without gaps.

use tacit_arith::pack;
use tacit_net::{Channel, NetError, Tag};

/// Packed messages over a [`Channel`], which carries only bytes.
pub trait PackedMessages {
    /// Sends the low `width` bits (1 to 64) of every value.
    ///
    /// # Errors
    /// As [`Channel::send`]; [`NetError::Malformed`] for a width outside 1 to 64.
    fn send_packed(&mut self, tag: Tag, values: &[u64], width: u32) -> Result<(), NetError>;

    /// Receives `count` values of `width` bits (1 to 64) as sent by [`send_packed`](Self::send_packed); each
    /// is below `2^width`.
    ///
    /// # Errors
    /// As [`Channel::recv`]; [`NetError::Malformed`] if padding bits are set or for a width outside 1 to 64.
    fn recv_packed(&mut self, tag: Tag, count: usize, width: u32) -> Result<Vec<u64>, NetError>;

    /// Sends 64-bit words.
    ///
    /// # Errors
    /// As [`Channel::send`].
    fn send_words(&mut self, tag: Tag, words: &[u64]) -> Result<(), NetError> {
        self.send_packed(tag, words, 64)
    }

    /// Receives `count` words.
    ///
    /// # Errors
    /// As [`Channel::recv`].
    fn recv_words(&mut self, tag: Tag, count: usize) -> Result<Vec<u64>, NetError> {
        self.recv_packed(tag, count, 64)
    }
}

impl PackedMessages for Channel {
    fn send_packed(&mut self, tag: Tag, values: &[u64], width: u32) -> Result<(), NetError> {
        packed_len(tag, values.len(), width)?;
        self.send_with(tag, |bytes| pack::pack_slice(values, width, bytes))
    }

    fn recv_packed(&mut self, tag: Tag, count: usize, width: u32) -> Result<Vec<u64>, NetError> {
        let len = packed_len(tag, count, width)?;
        self.recv_with(tag, len, |bytes| pack::unpack(bytes, count, width, u64::MAX).map_err(|e| e.to_string()))
    }
}

/// Bytes of a packed message; an error if there is no such message.
fn packed_len(tag: Tag, count: usize, width: u32) -> Result<usize, NetError> {
    pack::packed_len(count, width).ok_or_else(|| {
        let what = format!("{count} values of {width} bits are no message");
        NetError::Malformed { tag, what }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tacit_net::mem_pair;

    const A: Tag = Tag::new(0xf001, "first");
    const B: Tag = Tag::new(0xf002, "second");

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn packed_values_come_back_masked(values in prop::collection::vec(any::<u64>(), 0..300), width in 1u32..=64) {
            let (mut a, mut b) = mem_pair();
            a.send_packed(A, &values, width).unwrap();
            a.send_words(B, &values).unwrap();
            a.flush().unwrap();
            let expected: Vec<u64> = values.iter().map(|v| v & (u64::MAX >> (64 - width))).collect();
            prop_assert_eq!(b.recv_packed(A, values.len(), width).unwrap(), expected);
            prop_assert_eq!(b.recv_words(B, values.len()).unwrap(), values.clone());
        }
    }

    #[test]
    fn bytes_on_the_wire_are_the_low_bits_first() {
        let (mut a, mut b) = mem_pair();
        a.send_packed(A, &[0b101, 0b1_0011, 0b110], 3).unwrap();
        a.send_words(B, &[0x0102]).unwrap();
        a.flush().unwrap();
        assert_eq!(b.recv(A, 2).unwrap(), [0b1001_1101, 0b1]);
        assert_eq!(b.recv(B, 8).unwrap(), [2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn set_padding_bits_and_impossible_widths_are_refused() {
        let (mut a, mut b) = mem_pair();
        a.send(A, &[0xff]).unwrap();
        a.flush().unwrap();
        assert!(matches!(a.send_packed(A, &[1], 0), Err(NetError::Malformed { .. })));
        assert!(matches!(b.recv_packed(A, 1, 65), Err(NetError::Malformed { .. })));
        assert!(matches!(b.recv_packed(A, 1, 3), Err(NetError::Malformed { .. })));
        assert!(matches!(b.recv(A, 1), Err(NetError::Failed { .. })));
    }
}
