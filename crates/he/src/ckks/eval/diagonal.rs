//! Diagonals of linear transforms, ready to be multiplied with.
//!
//! One whose values repeat is a polynomial in a power of X, whose transform repeats as well: in bit-reversed
//! order each value stands as often in a row as the power says. From `X^8` on, every block of 64 words (in
//! the order of [`tacit_arith::ntt`]) is the same eight words eight times, and from `X^64` on blocks repeat.

use super::super::context::Context;
use super::super::encoder::{Complex, Encoder};
use super::super::limb::Limb;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::super::shape::Shape;
use crate::HeError;
use std::ops::Range;
use std::sync::Arc;

/// Words of a block in NTT order, and how many of them differ where blocks repeat themselves.
const BLOCK: usize = 64;
const EIGHT: usize = 8;

/// A diagonal.
pub(super) enum Diagonal {
    /// Transformed.
    Ready(Poly<Ntt>),
    /// Transformed: of each limb the eights of its blocks, as many as there are before they repeat.
    Repeated(Vec<Vec<u64>>),
    /// Coefficients at multiples of `N / len`, to be transformed.
    Compact(Vec<i64>),
}

/// One limb of a diagonal.
pub(super) enum Words<'a> {
    Whole(&'a [u64]),
    Made(Limb),
    /// Eights, and how many blocks each makes.
    Repeated(&'a [u64], usize),
}

/// The shortest power of two of values that repeats, at least 2.
fn period(values: &[Complex]) -> usize {
    let repeats = |p: &usize| values.iter().zip(&values[*p..]).all(|(a, b)| a == b);
    (1..usize::BITS).map(|b| 1 << b).take_while(|p| *p < values.len()).find(repeats).unwrap_or(values.len())
}

impl Diagonal {
    /// As integers, in the smallest subring that holds it.
    pub(super) fn encode(context: &Arc<Context>, values: &[Complex], scale: Scale) -> Result<Self, HeError> {
        let period = period(values);
        let coefficients = Encoder::new(context, period)?.small_coefficients(&values[..period], scale)?;
        Ok(Self::Compact(coefficients.to_vec()))
    }

    /// Transformed for good if the budget allows.
    pub(super) fn kept(self, context: &Context, shape: Shape, left: &mut usize) -> Self {
        let Self::Compact(coefficients) = self else { return self };
        let gap = context.degree() / coefficients.len();
        let words = if gap >= EIGHT { eights(context, gap) * EIGHT } else { context.degree() };
        let bytes = 8 * shape.limbs() * words;
        if bytes > *left {
            return Self::Compact(coefficients);
        }
        *left -= bytes;
        context.counters().count_ntts(shape.limbs());
        if gap < EIGHT {
            return Self::Ready(expand(context, shape, &coefficients));
        }
        let limb = |k| {
            let whole = expand_limb(context, shape, k, &coefficients);
            let every = BLOCK * (context.degree() / BLOCK / eights(context, gap));
            whole.chunks_exact(every).flat_map(|blocks| blocks[..EIGHT].iter().copied()).collect()
        };
        Self::Repeated((0..shape.limbs()).map(limb).collect())
    }

    /// Limb `k` of `shape`.
    pub(super) fn limb(&self, context: &Context, shape: Shape, k: usize) -> Words<'_> {
        match self {
            Self::Ready(poly) => Words::Whole(poly.limb(k)),
            Self::Repeated(limbs) => Words::Repeated(&limbs[k], context.degree() / BLOCK * EIGHT / limbs[k].len()),
            Self::Compact(coefficients) => {
                context.counters().count_ntts(1);
                Words::Made(expand_limb(context, shape, k, coefficients))
            }
        }
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Ready(poly) => 8 * poly.shape().limbs() * poly.limb(0).len(),
            Self::Repeated(limbs) => limbs.iter().map(|limb| 8 * limb.len()).sum(),
            Self::Compact(coefficients) => 8 * coefficients.len(),
        }
    }
}

impl Words<'_> {
    /// The words of `part`, which begins and ends with blocks; `room` is for those that are to be repeated.
    pub(super) fn part<'a>(&'a self, part: Range<usize>, room: &'a mut [u64]) -> &'a [u64] {
        match self {
            Self::Whole(words) => &words[part],
            Self::Made(limb) => &limb[part],
            Self::Repeated(eights, blocks) => {
                let room = &mut room[..part.len()];
                for (i, block) in room.chunks_exact_mut(BLOCK).enumerate() {
                    let at = (part.start / BLOCK + i) / blocks * EIGHT;
                    let eight = &eights[at..at + EIGHT];
                    block.chunks_exact_mut(EIGHT).for_each(|to| to.copy_from_slice(eight));
                }
                room
            }
        }
    }
}

/// Blocks that differ in the transform of a polynomial in `X^gap`.
fn eights(context: &Context, gap: usize) -> usize {
    context.degree() / gap.max(BLOCK)
}

/// At the primes of `shape`.
fn expand(context: &Context, shape: Shape, coefficients: &[i64]) -> Poly<Ntt> {
    let made = Poly::read(context, shape, |k, limb| {
        limb.copy_from_slice(&expand_limb(context, shape, k, coefficients));
        Ok(())
    });
    made.expect("nothing is read that could be wrong")
}

/// Mod the `k`-th prime of `shape`.
fn expand_limb(context: &Context, shape: Shape, k: usize, coefficients: &[i64]) -> Limb {
    let op = context.pointwise(shape, k);
    let gap = context.degree() / coefficients.len();
    let mut limb = context.spares().scratch();
    if gap == 1 {
        op.reduce_signed(coefficients, &mut limb);
    } else {
        limb.fill(0);
        let places = limb.chunks_exact_mut(gap).zip(coefficients);
        places.for_each(|(places, &c)| places[0] = op.modulus().reduce_i64(c));
    }
    context.table(shape, k).forward(&mut limb);
    limb
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Bench, spec};
    use super::*;

    /// However long the period is: what is kept short and repeated is the transform of the whole.
    #[test]
    fn repeated_diagonals_are_their_transforms() {
        let context = Bench::new(&spec(9), 4).context;
        let shape = Shape { level: 2, special: 1 };
        let scale = Scale::power_of_two(20);
        for log_period in 1..=8 {
            let n = 1usize << log_period;
            let values: Vec<Complex> = (0..n).map(|i| Complex::new((i as f64).sin(), (3.0 * i as f64).cos())).collect();
            let values: Vec<Complex> = values.iter().cycle().take(256).copied().collect();
            let encode = || Diagonal::encode(&context, &values, scale).unwrap();
            let (compact, kept) = (encode(), encode().kept(&context, shape, &mut usize::MAX.clone()));
            assert_eq!(matches!(kept, Diagonal::Repeated(_)), log_period <= 5);
            assert!(log_period > 5 || kept.memory_bytes() <= 8 * 3 * 512 / 8);
            for k in 0..3 {
                let mut room = vec![0; 512];
                let whole = compact.limb(&context, shape, k).part(0..512, &mut room).to_vec();
                assert_eq!(kept.limb(&context, shape, k).part(0..512, &mut room), whole);
                assert_eq!(kept.limb(&context, shape, k).part(128..320, &mut room), &whole[128..320]);
            }
        }
    }
}
