//! Ciphertexts as they are sent. All numbers are little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 1 | 0: both halves; 1: the second half is a seed |
//! | 1 | level |
//! | 1 | log2 of the number of slots |
//! | 16 | scale |
//! | | first half: per prime N words packed to the prime's width |
//! | | second half, or 16 bytes of seed |
//!
//! The error estimate is not sent: it would reveal something of the message.

use super::cipher::Ciphertext;
use super::context::Context;
use super::encrypt::SeededCiphertext;
use super::noise::Estimate;
use super::poly::{Ntt, Poly};
use super::scale::Scale;
use super::shape::Shape;
use crate::HeError;
use tacit_arith::prg::PublicSeed;

const VERSION: u8 = 1;
const BOTH_HALVES: u8 = 0;
const SEEDED: u8 = 1;
const HEADER: usize = 4 + 16;
const WHAT: &str = "ciphertext";

/// A ciphertext read from bytes, by its form.
pub enum Received {
    /// Both halves.
    Full(Ciphertext),
    /// A fresh encryption whose second half is a seed.
    Seeded(SeededCiphertext),
}

struct Header {
    form: u8,
    level: usize,
    slots: usize,
    scale: Scale,
}

fn header(form: u8, level: usize, slots: usize, scale: Scale, out: &mut Vec<u8>) {
    let log_slots = slots.trailing_zeros() as u8;
    out.extend_from_slice(&[VERSION, form, u8::try_from(level).expect("there are at most 100 primes"), log_slots]);
    out.extend_from_slice(&scale.to_bytes());
}

fn write_half(context: &Context, half: &Poly<Ntt>, out: &mut Vec<u8>) {
    (0..half.shape().level).for_each(|k| half.pack_limb(context, k, out));
}

fn read_half(context: &Context, level: usize, bytes: &[u8]) -> Result<Poly<Ntt>, HeError> {
    let shape = Shape::level(level);
    let mut unread = bytes;
    Poly::read(context, shape, |k, limb| {
        let (packed, tail) = unread.split_at(context.limb_bytes(shape, k));
        unread = tail;
        context.unpack_limb(shape, k, packed, WHAT, limb)
    })
}

fn refuse<T>(why: String) -> Result<T, HeError> {
    Err(HeError::Format { what: WHAT, why })
}

/// Checks the header and the length that it implies, before allocations.
fn read_header<'a>(context: &Context, bytes: &'a [u8]) -> Result<(Header, &'a [u8]), HeError> {
    let too_short = HeError::Length { what: WHAT, got: bytes.len(), expected: HEADER };
    let Some((&[version, form, level, log_slots], unread)) = bytes.split_first_chunk() else { return Err(too_short) };
    let Some((&scale, body)) = unread.split_first_chunk() else { return Err(too_short) };
    if version != VERSION || form > SEEDED {
        return refuse(format!("version {version}, form {form}: this program reads version {VERSION}, forms 0 and 1"));
    }
    let (level, levels) = (usize::from(level), context.parameters().levels());
    if level == 0 || level > levels {
        return refuse(format!("level {level}: the parameters have 1 to {levels}"));
    }
    let max_log_slots = context.degree().trailing_zeros() - 1;
    if !(1..=max_log_slots).contains(&u32::from(log_slots)) {
        return refuse(format!("2^{log_slots} slots: 2 to 2^{max_log_slots} are possible"));
    }
    let Some(scale) = Scale::from_bytes(scale) else {
        return refuse("the scale is no number from 1 to 2^1000".to_owned());
    };
    let half = context.packed_bytes(Shape::level(level));
    let expected = half + if form == SEEDED { PublicSeed::BYTES } else { half };
    if body.len() != expected {
        return Err(HeError::Length { what: WHAT, got: bytes.len(), expected: HEADER + expected });
    }
    Ok((Header { form, level, slots: 1 << log_slots, scale }, body))
}

impl Ciphertext {
    /// Bytes of a ciphertext at `level`.
    ///
    /// # Panics
    /// If the parameters have fewer than `level` primes.
    pub fn bytes_len(context: &Context, level: usize) -> usize {
        HEADER + 2 * context.packed_bytes(Shape::level(level))
    }

    /// Packs both halves.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::bytes_len(context, self.level()) + 8);
        header(BOTH_HALVES, self.level(), self.slots, self.scale, &mut out);
        write_half(context, &self.c0, &mut out);
        write_half(context, &self.c1, &mut out);
        out
    }
}

