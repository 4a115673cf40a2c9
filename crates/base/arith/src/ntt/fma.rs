//! Double-precision kernel for processors with fused multiply-add (AVX2, NEON).
//!
//! Coefficients are integers in doubles between stages, at most `4p` in absolute value. A product
//! by a factor is at most `(0.5 + 0.375 b) p` if the other factor is at most `b p` (see
//! [`RealModulus::mul`]).
//!
//! - **Forward.** Of two consecutive stages, at most one leaves its upper input unreduced. From
//!   `3.9p`, a reducing stage leads to `(0.5 + 0.5 + 0.375 * 3.9) p < 2.5p`. Another stage from
//!   there leads to `(2.5 + 0.5 + 0.375 * 2.5) p < 3.9p`.
//! - **Inverse.** Three of four sums are reduced. From `2p`, a first stage gives sums of at most
//!   `0.51p` and products of differences of at most `(0.5 + 0.375 * 4) p = 2p`. The second stage
//!   adds two of these sums (at most `1.1p`, unreduced) and multiplies their difference. It also
//!   reduces the sum of two products, and multiplies their difference, at most `4p`, which gives
//!   `(0.5 + 0.375 * 4) p = 2p`.
//!
//! Passes over the whole polynomial take two stages each, until its parts fit the first-level cache
//! and are finished one by one.

use super::NttTable;
use crate::lanes::{Lanes, RealModulus, to_real, to_words};
use crate::modulus::Modulus;
use crate::products::Reduction;

#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m256d;
#[cfg(not(target_arch = "x86_64"))]
type Vector = [f64; 4];

/// Coefficients in a part: 32 KiB.
const PART: usize = 4096;

/// Twiddle factors of one direction.
#[derive(Clone)]
pub(super) struct RealTwiddles {
    /// Factors of the stages with up to N / 16 groups, as
    /// [`Twiddles::value`](super::Twiddles::value).
    factor: Vec<f64>,
    /// Factors of the last three stages, 56 per block, in the order of
    /// [`block_order`](super::block_order).
    block: Vec<f64>,
}

impl RealTwiddles {
    pub(super) fn new(degree: usize, modulus: &Modulus, root: u64) -> Self {
        let value = super::twiddle_values(degree, modulus, root);
        let block = super::block_order(degree).map(|i| value[i] as f64).collect();
        Self { factor: value[..degree / 8].iter().map(|&w| w as f64).collect(), block }
    }
}

pub(super) fn forward(ntt: &NttTable, t: &RealTwiddles, x: &mut [u64]) {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    fn run(p: u64, t: &RealTwiddles, x: &mut [u64]) {
        // SAFETY: the instructions are enabled here; the caller checked the lengths.
        unsafe { forward_with::<Vector>(p, t, x) }
    }
    // SAFETY: an `NttTable` with this kernel exists only where the instructions were detected;
    // `NttTable::forward` checked that `x` has as many words as the tables.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(ntt.modulus.value(), t, x);
    }
}

pub(super) fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    fn run(reduction: Reduction, radix: f64, low: &mut [u64], high: &mut [u64]) {
        let vectors = low.chunks_exact_mut(Vector::LEN).zip(high.chunks_exact_mut(Vector::LEN));
        for (low, high) in vectors {
            // SAFETY: the instructions are enabled here; each part is a vector of words.
            unsafe {
                let (l, h) = (Vector::load_words(low.as_ptr()), Vector::load_words(high.as_ptr()));
                Vector::store_words(reduction.join_words::<Vector>(l, h, radix), low.as_mut_ptr());
            }
            high.fill(0);
        }
    }
    let (reduction, radix) = (ntt.pointwise.reduction(), ntt.pointwise.radix52()[0].value as f64);
    // SAFETY: as in `forward`; `NttTable::reduce_acc` checked that both buffers have the same
    // length, a multiple of 64.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(reduction, radix, low, high);
    }
}

pub(super) fn inverse(ntt: &NttTable, t: &RealTwiddles, x: &mut [u64]) {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    fn run(p: u64, scale: u64, t: &RealTwiddles, x: &mut [u64]) {
        // SAFETY: as in `forward`.
        unsafe { inverse_with::<Vector>(p, scale, t, x) }
    }
    // SAFETY: as in `forward`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(ntt.modulus.value(), ntt.degree_inverse.value, t, x);
    }
}

/// Splits N coefficients. Returns the number of parts that are finished one by one, and the number of
/// groups in a part after the passes over the whole polynomial.
fn split(n: usize) -> (usize, usize) {
    if n <= PART {
        return (1, 4);
    }
    let passes = (n / PART).trailing_zeros().div_ceil(2);
    (1 << (2 * passes), 1)
}

