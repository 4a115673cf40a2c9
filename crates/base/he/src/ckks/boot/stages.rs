//! The transform between slots and coefficients as a few linear transforms ([CCS19]), each of
//! several stages of the FFT. Bit reversal is omitted: all between coefficients and the way back is
//! slotwise.

use super::super::encoder::{Complex, SlotTransform};
use super::super::eval::{Method, TransformPlan};
use crate::HeError;
use std::collections::BTreeMap;

/// Diagonals by offset mod n.
pub(super) type Diagonals = BTreeMap<i64, Vec<Complex>>;

/// The stage with half-blocks of `half`, from coefficients to slots, or its inverse.
fn stage(slots: usize, half: usize, inverse: bool) -> Diagonals {
    let twiddles = SlotTransform::stage_twiddles(half);
    let (n, h) = (slots as i64, half as i64);
    let mut diagonals = Diagonals::new();
    let mut put = |offset: i64, i: usize, value: Complex| {
        diagonals.entry(offset.rem_euclid(n)).or_insert_with(|| vec![Complex::default(); slots])[i] = value;
    };
    let one = Complex::from(1.0);
    for i in 0..slots {
        let (j, low) = (i % half, i % (2 * half) < half);
        let w = twiddles[j];
        match (inverse, low) {
            (false, true) => (put(0, i, one), put(h, i, w)),
            (false, false) => (put(0, i, -w), put(-h, i, one)),
            (true, true) => (put(0, i, one.scaled(0.5)), put(h, i, one.scaled(0.5))),
            (true, false) => (put(0, i, -w.conj().scaled(0.5)), put(-h, i, w.conj().scaled(0.5))),
        };
    }
    diagonals
}

/// `second` applied to the result of `first`.
fn compose(second: &Diagonals, first: &Diagonals, slots: usize) -> Diagonals {
    let mut product = Diagonals::new();
    for (r, outer) in second {
        for (s, inner) in first {
            let sum =
                product.entry((r + s).rem_euclid(slots as i64)).or_insert_with(|| vec![Complex::default(); slots]);
            for (i, x) in sum.iter_mut().enumerate() {
                *x = *x + outer[i] * inner[(i + *r as usize) % slots];
            }
        }
    }
    // Offsets of two stages may cancel, which leaves some diagonals zero.
    product.retain(|_, values| values.iter().any(|v| *v != Complex::default()));
    product
}

/// The transform in `groups` parts, in order of application, each times `factor`.
pub(super) fn group_stages(slots: usize, groups: usize, inverse: bool, factor: f64) -> Vec<Diagonals> {
    let stages = slots.trailing_zeros() as usize;
    let mut halves: Vec<usize> = (0..stages).map(|b| 1 << b).collect();
    if inverse {
        halves.reverse();
    }
    let mut parts = Vec::with_capacity(groups);
    let mut remaining = &halves[..];
    for left in (1..=groups).rev() {
        let (group, following) = remaining.split_at(remaining.len().div_ceil(left));
        remaining = following;
        let stages = group.iter().map(|&half| stage(slots, half, inverse));
        let mut merged = stages.reduce(|before, next| compose(&next, &before, slots)).expect("no group is empty");
        merged.values_mut().flatten().for_each(|v| *v = v.scaled(factor));
        parts.push(merged);
    }
    parts
}

