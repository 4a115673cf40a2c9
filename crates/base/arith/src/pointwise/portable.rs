//! Plain Rust kernels.

use super::Pointwise;
use crate::modulus::Shoup;

pub(super) fn add(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let m = op.modulus;
    x.iter_mut().zip(y).for_each(|(a, &b)| *a = m.add(*a, b));
}

pub(super) fn sub(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let m = op.modulus;
    x.iter_mut().zip(y).for_each(|(a, &b)| *a = m.sub(*a, b));
}

pub(super) fn neg(op: &Pointwise, x: &mut [u64]) {
    let m = op.modulus;
    x.iter_mut().for_each(|a| *a = m.neg(*a));
}

pub(super) fn mul(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let m = op.modulus;
    x.iter_mut().zip(y).for_each(|(a, &b)| *a = m.mul(*a, b));
}

pub(super) fn scale(op: &Pointwise, x: &mut [u64], w: Shoup) {
    let m = op.modulus;
    x.iter_mut().for_each(|a| *a = m.mul_shoup(*a, w));
}

pub(super) fn sub_scale(op: &Pointwise, x: &mut [u64], y: &[u64], w: Shoup) {
    let m = op.modulus;
    // The difference is below 2p < 2^52, as a Shoup product needs.
    x.iter_mut().zip(y).for_each(|(a, &b)| *a = m.mul_shoup(*a + m.value() - b, w));
}

pub(super) fn add_scaled(op: &Pointwise, x: &mut [u64], y: &[u64], w: Shoup) {
    let m = op.modulus;
    x.iter_mut().zip(y).for_each(|(a, &b)| *a = m.add(*a, m.mul_shoup(b, w)));
}

pub(super) fn reduce(op: &Pointwise, x: &mut [u64]) {
    let m = op.modulus;
    x.iter_mut().for_each(|a| *a = m.reduce(*a));
}

pub(super) fn reduce_signed(op: &Pointwise, source: &[i64], target: &mut [u64]) {
    let m = op.modulus;
    target.iter_mut().zip(source).for_each(|(x, &v)| *x = m.reduce_i64(v));
}

#[inline(always)]
pub(super) fn any_above(x: &[u64], bound: u64) -> bool {
    // No early exit: comparing vectors is faster than taking branches.
    x.iter().fold(false, |any, &word| any | (word > bound))
}

pub(super) fn dot_pair(op: &Pointwise, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [&mut [u64]; 2]) {
    let [left, right] = sums;
    for (i, (l, r)) in left.iter_mut().zip(right).enumerate() {
        let mut sum = [u128::from(*l), u128::from(*r)];
        for (digit, pair) in digits.iter().zip(pairs) {
            let d = u128::from(digit[i]);
            sum = std::array::from_fn(|half| sum[half] + d * u128::from(pair[half][i]));
        }
        [*l, *r] = sum.map(|s| op.reduce_u128(s));
    }
}
