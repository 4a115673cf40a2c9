//! Bit packing: values of `width` bits, least significant bit first, without gaps. Zeros fill the
//! last byte.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::cpu::Cpu;
use rayon::prelude::*;

/// Values that a thread handles at a time. They take whole words at any width.
const PART: usize = 1 << 13;
/// Fewest parts for another thread: waking a thread takes some 20 us.
const MIN_PARTS_PER_THREAD: usize = 8;

/// Why packed bytes are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PackError {
    /// More or fewer bytes than the values take.
    #[error("{got} bytes, expected {expected}")]
    Length {
        /// Bytes given.
        got: usize,
        /// Bytes that the values take.
        expected: usize,
    },
    /// A value above the largest allowed.
    #[error("value {index} is out of range")]
    Range {
        /// Index of the first such value.
        index: usize,
    },
    /// Bits after the last value are set.
    #[error("bits after the last value are set")]
    Padding,
}

/// Bytes that `count` values of `width` bits take; `None` if the width is not 1 to 64 or their
/// number overflows.
pub fn packed_len(count: usize, width: u32) -> Option<usize> {
    let bits = (1..=64).contains(&width).then(|| count.checked_mul(width as usize))?;
    Some(bits?.div_ceil(8))
}

fn checked_len(count: usize, width: u32) -> usize {
    packed_len(count, width).expect("callers pack 1 to 64 bits a value, and no more values than fit in memory")
}

/// Appends the low `width` bits of every value to `out`.
///
/// # Panics
/// If [`packed_len`] is `None`.
pub fn pack(values: impl ExactSizeIterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + checked_len(values.len(), width), 0);
    pack_part(values, width, &mut out[start..]);
}

/// As [`pack`]; many values use all threads.
///
/// # Panics
/// If [`packed_len`] is `None`.
pub fn pack_slice(values: &[u64], width: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + checked_len(values.len(), width), 0);
    pack_into(values, width, &mut out[start..]);
}

/// As [`pack_slice`], into a buffer.
///
/// # Panics
/// If [`packed_len`] is `None` or not the length of `out`.
pub fn pack_into(values: &[u64], width: u32, out: &mut [u8]) {
    assert_eq!(out.len(), checked_len(values.len(), width), "bytes of the packed values");
    let parts = out.par_chunks_mut(PART / 8 * width as usize).zip(values.par_chunks(PART));
    parts.with_min_len(MIN_PARTS_PER_THREAD).for_each(|(out, values)| pack_part(values.iter().copied(), width, out));
}

/// Packs two numbers for each of `n` elements into separate buffers, each with its own width.
/// `f(first, numbers)` writes the numbers from element `first` on, a part at a time.
///
/// # Panics
/// If [`packed_len`] is `None`.
#[must_use]
pub fn pack_pairs(n: usize, widths: [u32; 2], f: impl Fn(usize, [&mut [u64]; 2]) + Sync) -> [Vec<u8>; 2] {
    let mut packed = widths.map(|width| vec![0; checked_len(n, width)]);
    let [first, second] = &mut packed;
    let [a, b] = widths.map(|width| PART / 8 * width as usize);
    let parts = first.par_chunks_mut(a).zip(second.par_chunks_mut(b));
    let room = || widths.map(|_| vec![0; PART.min(n)]);
    parts.enumerate().with_min_len(MIN_PARTS_PER_THREAD / 4).for_each_init(room, |[a, b], (part, (first, second))| {
        let len = PART.min(n - part * PART);
        let (a, b) = (&mut a[..len], &mut b[..len]);
        f(part * PART, [&mut *a, &mut *b]);
        pack_part(a.iter().copied(), widths[0], first);
        pack_part(b.iter().copied(), widths[1], second);
    });
    packed
}

/// Packs values from a byte boundary on; `out` has exactly their bytes.
fn pack_part(values: impl Iterator<Item = u64>, width: u32, out: &mut [u8]) {
    let (words, tail) = out.as_chunks_mut::<8>();
    let (mut words, mask) = (words.iter_mut(), u64::MAX >> (64 - width));
    let (mut pending, mut filled) = (0u128, 0);
    for value in values {
        pending |= u128::from(value & mask) << filled;
        filled += width;
        if filled >= 64 {
            *words.next().expect("the buffer has a word for every 64 bits") = (pending as u64).to_le_bytes();
            (pending, filled) = (pending >> 64, filled - 64);
        }
    }
    let last_bytes = (pending as u64).to_le_bytes();
    match words.next() {
        Some(last) => *last = last_bytes,
        None => tail.copy_from_slice(&last_bytes[..tail.len()]),
    }
}

