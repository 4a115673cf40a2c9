//! Double-precision kernels (AVX2 with FMA, NEON). The portable twins take what fills no vector.

use super::{Pointwise, portable};
use crate::lanes::{Lanes, RealModulus, to_real, to_words};
use crate::modulus::Shoup;
use crate::products::{Reduction, Sum, TERMS};

#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m256d;
#[cfg(not(target_arch = "x86_64"))]
type Vector = [f64; 4];

trait Elementwise: Copy {
    /// # Safety
    /// As [`Lanes`].
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words;
}

/// Applies `operation` to whole vectors of `x` and `y` (`x` twice if there is no `y`). Returns their
/// number of words.
fn apply<E: Elementwise>(operation: E, x: &mut [u64], y: Option<&[u64]>) -> usize {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    // SAFETY: `x` and `y` have `len` words, whole vectors, and the processor has the instructions.
    unsafe fn run<E: Elementwise>(operation: E, x: *mut u64, y: *const u64, len: usize) {
        for k in (0..len).step_by(Vector::LEN) {
            // SAFETY: the instructions are enabled, and `x` and `y` have `len` words, by the
            // caller.
            unsafe {
                let words = operation.compute::<Vector>(Vector::load_words(x.add(k)), Vector::load_words(y.add(k)));
                Vector::store_words(words, x.add(k));
            }
        }
    }
    let len = y.map_or(x.len(), |y| x.len().min(y.len())) / Vector::LEN * Vector::LEN;
    let target = x.as_mut_ptr();
    let operand = y.map_or(target.cast_const(), <[u64]>::as_ptr);
    // SAFETY: a `Pointwise` with these kernels exists only where the instructions were detected;
    // both pointers are to at least `len` words.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(operation, target, operand, len);
    }
    len
}

#[derive(Clone, Copy)]
struct Add(u64);

impl Elementwise for Add {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words {
        // SAFETY: by the caller (as in all kernels here).
        unsafe {
            let sum = V::add_words(x, y);
            let reduced = V::sub_words(sum, V::splat_words(self.0));
            V::choose(reduced, sum, reduced)
        }
    }
}

#[derive(Clone, Copy)]
struct Sub(u64);

impl Elementwise for Sub {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words {
        // SAFETY: as above.
        unsafe {
            let difference = V::sub_words(x, y);
            V::choose(difference, V::add_words(difference, V::splat_words(self.0)), difference)
        }
    }
}

#[derive(Clone, Copy)]
struct Neg(u64);

impl Elementwise for Neg {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, _: V::Words) -> V::Words {
        // SAFETY: as above.
        unsafe { Sub(self.0).compute::<V>(V::splat_words(0), x) }
    }
}

#[derive(Clone, Copy)]
struct Mul(u64);

impl Elementwise for Mul {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words {
        // SAFETY: as above. The product is at most 0.875 p, so one addition makes it canonical.
        unsafe {
            let m = RealModulus::<V>::new(self.0);
            to_words(m.mul(to_real(x), to_real(y)).add_if_negative(m.p))
        }
    }
}

/// `(x - y) * factor`, or `x * factor` without `SUB`.
#[derive(Clone, Copy)]
struct Scale<const SUB: bool> {
    p: u64,
    factor: u64,
}

impl<const SUB: bool> Elementwise for Scale<SUB> {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words {
        // SAFETY: as in `Mul`.
        unsafe {
            let m = RealModulus::<V>::new(self.p);
            let x: V = to_real(x);
            let x = if SUB { x.sub(to_real(y)) } else { x };
            to_words(m.mul(x, V::splat(self.factor as f64)).add_if_negative(m.p))
        }
    }
}

#[derive(Clone, Copy)]
struct AddScaled {
    p: u64,
    factor: u64,
}

impl Elementwise for AddScaled {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, y: V::Words) -> V::Words {
        // SAFETY: as above. The product is at most 0.875 p in absolute value.
        unsafe {
            let m = RealModulus::<V>::new(self.p);
            let sum: V = m.mul(to_real(y), V::splat(self.factor as f64)).add(to_real(x));
            to_words(m.canonical(sum))
        }
    }
}

#[derive(Clone, Copy)]
struct Reduce(Reduction);

impl Elementwise for Reduce {
    #[inline(always)]
    unsafe fn compute<V: Lanes>(self, x: V::Words, _: V::Words) -> V::Words {
        // SAFETY: as above.
        unsafe { self.0.reduce_words::<V>(x) }
    }
}

pub(super) fn add(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let processed = apply(Add(op.modulus.value()), x, Some(y));
    portable::add(op, &mut x[processed..], &y[processed..]);
}

pub(super) fn sub(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let processed = apply(Sub(op.modulus.value()), x, Some(y));
    portable::sub(op, &mut x[processed..], &y[processed..]);
}