/// # Safety
/// As [`Lanes`], here and for every function of this file; `x` has a power of two of words, at
/// least 64, and `t` is for that many.
#[inline(always)]
unsafe fn forward_with<V: Lanes>(p: u64, t: &RealTwiddles, x: &mut [u64]) {
    let (n, data, factors) = (x.len(), x.as_mut_ptr(), t.factor.as_ptr());
    let (parts, inner) = split(n);
    let len = n / parts;
    // SAFETY: parts and blocks are inside `x`, and the factors of all groups inside the tables.
    unsafe {
        let m = RealModulus::<V>::new(p);
        forward_pair::<V, true>(data, n, 1, factors, 1, m);
        let mut groups = 4;
        while groups < parts {
            forward_pair::<V, false>(data, n, groups, factors, groups, m);
            groups *= 4;
        }
        for part in 0..parts {
            let (block, mut inner) = (data.add(part * len), inner);
            while len / inner >= 32 {
                forward_pair::<V, false>(block, len, inner, factors, (parts + part) * inner, m);
                inner *= 4;
            }
            if len / inner == 16 {
                forward_one(block, inner, factors.add((parts + part) * inner), m);
            }
            for b in 0..len / 64 {
                forward_block(block.add(64 * b), t.block.as_ptr().add(56 * (part * len / 64 + b)), m);
            }
        }
    }
}

/// # Safety
/// As [`forward_with`].
#[inline(always)]
unsafe fn inverse_with<V: Lanes>(p: u64, scale: u64, t: &RealTwiddles, x: &mut [u64]) {
    let (n, data, factors) = (x.len(), x.as_mut_ptr(), t.factor.as_ptr());
    let (parts, inner) = split(n);
    let len = n / parts;
    // SAFETY: as in `forward_with`.
    unsafe {
        let m = RealModulus::<V>::new(p);
        let scale = V::splat(scale as f64);
        for part in 0..parts {
            let block = data.add(part * len);
            for b in 0..len / 64 {
                inverse_block(block.add(64 * b), t.block.as_ptr().add(56 * (part * len / 64 + b)), m);
            }
            let mut groups = len / 8;
            if len.trailing_zeros().is_multiple_of(2) {
                groups /= 2;
                inverse_one(block, groups, factors.add((parts + part) * groups), m);
            }
            while groups > inner {
                groups /= 4;
                inverse_pair::<V, false>(block, len, groups, factors, (parts + part) * groups, scale, m);
            }
        }
        let mut groups = parts;
        while groups > 4 {
            groups /= 4;
            inverse_pair::<V, false>(data, n, groups, factors, groups, scale, m);
        }
        inverse_pair::<V, true>(data, n, 1, factors, 1, scale, m);
    }
}

/// Computes `(a, b) -> (a + w b, a - w b)` for two pairs, whose latencies overlap, and reduces a first
/// if `REDUCE`.
#[inline(always)]
unsafe fn forward_two<V: Lanes, const REDUCE: bool>(
    [a, c]: [&mut V; 2],
    [b, d]: [&mut V; 2],
    w: [V; 2],
    m: RealModulus<V>,
) {
    // SAFETY: by the caller.
    unsafe {
        let [s, u] = if REDUCE { m.reduce_two([*a, *c]) } else { [*a, *c] };
        let [t, v] = m.mul_two([*b, *d], w);
        (*a, *c, *b, *d) = (s.add(t), u.add(v), s.sub(t), u.sub(v));
    }
}

/// Computes `(a, b) -> (a + b, w (a - b))` for two pairs. Reduces the second sum, and the first if
/// `BOTH`.
#[inline(always)]
unsafe fn inverse_two<V: Lanes, const BOTH: bool>(
    [a, c]: [&mut V; 2],
    [b, d]: [&mut V; 2],
    w: [V; 2],
    m: RealModulus<V>,
) {
    // SAFETY: by the caller.
    unsafe {
        let sums = [a.add(*b), c.add(*d)];
        let [s, u] = if BOTH { m.reduce_two(sums) } else { [sums[0], m.reduce(sums[1])] };
        let [t, v] = m.mul_two([a.sub(*b), c.sub(*d)], w);
        (*a, *c, *b, *d) = (s, u, t, v);
    }
}