impl SeededCiphertext {
    /// Packs the first half and the seed of the second.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::bytes_len(context, self.level()) + 8);
        header(SEEDED, self.level(), self.slots, self.scale, &mut out);
        write_half(context, &self.c0, &mut out);
        out.extend_from_slice(&self.seed.to_bytes());
        out
    }

    /// Bytes of a seeded ciphertext at `level`.
    ///
    /// # Panics
    /// If the parameters have fewer than `level` primes.
    pub fn bytes_len(context: &Context, level: usize) -> usize {
        HEADER + context.packed_bytes(Shape::level(level)) + PublicSeed::BYTES
    }
}

impl Received {
    /// Reads a peer's ciphertext in either form. `estimate` is that of a ciphertext with both
    /// halves.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Format`], [`HeError::Range`], [`HeError::Padding`].
    pub fn from_bytes(context: &Context, bytes: &[u8], estimate: Estimate) -> Result<Self, HeError> {
        let (Header { form, level, slots, scale }, body) = read_header(context, bytes)?;
        let (first, second) = body.split_at(context.packed_bytes(Shape::level(level)));
        let c0 = read_half(context, level, first)?;
        if form == SEEDED {
            let seed = PublicSeed::from_bytes(second.try_into().expect("the length has been checked"));
            return Ok(Self::Seeded(SeededCiphertext { seed, c0, scale, slots }));
        }
        Ok(Self::Full(Ciphertext { c0, c1: read_half(context, level, second)?, scale, slots, estimate }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Encoder;
    use super::super::tests::{Bench, spec};
    use super::*;

    #[test]
    fn ciphertexts_round_trip_in_both_forms() {
        let (mut bench, context) = Bench::with_context(&spec(8), 31);
        let x = bench.values(16);
        let encoder = Encoder::new(&context, 16).unwrap();
        let plaintext = encoder.encode(&x, 2, context.parameters().scale(2)).unwrap();
        let seeded = bench.secret.encrypt_seeded(&plaintext, &mut bench.prg);
        let bytes = seeded.to_bytes(&context);
        // 50 and 40 bits per coefficient.
        assert_eq!((bytes.len(), SeededCiphertext::bytes_len(&context, 2)), (20 + 32 * 90 + 16, 20 + 32 * 90 + 16));
        let full = seeded.expand(&context, 1.0);
        let Ok(Received::Seeded(read)) = Received::from_bytes(&context, &bytes, full.estimate()) else {
            panic!("the form is kept")
        };
        assert!(bench.decrypt(&read.expand(&context, 1.0)) == bench.decrypt(&full));
        let bytes = full.to_bytes(&context);
        assert_eq!(bytes.len(), 20 + 2 * 32 * 90);
        let Ok(Received::Full(read)) = Received::from_bytes(&context, &bytes, full.estimate()) else {
            panic!("the form is kept")
        };
        assert!(read.to_bytes(&context) == bytes && read.scale() == full.scale());
    }

    /// Every cut, and every changed byte of the header.
    #[test]
    fn rejects_damaged_bytes() {
        let (mut bench, context) = Bench::with_context(&spec(6), 32);
        let x = bench.values(4);
        let a = bench.encrypt(&x, 2);
        let bytes = a.to_bytes(&context);
        let read = |bytes: &[u8]| Received::from_bytes(&context, bytes, a.estimate()).err();
        for cut in 0..bytes.len() {
            assert!(matches!(read(&bytes[..cut]), Some(HeError::Length { .. })), "{cut}");
        }
        for (index, bad) in [(0, 2), (1, 2), (2, 0), (2, 9), (3, 0), (3, 6)] {
            let mut damaged = bytes.clone();
            damaged[index] = bad;
            assert!(matches!(read(&damaged), Some(HeError::Format { .. })), "byte {index}");
        }
        for scale in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-9, f64::MAX] {
            let mut damaged = bytes.clone();
            damaged[4..12].copy_from_slice(&scale.to_le_bytes());
            damaged[12..20].fill(0);
            assert!(matches!(read(&damaged), Some(HeError::Format { .. })), "{scale}");
        }
        let mut large = bytes.clone();
        large[20..28].fill(0xff);
        assert!(matches!(read(&large), Some(HeError::Range { index: 0, .. })));
    }
}
