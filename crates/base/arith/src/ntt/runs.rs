//! Products with values that are constant over runs of places: polynomials in a power of X.

use super::{Kernel, NttTable, by_halves, portable};

/// Places in the shortest supported run, which a kernel processes at once.
pub const SHORTEST_RUN: usize = 32;

impl NttTable {
    /// As [`NttTable::mac`], but the second factor of each pair has one reduced value for each run
    /// of `N / values` places.
    ///
    /// # Panics
    /// If a first factor or a sum does not have N elements, or the second factors differ in length.
    /// If their length is not a power of two that gives runs of at least [`SHORTEST_RUN`] places.
    pub fn mac_runs(&self, low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        self.check(&[low.len(), high.len()]);
        let Some(runs) = pairs.first().map(|(_, b)| b.len()) else { return };
        let fits = runs.is_power_of_two() && runs * SHORTEST_RUN <= self.degree;
        assert!(fits && pairs.iter().all(|(a, b)| a.len() == self.degree && b.len() == runs), "{runs} runs");
        match &self.kernel {
            Kernel::Portable(_) => portable::mac_runs(low, high, pairs, self.degree / runs),
            Kernel::Fma(_) => by_halves::mac_runs(low, high, pairs, self.degree / runs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(_) => ifma(low, high, pairs, self.degree / runs),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn ifma(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])], run: usize) {
    // SAFETY: an `NttTable` with this kernel exists only where AVX-512 F and IFMA were detected;
    // `NttTable::mac_runs` checked the lengths.
    unsafe { x86::mac_runs(low, high, pairs, run) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::words52::{load, store};
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor has AVX-512F and IFMA. Sums and first factors have one length; `run` divides it and
    /// is a multiple of 32. Each pair has a second factor for each run.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn mac_runs(low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])], run: usize) {
        // SAFETY: `k + 31` is below the common length, and `k / run` below the number of runs.
        unsafe {
            for k in (0..low.len()).step_by(32) {
                let mut l = [_mm512_setzero_si512(); 4];
                let mut h = l;
                for j in 0..4 {
                    l[j] = load(low.as_ptr().add(k + 8 * j));
                    h[j] = load(high.as_ptr().add(k + 8 * j));
                }
                for (a, b) in pairs {
                    let y = _mm512_set1_epi64(*b.as_ptr().add(k / run) as i64);
                    for j in 0..4 {
                        let x = load(a.as_ptr().add(k + 8 * j));
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
}
