//! AVX-512 IFMA kernels. The portable twins take what fills no vector.

use super::{Pointwise, portable};
use crate::modulus::Shoup;
use crate::words52::{Factor, LEN, Modulus52, V, fold, load, store};
use std::arch::x86_64::*;

/// Most products whose high halves, with the carry of the low ones, sum to less than 2^52.
const FEW_PRODUCTS: usize = 12;

/// Defines `$name(op, x[, y], args)`, which sets each vector of `x` to `$value`.
macro_rules! elementwise {
    ($name:ident($op:ident, $m:ident, $a:ident $(, $b:ident)?; $($arg:ident: $kind:ty),*) { $($before:stmt;)* } $value:expr) => {
        pub(super) fn $name($op: &Pointwise, x: &mut [u64], $($b: &[u64],)? $($arg: $kind),*) {
            #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
            fn run($op: &Pointwise, x: &mut [u64], $($b: &[u64],)? $($arg: $kind),*) -> usize {
                let $m = Modulus52::new(&$op.modulus);
                $($before)*
                let len = x.len() / LEN * LEN;
                $(assert_eq!($b.len(), x.len(), "buffers of one length");)?
                let target = x.as_mut_ptr();
                for k in (0..len).step_by(LEN) {
                    // SAFETY: `k + 7` is below the common length.
                    unsafe {
                        let $a = load(target.add(k));
                        $(let $b = load($b.as_ptr().add(k));)?
                        store(target.add(k), $value);
                    }
                }
                len
            }
            // SAFETY: a `Pointwise` with these kernels exists only where the instructions were
            // detected.
            let done = unsafe { run($op, x, $($b,)? $($arg),*) };
            portable::$name($op, &mut x[done..], $(&$b[done..],)? $($arg),*);
        }
    };
}

elementwise!(add(op, m, a, y;) {} fold(_mm512_add_epi64(a, y), m.p));

elementwise!(sub(op, m, a, y;) {} {
    let difference = _mm512_sub_epi64(a, y);
    _mm512_min_epu64(difference, _mm512_add_epi64(difference, m.p))
});

elementwise!(neg(op, m, a;) {} {
    let difference = _mm512_sub_epi64(m.zero, a);
    _mm512_min_epu64(difference, _mm512_add_epi64(difference, m.p))
});

elementwise!(mul(op, m, a, y;) { let radix = Factor::splat(op.radix52[0]); } {
    let low = _mm512_madd52lo_epu64(m.zero, a, y);
    m.join_few(low, _mm512_madd52hi_epu64(m.zero, a, y), radix)
});

elementwise!(scale(op, m, a; w: Shoup) { let factor = Factor::splat(w); } {
    fold(m.mul_lazy(a, factor), m.p)
});

elementwise!(sub_scale(op, m, a, y; w: Shoup) { let factor = Factor::splat(w); } {
    fold(m.mul_lazy(_mm512_sub_epi64(_mm512_add_epi64(a, m.p), y), factor), m.p)
});

elementwise!(add_scaled(op, m, a, y; w: Shoup) { let factor = Factor::splat(w); } {
    fold(fold(_mm512_add_epi64(a, m.mul_lazy(y, factor)), m.two_p), m.p)
});

elementwise!(reduce(op, m, a;) { let radix = Factor::splat(op.radix52[0]); } {
    m.join_few(a, m.zero, radix)
});

pub(super) fn reduce_signed(op: &Pointwise, source: &[i64], target: &mut [u64]) {
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn run(op: &Pointwise, source: &[i64], target: &mut [u64]) -> usize {
        let (m, radix) = (Modulus52::new(&op.modulus), Factor::splat(op.radix52[0]));
        let len = target.len().min(source.len()) / LEN * LEN;
        for k in (0..len).step_by(LEN) {
            // SAFETY: `k + 7` is below both lengths.
            unsafe {
                let v = load(source.as_ptr().add(k).cast());
                let size = m.join_few(_mm512_abs_epi64(v), m.zero, radix);
                // The smaller of `-size` modulo 2^64 and `p - size`: 0 stays 0.
                let opposite = _mm512_sub_epi64(m.zero, size);
                let opposite = _mm512_min_epu64(opposite, _mm512_add_epi64(opposite, m.p));
                let negative = _mm512_movepi64_mask(v);
                store(target.as_mut_ptr().add(k), _mm512_mask_blend_epi64(negative, size, opposite));
            }
        }
        len
    }
    // SAFETY: as above.
    let processed = unsafe { run(op, source, target) };
    portable::reduce_signed(op, &source[processed..], &mut target[processed..]);
}

pub(super) fn any_above(x: &[u64], bound: u64) -> bool {
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn run(x: &[u64], bound: u64) -> bool {
        portable::any_above(x, bound)
    }
    // SAFETY: as above.
    unsafe { run(x, bound) }
}

/// Vectors of each sum in flight.
const ROW: usize = 2;

pub(super) fn dot_pair(op: &Pointwise, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [&mut [u64]; 2]) {
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    // SAFETY: every slice and pointer in `sums` has `len` words, a multiple of `ROW * LEN`.
    unsafe fn run(op: &Pointwise, digits: &[&[u64]], pairs: &[[&[u64]; 2]], sums: [*mut u64; 2], len: usize) {
        let m = Modulus52::new(&op.modulus);
        let radix = [Factor::splat(op.radix52[0]), Factor::splat(op.radix52[1])];
        for k in (0..len).step_by(ROW * LEN) {
            // SAFETY: `k + ROW * LEN` is at most `len`, by the caller.
            unsafe {
                let mut low = [[m.zero; ROW]; 2];
                let mut high = [[m.zero; ROW]; 2];
                for (row, source) in low.iter_mut().zip(sums) {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = load(source.add(k + LEN * j));
                    }
                }
                for (digit, pair) in digits.iter().zip(pairs) {
                    for j in 0..ROW {
                        let offset = k + LEN * j;
                        let d = load(digit.as_ptr().add(offset));
                        for h in 0..2 {
                            let x = load(pair[h].as_ptr().add(offset));
                            low[h][j] = _mm512_madd52lo_epu64(low[h][j], d, x);
                            high[h][j] = _mm512_madd52hi_epu64(high[h][j], d, x);
                        }
                    }
                }
                for h in 0..2 {
                    for j in 0..ROW {
                        let sum: V = if digits.len() <= FEW_PRODUCTS {
                            m.join_few(low[h][j], high[h][j], radix[0])
                        } else {
                            m.join(low[h][j], high[h][j], radix)
                        };
                        store(sums[h].add(k + LEN * j), sum);
                    }
                }
            }
        }
    }
    let [left, right] = sums;
    let len = left.len() / (ROW * LEN) * (ROW * LEN);
    // SAFETY: as above; `Pointwise::dot_pair` checked that all slices have one length.
    unsafe { run(op, digits, pairs, [left.as_mut_ptr(), right.as_mut_ptr()], len) };
    if len < left.len() {
        let digits: Vec<&[u64]> = digits.iter().map(|d| &d[len..]).collect();
        let pairs: Vec<[&[u64]; 2]> = pairs.iter().map(|[l, r]| [&l[len..], &r[len..]]).collect();
        portable::dot_pair(op, &digits, &pairs, [&mut left[len..], &mut right[len..]]);
    }
}
