//! Ring elements and words as bytes, little endian.

/// Bytes that `count` values of `width` bits take, packed; `None` if that overflows.
#[must_use]
pub fn packed_len(count: usize, width: u32) -> Option<usize> {
    Some(count.checked_mul(width as usize)?.div_ceil(8))
}

/// Appends the low `width` bits (1..=64) of every value to `out`, bit-packed little endian; the last byte is filled with zeros.
pub fn pack_into(out: &mut Vec<u8>, values: &[u64], width: u32) {
    debug_assert!((1..=64).contains(&width));
    if width == 64 {
        return words_into(out, values);
    }
    out.reserve((values.len() * width as usize).div_ceil(8) + 8);
    let mask = (1u64 << width) - 1;
    let (mut acc, mut fill) = (0u64, 0u32);
    for &value in values {
        let value = value & mask;
        acc |= value << fill;
        fill += width;
        if fill >= 64 {
            out.extend_from_slice(&acc.to_le_bytes());
            fill -= 64;
            // `width - fill` bits of the value are written; it is below 64 since width < 64.
            acc = if fill == 0 { 0 } else { value >> (width - fill) };
        }
    }
    out.extend_from_slice(&acc.to_le_bytes()[..fill.div_ceil(8) as usize]);
}

/// Reads `count` values of `width` bits (1..=64). `None` if `bytes` has not exactly [`packed_len`] bytes or the padding
/// bits after the last value are not zero.
#[must_use]
pub fn unpack(bytes: &[u8], count: usize, width: u32) -> Option<Vec<u64>> {
    if !(1..=64).contains(&width) || packed_len(count, width)? != bytes.len() {
        return None;
    }
    if width == 64 {
        return unpack_words(bytes);
    }
    let mask = (1u64 << width) - 1;
    let mut out = Vec::with_capacity(count);
    let (mut acc, mut fill, mut rest) = (0u64, 0u32, bytes);
    while out.len() < count {
        if fill >= width {
            out.push(acc & mask);
            acc >>= width;
            fill -= width;
            continue;
        }
        let (word, bits);
        (word, bits, rest) = next_word(rest);
        let value = (acc | (word << fill)) & mask;
        out.push(value);
        // `width - fill` bits of the new word are used up; below 64 since width < 64.
        let used = width - fill;
        acc = word >> used;
        fill = bits.checked_sub(used)?;
    }
    (acc == 0).then_some(out)
}

/// Up to eight bytes as a word, how many bits those are, and what follows.
fn next_word(bytes: &[u8]) -> (u64, u32, &[u8]) {
    if let Some((head, rest)) = bytes.split_first_chunk::<8>() {
        return (u64::from_le_bytes(*head), 64, rest);
    }
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    (u64::from_le_bytes(word), 8 * bytes.len() as u32, &[])
}

/// Appends words, eight bytes each.
pub fn words_into(out: &mut Vec<u8>, words: &[u64]) {
    let start = out.len();
    out.resize(start + 8 * words.len(), 0);
    for (bytes, word) in out[start..].chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Words of eight bytes each; `None` if the length is no multiple of eight.
#[must_use]
pub fn unpack_words(bytes: &[u8]) -> Option<Vec<u64>> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| chunks.iter().map(|c| u64::from_le_bytes(*c)).collect())
}
