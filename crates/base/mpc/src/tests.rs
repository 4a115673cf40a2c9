//! Roles, and the helpers of this crate's other tests.

use std::convert::Infallible;
use std::fmt::Debug;

use tacit_arith::prg::{Prg, Seed};

use super::*;

/// A generator whose seed repeats `byte`.
pub(crate) fn prg(byte: u8) -> Prg {
    Prg::from_seed(Seed([byte; 16]))
}

/// `n` random numbers of `width` bits.
pub(crate) fn random(prg: &mut Prg, n: usize, width: u32) -> Vec<u64> {
    (0..n).map(|_| prg.next_u64() & low_mask(width)).collect()
}

/// `n` fixed numbers of `width` bits.
pub(crate) fn spread(n: usize, width: u32) -> Vec<u64> {
    (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & low_mask(width)).collect()
}

/// Sums in a ring of `width` bits.
pub(crate) fn add(a: &[u64], b: &[u64], width: u32) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b) & low_mask(width)).collect()
}

/// Differences in a ring of `width` bits.
pub(crate) fn subtract(a: &[u64], b: &[u64], width: u32) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b) & low_mask(width)).collect()
}

/// A number of `width` bits as a signed one.
pub(crate) fn signed(value: u64, width: u32) -> i64 {
    ((value << (64 - width)) as i64) >> (64 - width)
}

/// Each value with each number of `width` bits.
pub(crate) fn with_all_shares(values: impl Iterator<Item = u64>, width: u32) -> (Vec<u64>, Vec<u64>) {
    values.flat_map(|value| (0..1u64 << width).map(move |share| (value, share))).unzip()
}

/// Values that can be widened, `|y| < 2^(width-2)`, with all shares.
pub(crate) fn widening_inputs(width: u32) -> (Vec<u64>, Vec<u64>) {
    let quarter = 1i64 << (width - 2);
    with_all_shares((1 - quarter..quarter).map(|y| y as u64 & low_mask(width)), width)
}

/// Asserts that `wide` are the values `y` in a larger ring.
pub(crate) fn check_widened(y: &[u64], width: u32, wide: &[u64], wide_width: u32) {
    let all_signed = |values: &[u64], width| values.iter().map(|v| signed(*v, width)).collect::<Vec<_>>();
    assert_eq!(all_signed(wide, wide_width), all_signed(y, width), "{width} to {wide_width} bits");
}

/// A ReLU of values of `width` bits, without the `drop` lowest, into a ring of `wide` bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relu {
    pub(crate) width: u32,
    pub(crate) wide: u32,
    pub(crate) drop: u32,
}

impl Relu {
    /// ReLUs in rings of 2 to `max_width` bits, which drop fewer than `drops`, and one in a ring of 8.
    pub(crate) fn small(max_width: u32, drops: u32) -> impl Iterator<Item = Self> {
        let rings = (2..=max_width).flat_map(|width| [0, 1, 5].map(|grow| (width, width + grow))).chain([(8, 13)]);
        rings.flat_map(move |(width, wide)| {
            let drops = (width - 1).min(if width < 8 { drops } else { 1 });
            (0..drops).map(move |drop| Self { width, wide, drop })
        })
    }

    /// All values but the lowest `2^drop`, with all shares.
    pub(crate) fn all_inputs(self) -> (Vec<u64>, Vec<u64>) {
        let lowest = 1u64 << (self.width - 1);
        let accepted = (0..2 * lowest).filter(|v| !(lowest..lowest + (1 << self.drop)).contains(v));
        with_all_shares(accepted, self.width)
    }

    /// Values at edges, and `n` random ones, each with a share.
    pub(crate) fn edge_inputs(self, n: usize, prg: &mut Prg) -> (Vec<u64>, Vec<u64>) {
        let (top, ring, dropped) = (1u64 << (self.width - 1), low_mask(self.width), 1 << self.drop);
        let low = [(0, 0), (1, ring), (2, top), (top - 1, top - 1), (dropped - 1, dropped), (dropped, 3)];
        let high = [(top + dropped, 1), (top + 64, 0), (ring, ring), (ring - 1, top)];
        let random = (0..n).map(|_| {
            let value = prg.next_u64() & ring;
            (if (top..top + dropped).contains(&value) { 0 } else { value }, prg.next_u64() & ring)
        });
        low.into_iter().chain(high).chain(random).unzip()
    }