/// Computes two stages of `groups` groups in `len` words; `first` is the index of the first group's
/// factor in the wider stage. If `FRESH`, the words are reduced integers rather than doubles.
///
/// # Safety
/// `data` points to `len` words, a group has at least 32 words, and `factors` points to
/// `2 * (first + groups)` factors.
#[inline(always)]
unsafe fn forward_pair<V: Lanes, const FRESH: bool>(
    data: *mut u64,
    len: usize,
    groups: usize,
    factors: *const f64,
    first: usize,
    m: RealModulus<V>,
) {
    let quarter = len / groups / 4;
    for group in 0..groups {
        // SAFETY: offsets stay below `len`, and factors below `2 * (first + groups)`.
        unsafe {
            let i = first + group;
            let (wide, left) = (V::splat(*factors.add(i)), V::splat(*factors.add(2 * i)));
            let right = V::splat(*factors.add(2 * i + 1));
            let base = data.add(4 * quarter * group);
            for k in (0..quarter).step_by(V::LEN) {
                let mut r = [m.p; 4];
                for (j, v) in r.iter_mut().enumerate() {
                    let element = base.add(j * quarter + k);
                    *v = if FRESH { to_real(V::load_words(element)) } else { V::load(element.cast()) };
                }
                let [mut a, mut b, mut c, mut d] = r;
                if FRESH {
                    forward_two::<V, false>([&mut a, &mut b], [&mut c, &mut d], [wide; 2], m);
                } else {
                    forward_two::<V, true>([&mut a, &mut b], [&mut c, &mut d], [wide; 2], m);
                }
                forward_two::<V, false>([&mut a, &mut c], [&mut b, &mut d], [left, right], m);
                for (j, v) in [a, b, c, d].into_iter().enumerate() {
                    v.store(base.add(j * quarter + k).cast());
                }
            }
        }
    }
}

/// Undoes two stages, with the arguments of [`forward_pair`]. If `LAST`, all results are multiplied
/// by `scale` and become reduced integers.
///
/// # Safety
/// As [`forward_pair`].
#[inline(always)]
unsafe fn inverse_pair<V: Lanes, const LAST: bool>(
    data: *mut u64,
    len: usize,
    groups: usize,
    factors: *const f64,
    first: usize,
    scale: V,
    m: RealModulus<V>,
) {
    let quarter = len / groups / 4;
    for group in 0..groups {
        // SAFETY: as in `forward_pair`.
        unsafe {
            let i = first + group;
            let (wide, left) = (V::splat(*factors.add(i)), V::splat(*factors.add(2 * i)));
            let right = V::splat(*factors.add(2 * i + 1));
            let base = data.add(4 * quarter * group);
            for k in (0..quarter).step_by(V::LEN) {
                let mut r = [m.p; 4];
                for (j, v) in r.iter_mut().enumerate() {
                    *v = V::load(base.add(j * quarter + k).cast());
                }
                let [mut a, mut b, mut c, mut d] = r;
                inverse_two::<V, true>([&mut a, &mut c], [&mut b, &mut d], [left, right], m);
                inverse_two::<V, false>([&mut a, &mut b], [&mut c, &mut d], [wide; 2], m);
                for (j, v) in [a, b, c, d].into_iter().enumerate() {
                    let element = base.add(j * quarter + k);
                    if LAST {
                        V::store_words(to_words(m.canonical(m.mul(v, scale))), element);
                    } else {
                        v.store(element.cast());
                    }
                }
            }
        }
    }
}

/// Computes the stage of groups of 16 words.
///
/// # Safety
/// `data` points to `16 * groups` words, `factors` to `groups` factors; two vectors have at most 8
/// doubles.
#[inline(always)]
unsafe fn forward_one<V: Lanes>(data: *mut u64, groups: usize, factors: *const f64, m: RealModulus<V>) {
    for group in 0..groups {
        // SAFETY: by the caller.
        unsafe {
            let (w, base) = (V::splat(*factors.add(group)), data.add(16 * group).cast::<f64>());
            for k in (0..8).step_by(2 * V::LEN) {
                let (mut a, mut c) = (V::load(base.add(k)), V::load(base.add(V::LEN + k)));
                let (mut b, mut d) = (V::load(base.add(8 + k)), V::load(base.add(8 + V::LEN + k)));
                forward_two::<V, true>([&mut a, &mut c], [&mut b, &mut d], [w; 2], m);
                a.store(base.add(k));
                c.store(base.add(V::LEN + k));
                b.store(base.add(8 + k));
                d.store(base.add(8 + V::LEN + k));
            }
        }
    }
}

/// Undoes [`forward_one`].
///
/// # Safety
/// As [`forward_one`].
#[inline(always)]
unsafe fn inverse_one<V: Lanes>(data: *mut u64, groups: usize, factors: *const f64, m: RealModulus<V>) {
    for group in 0..groups {
        // SAFETY: by the caller.
        unsafe {
            let (w, base) = (V::splat(*factors.add(group)), data.add(16 * group).cast::<f64>());
            for k in (0..8).step_by(2 * V::LEN) {
                let (mut a, mut c) = (V::load(base.add(k)), V::load(base.add(V::LEN + k)));
                let (mut b, mut d) = (V::load(base.add(8 + k)), V::load(base.add(8 + V::LEN + k)));
                inverse_two::<V, true>([&mut a, &mut c], [&mut b, &mut d], [w; 2], m);
                a.store(base.add(k));
                c.store(base.add(V::LEN + k));
                b.store(base.add(8 + k));
                d.store(base.add(8 + V::LEN + k));
            }
        }
    }
}