/// Reads `count` values of `width` bits, each at most `max`, in a time that depends on the values
/// only if one is larger.
///
/// # Errors
/// The first variant of [`PackError`] that applies.
///
/// # Panics
/// If [`packed_len`] is `None`.
pub fn unpack(bytes: &[u8], count: usize, width: u32, max: u64) -> Result<Vec<u64>, PackError> {
    check_len(bytes, count, width)?;
    let mut values = vec![0; count];
    unpack_into(bytes, width, max, &mut values)?;
    Ok(values)
}

/// As [`unpack`], into a buffer whose content is unspecified after an error.
///
/// # Errors
/// As [`unpack`].
///
/// # Panics
/// If [`packed_len`] is `None`.
pub fn unpack_into(bytes: &[u8], width: u32, max: u64, out: &mut [u64]) -> Result<(), PackError> {
    check_len(bytes, out.len(), width)?;
    let cpu = Cpu::best();
    let parts = bytes.par_chunks(PART / 8 * width as usize).zip(out.par_chunks_mut(PART)).enumerate();
    let failed = parts.with_min_len(MIN_PARTS_PER_THREAD).find_map_first(|(part, (bytes, out))| {
        match unpack_with(cpu, bytes, width, max, out) {
            Err(PackError::Range { index }) => Some(PackError::Range { index: part * PART + index }),
            result => result.err(),
        }
    });
    failed.map_or(Ok(()), Err)
}

/// As [`unpack_into`] on one thread.
fn unpack_with(cpu: Cpu, bytes: &[u8], width: u32, max: u64, out: &mut [u64]) -> Result<(), PackError> {
    check_len(bytes, out.len(), width)?;
    let mask = u64::MAX >> (64 - width);
    let (unpacked, mut excess) = unpack_fast(cpu, bytes, width, max, out);
    // A value starts inside a byte and ends at most `width + 7` bits later.
    if width <= 57 {
        unpack_windows(bytes, unpacked, width, out, |window, shift| u64::from_le_bytes(window) >> shift & mask);
    } else {
        unpack_windows(bytes, unpacked, width, out, |window, shift| {
            (u128::from_le_bytes(window) >> shift) as u64 & mask
        });
    }
    excess |= max < mask && out[unpacked..].iter().any(|&v| v > max);
    if excess && let Some(index) = out.iter().position(|&v| v > max) {
        return Err(PackError::Range { index });
    }
    check_padding(bytes, out.len(), width)
}

/// Unpacks as many values from the front as the kernel takes. Returns their number, and whether one
/// is above `max`.
#[cfg(target_arch = "x86_64")]
fn unpack_fast(cpu: Cpu, bytes: &[u8], width: u32, max: u64, out: &mut [u64]) -> (usize, bool) {
    if cpu.has_wide_blocks() && width <= avx512::MAX_WIDTH {
        // SAFETY: AVX-512 F, BW and VBMI are among what wide blocks need.
        return unsafe { avx512::unpack(bytes, width, max, out) };
    }
    if !cpu.has_fma() || width > avx2::MAX_WIDTH {
        return (0, false);
    }
    // SAFETY: AVX2 was detected.
    unsafe { avx2::unpack(bytes, width, max, out) }
}

#[cfg(not(target_arch = "x86_64"))]
fn unpack_fast(_: Cpu, _: &[u8], _: u32, _: u64, _: &mut [u64]) -> (usize, bool) {
    (0, false)
}

/// Unpacks the values from index `first` on. `value` gets the `N` bytes where a value starts (zeros
/// after the end) and the number of bits before it.
#[inline(always)]
fn unpack_windows<const N: usize>(
    bytes: &[u8],
    first: usize,
    width: u32,
    out: &mut [u64],
    value: impl Fn([u8; N], usize) -> u64,
) {
    let step = width as usize;
    let safe_end = bytes.len().checked_sub(N).map_or(0, |last| (8 * last / step + 1).min(out.len())).max(first);
    for (i, v) in out.iter_mut().enumerate().take(safe_end).skip(first) {
        let window = bytes[i * step / 8..].first_chunk().expect("counted so that a window follows");
        *v = value(*window, i * step % 8);
    }
    for (i, v) in out.iter_mut().enumerate().skip(safe_end) {
        let tail = &bytes[i * step / 8..];
        let (mut window, len) = ([0; N], tail.len().min(N));
        window[..len].copy_from_slice(&tail[..len]);
        *v = value(window, i * step % 8);
    }
}

