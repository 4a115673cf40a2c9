//! Diagonals of linear transforms, in the form in which they are multiplied.
//!
//! A diagonal whose values repeat is a polynomial in a power of X, say `X^g`. Its transform is that
//! of a smaller ring, in bit-reversed order, with each value g times in a row. In the order of
//! [`tacit_arith::ntt`] a block of 64 words then has fewer rows of eight that differ, and from
//! `X^64` on blocks repeat. Only the rows that differ are computed and stored.

use super::super::context::{Context, Subring};
use super::super::encoder::{Complex, Encoder};
use super::super::limb::Limb;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::super::shape::Shape;
use crate::HeError;
use std::ops::Range;
use std::sync::Arc;

/// Words of a block in NTT order, and of a row of a block.
const BLOCK: usize = 64;
const ROW: usize = 8;

pub(super) enum Diagonal {
    /// Transformed.
    Ready(Poly<Ntt>),
    /// Transformed: the rows that differ, limb by limb.
    Repeated(Vec<Vec<u64>>),
    /// Not transformed: coefficients at multiples of `N / len`.
    Compact(Vec<i64>),
}

/// One limb of a diagonal.
pub(super) enum Words<'a> {
    Whole(&'a [u64]),
    Made(Limb),
    /// The rows that differ: `of_block` for each block, which stands for `blocks` blocks.
    Repeated {
        rows: Rows<'a>,
        of_block: usize,
        blocks: usize,
    },
}

pub(super) enum Rows<'a> {
    Kept(&'a [u64]),
    Made(Vec<u64>),
}

/// The shortest power of two of values that repeats, at least 2.
fn period(values: &[Complex]) -> usize {
    let mut periods = (1..usize::BITS).map(|b| 1usize << b).take_while(|p| *p < values.len());
    periods.find(|p| values.iter().zip(&values[*p..]).all(|(a, b)| a == b)).unwrap_or(values.len())
}

impl Diagonal {
    /// Encodes values in the smallest subring that holds them.
    pub(super) fn encode(context: &Arc<Context>, values: &[Complex], scale: Scale) -> Result<Self, HeError> {
        let period = period(values);
        let coefficients = Encoder::new(context, period)?.small_coefficients(&values[..period], scale)?;
        Ok(Self::Compact(coefficients.to_vec()))
    }

    /// Transforms the diagonal if the budget `left` allows, and reduces the budget.
    pub(super) fn expand_within(self, context: &Context, shape: Shape, left: &mut usize) -> Self {
        let Self::Compact(coefficients) = self else { return self };
        let gap = context.degree() / coefficients.len();
        let words = if gap > 1 { context.subring(shape, 0, gap).rows.len() } else { context.degree() };
        let bytes = 8 * shape.limbs() * words;
        if bytes > *left {
            return Self::Compact(coefficients);
        }
        *left -= bytes;
        context.counters().count_ntts(shape.limbs());
        if gap == 1 {
            return Self::Ready(expand(context, shape, &coefficients));
        }
        let limbs = (0..shape.limbs()).map(|k| rows(context, &context.subring(shape, k, gap), &coefficients));
        Self::Repeated(limbs.collect())
    }

    pub(super) fn limb(&self, context: &Context, shape: Shape, k: usize) -> Words<'_> {
        match self {
            Self::Ready(poly) => Words::Whole(poly.limb(k)),
            Self::Repeated(limbs) => Words::from_repeated(context, Rows::Kept(&limbs[k])),
            Self::Compact(coefficients) if coefficients.len() == context.degree() => {
                context.counters().count_ntts(1);
                Words::Made(expand_limb(context, shape, k, coefficients))
            }
            Self::Compact(coefficients) => {
                context.counters().count_ntts(1);
                let subring = context.subring(shape, k, context.degree() / coefficients.len());
                Words::from_repeated(context, Rows::Made(rows(context, &subring, coefficients)))
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Ready(poly) => 8 * poly.shape().limbs() * poly.limb(0).len(),
            Self::Repeated(limbs) => limbs.iter().map(|limb| 8 * limb.len()).sum(),
            Self::Compact(coefficients) => 8 * coefficients.len(),
        }
    }
}

