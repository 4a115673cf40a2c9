//! Products of matrices of polynomials, place by place: each loaded factor serves several sums.

use super::{Kernel, NttTable};

/// Largest modulus of [`NttTable::mac_matrix_narrow`].
pub const MAX_NARROW: u64 = 1 << 16;

/// A matrix product of words. Sum `(o, t)`, stored row by row, is the sum of the products of
/// `rows[o K + k]` and `columns[t K + k]` over k, for K = `count`.
struct Product<'a, W> {
    rows: &'a [&'a [W]],
    columns: &'a [&'a [W]],
    count: usize,
    /// Words of one factor.
    len: usize,
}

/// The shape of a matrix of sums.
#[derive(Clone, Copy)]
struct Size {
    height: usize,
    width: usize,
}

impl<'a, W> Product<'a, W> {
    fn new(rows: &'a [&'a [W]], columns: &'a [&'a [W]], count: usize, sums: &[usize]) -> Self {
        let len = columns.first().map_or(0, |c| c.len());
        let lengths_match = [rows, columns].iter().all(|factors| {
            factors.len().is_multiple_of(count.max(1)) && factors.iter().all(|factor| factor.len() == len)
        });
        assert!(len.is_multiple_of(64) && lengths_match, "factors of length {len}, {count} in a row");
        let product = Self { rows, columns, count, len };
        let Size { height, width } = product.size();
        assert!(sums.iter().all(|&l| l == height * width * len), "{sums:?} words for {height} x {width} sums of {len}");
        product
    }

    fn size(&self) -> Size {
        Size { height: self.rows.len() / self.count.max(1), width: self.columns.len() / self.count.max(1) }
    }
}

impl NttTable {
    /// Adds a matrix product to sums, each stored as in [`NttTable::mac`]. Sum `(o, t)` of O x T, row
    /// by row, gets the products of `rows[o K + k]` and `columns[t K + k]` for k below K = `count`.
    ///
    /// # Panics
    /// If factors differ in length, or their length is not a multiple of 64. If their number is not
    /// a multiple of K, or the number of sums is not rows times columns.
    pub fn mac_matrix(&self, low: &mut [u64], high: &mut [u64], rows: &[&[u64]], columns: &[&[u64]], count: usize) {
        let product = Product::new(rows, columns, count, &[low.len(), high.len()]);
        match &self.kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(_) => ifma::wide(low, high, &product),
            _ => for_each_product(&product, |sum, a, b| {
                self.mac(&mut low[sum.clone()], &mut high[sum], &[(a, b)]);
            }),
        }
    }

    /// As [`NttTable::mac_matrix`] for a modulus up to [`MAX_NARROW`]; `sums[i]` is one word.
    ///
    /// # Panics
    /// As [`NttTable::mac_matrix`], or if the modulus is above [`MAX_NARROW`].
    pub fn mac_matrix_narrow(&self, sums: &mut [u64], rows: &[&[u16]], columns: &[&[u16]], count: usize) {
        assert!(self.modulus.value() <= MAX_NARROW, "residues mod {} in 16 bits", self.modulus.value());
        let product = Product::new(rows, columns, count, &[sums.len()]);
        match &self.kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(_) => ifma::narrow(sums, &product),
            _ => for_each_product(&product, |sum, a, b| {
                let products = a.iter().zip(b).map(|(&a, &b)| u64::from(a) * u64::from(b));
                sums[sum].iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
            }),
        }
    }
}

