//! Plain Rust kernels: Harvey's lazy butterflies with 52-bit Shoup quotients, the same arithmetic
//! as in the SIMD kernels.

use super::{NttTable, Twiddles};

const LOW52: u64 = (1 << 52) - 1;

/// Reduces `x < 2p` to `[0, p)`.
#[inline(always)]
fn fold(x: u64, p: u64) -> u64 {
    x.min(x.wrapping_sub(p))
}

pub(super) fn forward(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    let (m, p) = (ntt.modulus, ntt.modulus.value());
    let mut groups = 1;
    while groups < x.len() {
        let half = x.len() / (2 * groups);
        for (i, group) in x.chunks_exact_mut(2 * half).enumerate() {
            let w = t.at(groups + i);
            let (upper, lower) = group.split_at_mut(half);
            for (a, b) in upper.iter_mut().zip(lower) {
                let (u, v) = (fold(*a, 2 * p), m.mul_shoup_lazy(*b, w));
                *a = u + v;
                *b = u + 2 * p - v;
            }
        }
        groups *= 2;
    }
    transpose_blocks(x);
    for a in x {
        *a = fold(fold(*a, 2 * p), p);
    }
}

pub(super) fn inverse(ntt: &NttTable, t: &Twiddles, x: &mut [u64]) {
    let (m, p) = (ntt.modulus, ntt.modulus.value());
    transpose_blocks(x);
    let mut groups = x.len() / 2;
    while groups > 0 {
        let half = x.len() / (2 * groups);
        for (i, group) in x.chunks_exact_mut(2 * half).enumerate() {
            let w = t.at(groups + i);
            let (upper, lower) = group.split_at_mut(half);
            for (a, b) in upper.iter_mut().zip(lower) {
                let (u, v) = (*a, *b);
                *a = fold(u + v, 2 * p);
                *b = m.mul_shoup_lazy(u + 2 * p - v, w);
            }
        }
        groups /= 2;
    }
    for a in x {
        *a = m.mul_shoup(*a, ntt.degree_inverse);
    }
}

pub(super) fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
    for (a, b) in pairs {
        for (((l, h), &x), &y) in low.iter_mut().zip(high.iter_mut()).zip(*a).zip(*b) {
            let product = u128::from(x) * u128::from(y);
            *l += product as u64 & LOW52;
            *h += (product >> 52) as u64;
        }
    }
}

pub(super) fn mac_runs(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])], run: usize) {
    let mut values = vec![0; run];
    for (a, b) in pairs {
        for ((low, high), (a, &b)) in
            low.chunks_exact_mut(run).zip(high.chunks_exact_mut(run)).zip(a.chunks_exact(run).zip(*b))
        {
            values.fill(b);
            mac(low, high, &[(a, &values)]);
        }
    }
}

pub(super) fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
    let (m, radix) = (&ntt.modulus, ntt.pointwise.radix52()[0]);
    for (l, h) in low.iter_mut().zip(high) {
        let top = m.mul_shoup(m.reduce(*h), radix);
        *l = m.add(m.reduce(*l), top);
        *h = 0;
    }
}

/// Transposes every block of 64 coefficients as an 8x8 matrix.
fn transpose_blocks(x: &mut [u64]) {
    for block in x.chunks_exact_mut(64) {
        for i in 0..8 {
            for j in 0..i {
                block.swap(8 * i + j, 8 * j + i);
            }
        }
    }
}
