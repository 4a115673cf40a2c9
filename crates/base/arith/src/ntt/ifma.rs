//! AVX-512 IFMA kernels: dispatch, and sums of products. `transform` holds the transforms.

mod columns;
mod factors;
mod transform;
pub(super) mod vectors;

pub(super) use factors::Factors;

use super::NttTable;
use transform::{EACH, PAIRS, SMALL};

/// The bounds that hold in a forward transform.
fn kind(ntt: &NttTable) -> u8 {
    if ntt.is_small() {
        SMALL
    } else if 6 * ntt.modulus.value() < 1 << 52 {
        PAIRS
    } else {
        EACH
    }
}

pub(super) fn forward(ntt: &NttTable, t: &Factors, x: &mut [u64]) {
    // SAFETY: an `NttTable` with this kernel exists only where AVX-512 F, DQ and IFMA were
    // detected; `NttTable::forward` checked the length.
    unsafe {
        match kind(ntt) {
            SMALL => transform::forward::<SMALL>(ntt, t, x),
            PAIRS => transform::forward::<PAIRS>(ntt, t, x),
            _ => transform::forward::<EACH>(ntt, t, x),
        }
    }
}

pub(super) fn forward_columns(ntt: &NttTable, t: &Factors, columns: &mut [u64], width: usize, out: &mut [u64]) {
    // SAFETY: as in `forward`; `NttTable::forward_columns` checked the lengths.
    unsafe {
        match kind(ntt) {
            SMALL => columns::forward::<SMALL>(ntt, t, columns, width, out),
            // `EACH` serves for `PAIRS` too: the stages in which `PAIRS` would save reductions are
            // mostly copies here.
            _ => columns::forward::<EACH>(ntt, t, columns, width, out),
        }
    }
}

pub(super) fn inverse(ntt: &NttTable, t: &Factors, x: &mut [u64]) {
    let p = ntt.modulus.value();
    // SAFETY: as in `forward`.
    unsafe {
        if ntt.is_small() {
            transform::inverse::<SMALL>(ntt, t, x);
        } else if 8 * p < 1 << 52 {
            transform::inverse::<PAIRS>(ntt, t, x);
        } else {
            transform::inverse::<EACH>(ntt, t, x);
        }
    }
}

pub(super) fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
    // SAFETY: as in `forward`; `NttTable::mac` checked the lengths.
    unsafe { x86::mac(low, high, pairs) }
}

pub(super) fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
    // SAFETY: as in `forward`; `NttTable::reduce_acc` checked that both buffers have the same
    // length, a multiple of 64.
    unsafe { x86::reduce_acc(ntt, low, high) }
}

mod x86 {
    use super::NttTable;
    use crate::words52::{Factor, Modulus52, load, store};
    use std::arch::x86_64::*;

    /// # Safety
    /// AVX-512F and IFMA present; every buffer has the same length, a multiple of 64.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn mac(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        // SAFETY: `k + 31` is below the common length.
        unsafe {
            for k in (0..low.len()).step_by(32) {
                let mut l = [_mm512_setzero_si512(); 4];
                let mut h = l;
                for j in 0..4 {
                    l[j] = load(low.as_ptr().add(k + 8 * j));
                    h[j] = load(high.as_ptr().add(k + 8 * j));
                }
                for (a, b) in pairs {
                    for j in 0..4 {
                        let (x, y) = (load(a.as_ptr().add(k + 8 * j)), load(b.as_ptr().add(k + 8 * j)));
                        l[j] = _mm512_madd52lo_epu64(l[j], x, y);
                        h[j] = _mm512_madd52hi_epu64(h[j], x, y);
                    }
                }
                for j in 0..4 {
                    store(low.as_mut_ptr().add(k + 8 * j), l[j]);
                    store(high.as_mut_ptr().add(k + 8 * j), h[j]);
                }
            }
        }
    }

    /// # Safety
    /// AVX-512F, DQ and IFMA present; both buffers have the same length, a multiple of 8.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn reduce_acc(ntt: &NttTable, low: &mut [u64], high: &mut [u64]) {
        let m = Modulus52::new(&ntt.modulus);
        let [radix, square] = ntt.pointwise.radix52();
        let radix = [Factor::splat(radix), Factor::splat(square)];
        for k in (0..low.len()).step_by(8) {
            // SAFETY: `k + 7` is below the common length.
            unsafe {
                let (l, h) = (load(low.as_ptr().add(k)), load(high.as_ptr().add(k)));
                store(low.as_mut_ptr().add(k), m.join(l, h, radix));
                store(high.as_mut_ptr().add(k), m.zero);
            }
        }
    }
}