/// Checks packed bytes as [`unpack`] does, except for a largest value.
///
/// # Errors
/// [`PackError::Length`], [`PackError::Padding`].
///
/// # Panics
/// If [`packed_len`] is `None`.
pub fn check(bytes: &[u8], count: usize, width: u32) -> Result<(), PackError> {
    check_len(bytes, count, width)?;
    check_padding(bytes, count, width)
}

fn check_len(bytes: &[u8], count: usize, width: u32) -> Result<(), PackError> {
    let expected = checked_len(count, width);
    if bytes.len() != expected {
        return Err(PackError::Length { got: bytes.len(), expected });
    }
    Ok(())
}

fn check_padding(bytes: &[u8], count: usize, width: u32) -> Result<(), PackError> {
    let used = count * width as usize % 8;
    match bytes.last() {
        Some(last) if used > 0 && last >> used != 0 => Err(PackError::Padding),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Schoolbook: bit i of the stream is bit `i % width` of value `i / width`.
        #[test]
        fn bits_lie_in_order_and_come_back(values in prop::collection::vec(any::<u64>(), 0..300), width in 1u32..=64) {
            let mut bytes = vec![0xab];
            pack(values.iter().copied(), width, &mut bytes);
            let (first, packed) = bytes.split_first().unwrap();
            prop_assert_eq!(*first, 0xab);
            prop_assert_eq!(Some(packed.len()), packed_len(values.len(), width));
            for i in 0..8 * packed.len() {
                let bit = values.get(i / width as usize).map_or(0, |v| v >> (i % width as usize) & 1);
                prop_assert_eq!(u64::from(packed[i / 8] >> (i % 8) & 1), bit);
            }
            let low: Vec<u64> = values.iter().map(|v| v << (64 - width) >> (64 - width)).collect();
            prop_assert_eq!(unpack(packed, values.len(), width, u64::MAX), Ok(low.clone()));
            let (mut repacked, mut unpacked) = (vec![0xab; packed.len()], vec![7; values.len()]);
            pack_into(&values, width, &mut repacked);
            prop_assert_eq!(&repacked, packed);
            let pairs = pack_pairs(values.len(), [width, 64], |start, [a, b]| {
                a.copy_from_slice(&values[start..][..a.len()]);
                b.copy_from_slice(a);
            });
            prop_assert_eq!(&pairs[0], packed);
            prop_assert_eq!(&pairs[1], &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            let mut appended = vec![0xab];
            pack_slice(&values, width, &mut appended);
            prop_assert_eq!(&appended, &bytes);
            for cpu in Cpu::available() {
                unpacked.fill(7);
                prop_assert_eq!(unpack_with(cpu, packed, width, u64::MAX, &mut unpacked), Ok(()));
                prop_assert_eq!(&unpacked, &low);
                if let Some(max) = low.iter().max().and_then(|max| max.checked_sub(1)) {
                    let index = low.iter().position(|&v| v > max).unwrap();
                    let range_error = Err(PackError::Range { index });
                    prop_assert_eq!(unpack_with(cpu, packed, width, max, &mut unpacked), range_error);
                }
            }
        }
    }

    #[test]
    fn rejects_bad_bytes() {
        assert_eq!(unpack(&[0; 2], 3, 7, 127), Err(PackError::Length { got: 2, expected: 3 }));
        assert_eq!(unpack(&[0; 4], 3, 7, 127), Err(PackError::Length { got: 4, expected: 3 }));
        assert_eq!(unpack(&[0, 0xff, 0], 3, 7, 100), Err(PackError::Range { index: 1 }));
        assert_eq!(unpack(&[0, 0, 0x20], 3, 7, 127), Err(PackError::Padding));
        assert_eq!(check(&[0, 0, 0x20], 3, 7), Err(PackError::Padding));
        assert_eq!(check(&[0; 2], 3, 7), Err(PackError::Length { got: 2, expected: 3 }));
        assert_eq!(check(&[0xff, 0xff, 0x1f], 3, 7), Ok(()));
        assert_eq!(unpack(&[0b0000_0111], 1, 3, 7), Ok(vec![7]));
        assert_eq!(unpack(&[0xff; 40], 5, 64, u64::MAX - 1), Err(PackError::Range { index: 0 }));
        assert_eq!(unpack(&[], 0, 64, 0), Ok(vec![]));
    }

    #[test]
    fn impossible_sizes_have_no_length() {
        assert_eq!([packed_len(1, 0), packed_len(1, 65), packed_len(usize::MAX, 2)], [None; 3]);
        assert_eq!(packed_len(usize::MAX, 1), Some(usize::MAX / 8 + 1));
    }
}
