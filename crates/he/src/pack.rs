//! Bit packing: values of `bits` bits, least significant bit first, without gaps.

use crate::HeError;

/// Bytes of `count` values of `bits` bits.
#[must_use]
pub fn packed_len(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Appends `values`, each below `2^bits` with `1 <= bits <= 64`.
pub fn pack(values: impl Iterator<Item = u64>, bits: u32, out: &mut Vec<u8>) {
    let (mut held, mut filled) = (0u128, 0);
    for v in values {
        held |= u128::from(v) << filled;
        filled += bits;
        if filled >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            filled -= 64;
        }
    }
    out.extend_from_slice(&(held as u64).to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Reads `count` values of `bits` bits, `1 <= bits <= 64`, each at most `max`.
///
/// # Errors
/// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`], naming `what`.
pub fn unpack(bytes: &[u8], count: usize, bits: u32, max: u64, what: &'static str) -> Result<Vec<u64>, HeError> {
    let expected = packed_len(count, bits);
    if bytes.len() != expected {
        return Err(HeError::Length { what, got: bytes.len(), expected });
    }
    let mask = u64::MAX >> (64 - bits);
    let mut words = bytes.chunks(8).map(|c| {
        let mut word = [0; 8];
        word[..c.len()].copy_from_slice(c);
        u64::from_le_bytes(word)
    });
    let (mut held, mut filled) = (0u128, 0);
    let mut values = Vec::with_capacity(count);
    for index in 0..count {
        if filled < bits {
            held |= u128::from(words.next().unwrap_or(0)) << filled;
            filled += 64;
        }
        let v = held as u64 & mask;
        if v > max {
            return Err(HeError::Range { what, index });
        }
        values.push(v);
        held >>= bits;
        filled -= bits;
    }
    if held != 0 {
        return Err(HeError::Padding { what });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(values in prop::collection::vec(any::<u64>(), 0..70), bits in 1u32..=64) {
            let values: Vec<u64> = values.iter().map(|v| v >> (64 - bits)).collect();
            let mut bytes = vec![];
            pack(values.iter().copied(), bits, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_len(values.len(), bits));
            prop_assert_eq!(unpack(&bytes, values.len(), bits, u64::MAX, "test"), Ok(values));
        }
    }

    #[test]
    fn bad_bytes_are_named() {
        let what = "test";
        assert_eq!(unpack(&[0; 2], 3, 7, 127, what), Err(HeError::Length { what, got: 2, expected: 3 }));
        assert_eq!(unpack(&[0, 0xff, 0], 3, 7, 100, what), Err(HeError::Range { what, index: 1 }));
        assert_eq!(unpack(&[0, 0, 0x20], 3, 7, 127, what), Err(HeError::Padding { what }));
    }
}