impl Rows<'_> {
    fn words(&self) -> &[u64] {
        match self {
            Self::Kept(words) => words,
            Self::Made(words) => words,
        }
    }
}

impl<'a> Words<'a> {
    fn from_repeated(context: &Context, rows: Rows<'a>) -> Self {
        let (count, blocks) = (rows.words().len() / ROW, context.degree() / BLOCK);
        let of_block = count.div_ceil(blocks);
        Words::Repeated { of_block, blocks: blocks * of_block / count, rows }
    }
}

impl Words<'_> {
    /// The words of `part`, whole blocks; `room` has space for repeated rows.
    pub(super) fn part<'a>(&'a self, part: Range<usize>, room: &'a mut [u64]) -> &'a [u64] {
        match self {
            Self::Whole(words) => &words[part],
            Self::Made(limb) => &limb[part],
            Self::Repeated { rows, of_block, blocks } => {
                let (rows, room) = (rows.words(), &mut room[..part.len()]);
                for (i, block) in room.chunks_exact_mut(BLOCK).enumerate() {
                    let start = (part.start / BLOCK + i) / blocks * of_block * ROW;
                    let block_rows = rows[start..start + of_block * ROW].chunks_exact(ROW);
                    for (row, copies) in block_rows.zip(block.chunks_exact_mut(BLOCK / of_block)) {
                        copies.chunks_exact_mut(ROW).for_each(|copy| copy.copy_from_slice(row));
                    }
                }
                room
            }
        }
    }
}

/// The rows of the transform that differ, mod the prime of `subring`.
fn rows(context: &Context, subring: &Subring, coefficients: &[i64]) -> Vec<u64> {
    let mut small = context.spares().scratch();
    let small = &mut small[..subring.table.degree()];
    if coefficients.len() == small.len() {
        subring.table.pointwise().reduce_signed(coefficients, small);
    } else {
        // The smallest ring with a transform is larger.
        let gap = small.len() / coefficients.len();
        small.fill(0);
        let places = small.chunks_exact_mut(gap).zip(coefficients);
        places.for_each(|(places, &c)| places[0] = subring.table.modulus().reduce_i64(c));
    }
    subring.table.forward(small);
    subring.rows.iter().map(|&i| small[i as usize]).collect()
}

fn expand(context: &Context, shape: Shape, coefficients: &[i64]) -> Poly<Ntt> {
    let poly = Poly::read(context, shape, |k, limb| {
        limb.copy_from_slice(&expand_limb(context, shape, k, coefficients));
        Ok(())
    });
    poly.expect("nothing is read that could be wrong")
}

fn expand_limb(context: &Context, shape: Shape, k: usize, coefficients: &[i64]) -> Limb {
    let mut limb = context.spares().scratch();
    context.pointwise(shape, k).reduce_signed(coefficients, &mut limb);
    context.table(shape, k).forward(&mut limb);
    limb
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Bench, spec};
    use super::*;

    /// For every period.
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
            let (compact, expanded) = (encode(), encode().expand_within(&context, shape, &mut usize::MAX.clone()));
            assert_eq!(matches!(expanded, Diagonal::Repeated(_)), log_period <= 7);
            assert!(expanded.memory_bytes() <= ((8 * 3 * 512) >> (8 - log_period)).max(8 * 3 * 64));
            let Diagonal::Compact(coefficients) = &compact else { panic!("nothing is kept without a budget") };
            let mut spread = vec![0; 512];
            let places = spread.chunks_exact_mut(512 / coefficients.len()).zip(coefficients);
            places.for_each(|(places, &c)| places[0] = c);
            for k in 0..3 {
                let mut room = vec![0; 512];
                let expected = expand_limb(&context, shape, k, &spread);
                for diagonal in [&compact, &expanded] {
                    assert_eq!(diagonal.limb(&context, shape, k).part(0..512, &mut room), &expected[..]);
                    assert_eq!(diagonal.limb(&context, shape, k).part(128..320, &mut room), &expected[128..320]);
                }
            }
        }
    }
}