/// Calls `add` for every two factors, with the range of their sum's words.
fn for_each_product<W>(product: &Product<'_, W>, mut add: impl FnMut(std::ops::Range<usize>, &[W], &[W])) {
    let (Size { height, width }, count, len) = (product.size(), product.count, product.len);
    for (o, t) in (0..height).flat_map(|o| (0..width).map(move |t| (o, t))) {
        let start = (o * width + t) * len;
        for k in 0..count {
            add(start..start + len, product.rows[o * count + k], product.columns[t * count + k]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod ifma {
    use super::super::ifma::vectors::{load_all, store_all};
    use super::{Product, Size};
    use crate::words52::{V, load};
    use std::arch::x86_64::*;
    use std::array::from_fn;

    pub(super) fn wide(low: &mut [u64], high: &mut [u64], product: &Product<'_, u64>) {
        // SAFETY: an `NttTable` with this kernel exists only where AVX-512 F, DQ and IFMA were
        // detected; `Product::new` checked the lengths.
        blocks(product.size(), |o, t, block| unsafe {
            match (block.height, block.width) {
                (4, 1) => wide_block::<4, 1, 2>(low, high, product, o, t),
                (2, 2) => wide_block::<2, 2, 2>(low, high, product, o, t),
                (2, 1) => wide_block::<2, 1, 4>(low, high, product, o, t),
                (1, 2) => wide_block::<1, 2, 4>(low, high, product, o, t),
                _ => wide_block::<1, 1, 8>(low, high, product, o, t),
            }
        });
    }

    pub(super) fn narrow(sums: &mut [u64], product: &Product<'_, u16>) {
        // SAFETY: as in `wide`.
        blocks(product.size(), |o, t, block| unsafe {
            match (block.height, block.width) {
                (4, 1) => narrow_block::<4, 1, 4>(sums, product, o, t),
                (2, 2) => narrow_block::<2, 2, 4>(sums, product, o, t),
                (2, 1) => narrow_block::<2, 1, 8>(sums, product, o, t),
                (1, 2) => narrow_block::<1, 2, 8>(sums, product, o, t),
                _ => narrow_block::<1, 1, 8>(sums, product, o, t),
            }
        });
    }

    /// Splits the sums into blocks: 2 x 2 where there are two columns, else 4 x 1; smaller at the ends.
    fn blocks(Size { height, width }: Size, mut work: impl FnMut(usize, usize, Size)) {
        let mut t = 0;
        while t < width {
            let across = (width - t).min(2);
            let mut o = 0;
            while o < height {
                let down = match height - o {
                    4.. if across == 1 => 4,
                    2.. => 2,
                    _ => 1,
                };
                work(o, t, Size { height: down, width: across });
                o += down;
            }
            t += across;
        }
    }

    /// Computes `O` x `T` sums from `(o, t)` on, `VECTORS` vectors at a time.
    ///
    /// # Safety
    /// AVX-512F and IFMA present; the product has these sums; its length is a multiple of
    /// `8 VECTORS`.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn wide_block<const O: usize, const T: usize, const VECTORS: usize>(
        low: &mut [u64],
        high: &mut [u64],
        product: &Product<'_, u64>,
        o: usize,
        t: usize,
    ) {
        let (count, len, width) = (product.count, product.len, product.size().width);
        // SAFETY: by the caller; factors have `len` words each.
        unsafe {
            for offset in (0..len).step_by(8 * VECTORS) {
                let sum = |i: usize, j: usize| ((o + i) * width + t + j) * len + offset;
                let load_blocks = |words: &[u64]| -> [[[V; VECTORS]; T]; O] {
                    from_fn(|i| from_fn(|j| load_all(words.as_ptr().add(sum(i, j)), 8)))
                };
                let (mut l, mut h) = (load_blocks(low), load_blocks(high));
                for k in 0..count {
                    let column = |j: usize| product.columns.get_unchecked((t + j) * count + k).as_ptr().add(offset);
                    let x: [[V; VECTORS]; T] = from_fn(|j| load_all(column(j), 8));
                    for (i, (l, h)) in l.iter_mut().zip(&mut h).enumerate() {
                        let source = product.rows.get_unchecked((o + i) * count + k).as_ptr().add(offset);
                        for v in 0..VECTORS {
                            let y = load(source.add(8 * v));
                            for ((l, h), x) in l.iter_mut().zip(h.iter_mut()).zip(&x) {
                                l[v] = _mm512_madd52lo_epu64(l[v], x[v], y);
                                h[v] = _mm512_madd52hi_epu64(h[v], x[v], y);
                            }
                        }
                    }
                }
                for (words, sums) in [(&mut *low, l), (&mut *high, h)] {
                    for (i, of_row) in sums.into_iter().enumerate() {
                        for (j, vectors) in of_row.into_iter().enumerate() {
                            store_all(words.as_mut_ptr().add(sum(i, j)), 8, vectors);
                        }
                    }
                }
            }
        }
    }

    /// As [`wide_block`], for residues of 16 bits.
    ///
    /// # Safety
    /// As [`wide_block`].
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn narrow_block<const O: usize, const T: usize, const VECTORS: usize>(
        sums: &mut [u64],
        product: &Product<'_, u16>,
        o: usize,
        t: usize,
    ) {
        let (count, len, width) = (product.count, product.len, product.size().width);
        // SAFETY: as in `wide_block`.
        unsafe {
            for offset in (0..len).step_by(8 * VECTORS) {
                let sum = |i: usize, j: usize| ((o + i) * width + t + j) * len + offset;
                let mut l: [[[V; VECTORS]; T]; O] = from_fn(|i| from_fn(|j| load_all(sums.as_ptr().add(sum(i, j)), 8)));
                for k in 0..count {
                    let mut x = [[_mm512_setzero_si512(); VECTORS]; T];
                    for (j, x) in x.iter_mut().enumerate() {
                        let source = product.columns.get_unchecked((t + j) * count + k).as_ptr().add(offset);
                        for (v, x) in x.iter_mut().enumerate() {
                            *x = load_widened(source.add(8 * v));
                        }
                    }
                    for (i, l) in l.iter_mut().enumerate() {
                        let source = product.rows.get_unchecked((o + i) * count + k).as_ptr().add(offset);
                        for v in 0..VECTORS {
                            let y = load_widened(source.add(8 * v));
                            for (l, x) in l.iter_mut().zip(&x) {
                                l[v] = _mm512_madd52lo_epu64(l[v], x[v], y);
                            }
                        }
                    }
                }
                for (i, of_row) in l.into_iter().enumerate() {
                    for (j, vectors) in of_row.into_iter().enumerate() {
                        store_all(sums.as_mut_ptr().add(sum(i, j)), 8, vectors);
                    }
                }
            }
        }
    }

    /// Loads eight words of 16 bits as words of 64 bits.
    ///
    /// # Safety
    /// `source` points to 8 readable words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    unsafe fn load_widened(source: *const u16) -> V {
        // SAFETY: by the caller.
        unsafe { _mm512_cvtepu16_epi64(_mm_loadu_si128(source.cast())) }
    }
}