/// Computes the last three stages of a block of 64, to reduced integers: butterflies between the
/// rows of the transposed block.
///
/// # Safety
/// `data` points to 64 words, `factors` to 56.
#[inline(always)]
unsafe fn forward_block<V: Lanes>(data: *mut u64, factors: *const f64, m: RealModulus<V>) {
    // SAFETY: by the caller.
    unsafe {
        V::transpose(data.cast());
        for k in (0..8).step_by(V::LEN) {
            let (data, w) = (data.add(k), factors.add(k));
            let mut r = [m.p; 8];
            for (i, v) in r.iter_mut().enumerate() {
                *v = V::load(data.add(8 * i).cast());
            }
            let [r0, r1, r2, r3, r4, r5, r6, r7] = &mut r;
            let wide = V::load(w);
            forward_two::<V, true>([r0, r1], [r4, r5], [wide; 2], m);
            forward_two::<V, true>([r2, r3], [r6, r7], [wide; 2], m);
            let (left, right) = (V::load(w.add(8)), V::load(w.add(16)));
            forward_two::<V, false>([r0, r1], [r2, r3], [left; 2], m);
            forward_two::<V, false>([r4, r5], [r6, r7], [right; 2], m);
            forward_two::<V, true>([r0, r2], [r1, r3], [V::load(w.add(24)), V::load(w.add(32))], m);
            forward_two::<V, true>([r4, r6], [r5, r7], [V::load(w.add(40)), V::load(w.add(48))], m);
            for (i, v) in r.into_iter().enumerate() {
                V::store_words(to_words(m.canonical(v)), data.add(8 * i));
            }
        }
    }
}

/// Undoes [`forward_block`], from reduced integers.
///
/// # Safety
/// As [`forward_block`].
#[inline(always)]
unsafe fn inverse_block<V: Lanes>(data: *mut u64, factors: *const f64, m: RealModulus<V>) {
    // SAFETY: by the caller.
    unsafe {
        for k in (0..8).step_by(V::LEN) {
            let (data, w) = (data.add(k), factors.add(k));
            let mut r = [m.p; 8];
            for (i, v) in r.iter_mut().enumerate() {
                *v = to_real(V::load_words(data.add(8 * i)));
            }
            let [r0, r1, r2, r3, r4, r5, r6, r7] = &mut r;
            inverse_two::<V, true>([r0, r2], [r1, r3], [V::load(w.add(24)), V::load(w.add(32))], m);
            inverse_two::<V, true>([r4, r6], [r5, r7], [V::load(w.add(40)), V::load(w.add(48))], m);
            let (left, right) = (V::load(w.add(8)), V::load(w.add(16)));
            inverse_two::<V, false>([r0, r1], [r2, r3], [left; 2], m);
            inverse_two::<V, false>([r4, r5], [r6, r7], [right; 2], m);
            let wide = V::load(w);
            inverse_two::<V, true>([r0, r1], [r4, r5], [wide; 2], m);
            inverse_two::<V, true>([r2, r3], [r6, r7], [wide; 2], m);
            for (i, v) in r.into_iter().enumerate() {
                v.store(data.add(8 * i).cast());
            }
        }
        V::transpose(data.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On both sides of a part, and with the largest words.
    #[test]
    fn array_kernel_agrees_with_the_portable_one() {
        let modulus = Modulus::new(1_125_899_903_827_969).unwrap();
        let p = modulus.value();
        for n in [64, 128, 1024, 4096, 8192] {
            let portable = NttTable::with_cpu(crate::cpu::Cpu::portable(), n, modulus).unwrap();
            let root = modulus.primitive_root(2 * n as u64).unwrap();
            let [forward, inverse] = [root, modulus.inv(root)].map(|r| RealTwiddles::new(n, &modulus, r));
            for a in
                [vec![p - 1; n], (0..n as u64).map(|i| modulus.reduce(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()]
            {
                let (mut x, mut y) = (a.clone(), a.clone());
                portable.forward(&mut x);
                // SAFETY: arrays need no feature, and the tables are for n.
                unsafe { forward_with::<[f64; 4]>(p, &forward, &mut y) };
                assert_eq!(x, y, "degree {n}");
                // SAFETY: as above.
                unsafe { inverse_with::<[f64; 4]>(p, portable.degree_inverse.value, &inverse, &mut y) };
                assert_eq!(y, a, "degree {n}");
            }
        }
    }
}