/// Changes each chained part so that its offsets begin with 0 and the next part takes the rotated
/// result. Returns by how much slots must be rotated before the first part, so that the last one
/// gives the same result as before.
///
/// # Errors
/// As [`TransformPlan::new`].
pub(super) fn shift_parts<'a>(
    slots: usize,
    parts: impl Iterator<Item = (Method, &'a mut Diagonals)>,
) -> Result<i64, HeError> {
    let n = slots as i64;
    // Number of places by which the result of a part is behind.
    let mut behind = 0;
    let (methods, mut parts): (Vec<Method>, Vec<&mut Diagonals>) = parts.unzip();
    let firsts = methods.iter().zip(&parts).map(|(method, part)| match method {
        Method::Paired | Method::Chained => Ok(TransformPlan::new(slots, 2, *method, part.keys().copied())?.first()),
        Method::Flat | Method::Hoisted | Method::Powers => Ok(0),
    });
    let firsts: Vec<i64> = firsts.collect::<Result<_, HeError>>()?;
    let turn = firsts.iter().sum::<i64>();
    behind -= turn;
    for (part, first) in parts.iter_mut().zip(firsts) {
        behind += first;
        let shifted = std::mem::take(*part).into_iter().map(|(offset, mut values)| {
            values.rotate_right(behind.rem_euclid(n) as usize);
            ((offset - first).rem_euclid(n), values)
        });
        **part = shifted.collect();
    }
    Ok(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(diagonals: &Diagonals, v: &[Complex]) -> Vec<Complex> {
        let n = v.len();
        let entry = |i: usize| {
            diagonals.iter().fold(Complex::default(), |sum, (&d, values)| sum + values[i] * v[(i + d as usize) % n])
        };
        (0..n).map(entry).collect()
    }

    #[test]
    fn parts_make_the_transform_and_its_inverse() {
        let n = 32;
        let v: Vec<Complex> = (0..n).map(|i| Complex::new((i * 7 % 5) as f64, (i * 3 % 11) as f64 - 4.0)).collect();
        for groups in 1..=5 {
            let forward = group_stages(n, groups, false, 2.0);
            let slots = forward.iter().fold(v.clone(), |v, part| apply(part, &v));
            // The encoder's transform, in bit-reversed order.
            let mut expected: Vec<Complex> = (0..n).map(|i| v[(i.reverse_bits() >> (usize::BITS - 5)) % n]).collect();
            SlotTransform::new(n).to_slots(&mut expected);
            let factor = 2f64.powi(groups as i32);
            assert!(slots.iter().zip(&expected).all(|(a, b)| (*a - b.scaled(factor)).abs() < 1e-10));
            let inverse = group_stages(n, groups, true, 1.0).iter().fold(slots, |v, part| apply(part, &v));
            assert!(inverse.iter().zip(&v).all(|(a, b)| (*a - b.scaled(factor)).abs() < 1e-10));
        }
    }

    #[test]
    fn shifted_parts_rotate_forward_with_the_same_result() {
        let n = 64;
        let v: Vec<Complex> = (0..n).map(|i| Complex::new((i * 7 % 5) as f64, (i * 3 % 11) as f64 - 4.0)).collect();
        let mut parts = [group_stages(n, 2, false, 1.0), group_stages(n, 3, true, 1.0)].concat();
        let expected = parts.iter().fold(v.clone(), |v, part| apply(part, &v));
        let methods = [Method::Hoisted, Method::Chained, Method::Chained, Method::Hoisted, Method::Chained];
        let turn = shift_parts(n, methods.into_iter().zip(&mut parts)).unwrap();
        let mut turned = v;
        turned.rotate_left(turn.rem_euclid(n as i64) as usize);
        let actual = parts.iter().fold(turned, |v, part| apply(part, &v));
        assert!(turn != 0 && actual.iter().zip(&expected).all(|(a, b)| (*a - *b).abs() < 1e-10));
        for (part, _) in parts.iter().zip(methods).filter(|(_, method)| *method == Method::Chained) {
            let plan = TransformPlan::new(n, 2, Method::Chained, part.keys().copied()).unwrap();
            assert!(plan.first() == 0 && plan.rotations().len() <= 2);
        }
    }

    #[test]
    fn merged_stages_have_few_diagonals() {
        let counts = |inverse| group_stages(1 << 14, 3, inverse, 1.0).iter().map(BTreeMap::len).collect::<Vec<_>>();
        assert_eq!(counts(false), [63, 63, 16]);
        assert_eq!(counts(true), [32, 63, 31]);
    }
}