pub(super) fn neg(op: &Pointwise, x: &mut [u64]) {
    let processed = apply(Neg(op.modulus.value()), x, None);
    portable::neg(op, &mut x[processed..]);
}

pub(super) fn mul(op: &Pointwise, x: &mut [u64], y: &[u64]) {
    let processed = apply(Mul(op.modulus.value()), x, Some(y));
    portable::mul(op, &mut x[processed..], &y[processed..]);
}

pub(super) fn scale(op: &Pointwise, x: &mut [u64], w: Shoup) {
    let processed = apply(Scale::<false> { p: op.modulus.value(), factor: w.value }, x, None);
    portable::scale(op, &mut x[processed..], w);
}

pub(super) fn sub_scale(op: &Pointwise, x: &mut [u64], y: &[u64], w: Shoup) {
    let processed = apply(Scale::<true> { p: op.modulus.value(), factor: w.value }, x, Some(y));
    portable::sub_scale(op, &mut x[processed..], &y[processed..], w);
}

pub(super) fn add_scaled(op: &Pointwise, x: &mut [u64], y: &[u64], w: Shoup) {
    let processed = apply(AddScaled { p: op.modulus.value(), factor: w.value }, x, Some(y));
    portable::add_scaled(op, &mut x[processed..], &y[processed..], w);
}

pub(super) fn reduce(op: &Pointwise, x: &mut [u64]) {
    let processed = apply(Reduce(op.reduction), x, None);
    portable::reduce(op, &mut x[processed..]);
}

pub(super) use portable::reduce_signed;

pub(super) fn any_above(x: &[u64], bound: u64) -> bool {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    fn run(x: &[u64], bound: u64) -> bool {
        portable::any_above(x, bound)
    }
    // SAFETY: as in `apply`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(x, bound)
    }
}

/// The words of `slice` from `offset`, as doubles.
///
/// # Safety
/// As [`Lanes`]; the slice has a vector of words from `offset` on.
#[inline(always)]
unsafe fn read<V: Lanes>(slice: &[u64], offset: usize) -> V {
    // SAFETY: by the caller.
    unsafe { to_real(V::load_words(slice.as_ptr().add(offset))) }
}

/// Words read from each slice in turn: a cache line. Otherwise, slices at the same place of their
/// pages evict each other from the first-level cache.
const LINE: usize = 2 * Vector::LEN;

pub(super) fn dot_pair(op: &Pointwise, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [&mut [u64]; 2]) {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    // SAFETY: every slice and pointer in `sums` has `len` words, whole lines, and the processor has
    // the instructions.
    unsafe fn run(reduction: Reduction, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [*mut u64; 2], len: usize) {
        for k in (0..len).step_by(LINE) {
            // SAFETY: the instructions are enabled, and every slice has at least `len` words, by
            // the caller.
            unsafe {
                let sum_ptrs =
                    [sums[0].add(k), sums[0].add(k + Vector::LEN), sums[1].add(k), sums[1].add(k + Vector::LEN)];
                let mut total = [Sum::new(Vector::splat(0.0)); 4];
                for (sum, &sum_ptr) in total.iter_mut().zip(&sum_ptrs) {
                    *sum = Sum::new(to_real(Vector::load_words(sum_ptr)));
                }
                for (chunk, (digits, pairs)) in digits.chunks(TERMS).zip(pairs.chunks(TERMS)).enumerate() {
                    if chunk > 0 {
                        for sum in &mut total {
                            reduction.fold(sum);
                        }
                    }
                    for (digit, [left, right]) in digits.iter().zip(pairs) {
                        let (c, d): (Vector, Vector) = (read(digit, k), read(digit, k + Vector::LEN));
                        total[0].add(c, read(left, k));
                        total[1].add(d, read(left, k + Vector::LEN));
                        total[2].add(c, read(right, k));
                        total[3].add(d, read(right, k + Vector::LEN));
                    }
                }
                for (&sum, &sum_ptr) in total.iter().zip(&sum_ptrs) {
                    Vector::store_words(reduction.finish(sum), sum_ptr);
                }
            }
        }
    }
    let [left, right] = sums;
    let len = left.len() / LINE * LINE;
    // SAFETY: as in `apply`; `Pointwise::dot_pair` checked that all slices have one length.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
    unsafe {
        run(op.reduction, digits, pairs, [left.as_mut_ptr(), right.as_mut_ptr()], len);
    }
    let digits: Vec<&[u64]> = digits.iter().map(|d| &d[len..]).collect();
    let pairs: Vec<[&[u64]; 2]> = pairs.iter().map(|[l, r]| [&l[len..], &r[len..]]).collect();
    portable::dot_pair(op, &digits, &pairs, [&mut left[len..], &mut right[len..]]);
}