    /// Asserts that `actual` is the ReLU of `y`, shared with `c`, plus `base`.
    pub(crate) fn check(self, base: u64, y: &[u64], c: &[u64], actual: &[u64]) {
        assert_eq!(actual.len(), y.len());
        let wide = low_mask(self.wide);
        for ((y, c), &actual) in y.iter().zip(c).zip(actual) {
            let value = signed(*y, self.width);
            let expected = (value.max(0) as u64).wrapping_add(base) & wide;
            let dropped = self.drop > 0 && (0..1 << self.drop).contains(&value) && actual == base & wide;
            assert!(actual == expected || dropped, "{self:?}: {value} with {c}: {actual}, not {expected}");
        }
    }
}

/// Asserts that `actual` are y plus `base`, x, and -1 in 9 bits where `y >= 0`; `base` and zeros elsewhere.
pub(crate) fn check_picked(actual: &[Vec<u64>], y: &[u64], x: &[u64], width: u32, base: u64) {
    for (i, (&y, &x)) in y.iter().zip(x).enumerate() {
        let pick = |v: u64| if signed(y, width) >= 0 { v } else { 0 };
        let expected = [(pick(y) + base) & low_mask(width), pick(x), pick(0x1ff)];
        assert_eq!([actual[0][i], actual[1][i], actual[2][i]], expected, "element {i}");
    }
}

/// Asserts that a party sends the stated bytes, and headers of fewer than `messages` messages.
pub(crate) fn assert_sent(bytes: u64, stated: usize, messages: u64) {
    let stated = stated as u64;
    assert!((stated..stated + 16 * messages).contains(&bytes), "{bytes} bytes, {stated} stated");
}

/// The bytes that a dealer hands over.
pub(crate) fn collect(
    deal: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), Infallible>) -> Result<(), Infallible>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(()) = deal(&mut |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        Ok(())
    });
    out
}

const DEALINGS: u32 = 400;

/// The frequency of each bit in what many calls of `deal` make.
pub(crate) fn bit_frequencies(mut deal: impl FnMut() -> Vec<u8>) -> Vec<f64> {
    let mut counts: Vec<u32> = Vec::new();
    for _ in 0..DEALINGS {
        let half = deal();
        counts.resize(8 * half.len(), 0);
        for (i, byte) in half.iter().enumerate() {
            (0..8).for_each(|b| counts[8 * i + b] += u32::from(byte >> b & 1));
        }
    }
    counts.into_iter().map(|count| f64::from(count) / f64::from(DEALINGS)).collect()
}

/// Whether a bit is 1 half of the time, up to six deviations.
pub(crate) fn is_uniform(frequency: f64) -> bool {
    (frequency - 0.5).abs() < 6.0 * 0.5 / f64::from(DEALINGS).sqrt()
}

/// Asserts that all bits are uniform but `padding` bits, which are always 0.
pub(crate) fn assert_uniform(frequencies: &[f64], padding: usize, case: impl Debug) {
    assert_eq!(frequencies.iter().filter(|frequency| **frequency == 0.0).count(), padding, "{case:?}");
    for (i, &frequency) in frequencies.iter().enumerate() {
        assert!(frequency == 0.0 || is_uniform(frequency), "{case:?}, bit {i}: {frequency}");
    }
}

#[test]
fn roles_have_their_own_values() {
    let sides = Role::each(|role| role == Role::Server);
    assert_eq!([Role::Client, Role::Server].map(|role| *role.value_of(&sides)), [false, true]);
    assert_eq!(sides.map(u8::from), Sides { client: 0, server: 1 });
}
