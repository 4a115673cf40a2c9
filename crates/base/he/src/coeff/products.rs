//! Products of weight polynomials and ciphertexts, computed as a matrix product at every place of
//! the transform.
//!
//! A layer multiplies the weights of every output block with the ciphertexts of every tile, the
//! most often read data of the scheme. All products work on the first [`PART`] words of their
//! factors, which stay in the cache until every sum has used them, then on the next words.

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, FRESH, P2};
use super::reshare::Sum;
use tacit_arith::ntt::{MAX_ACCUMULATED, MAX_NARROW};
use tacit_arith::rns::Accumulator;

const _: () = assert!(P2 <= MAX_NARROW, "its residues are kept in 16 bits");

/// Words of a polynomial in one part.
const PART: usize = 512;
const PARTS: usize = DEGREE / PART;

/// Received ciphertexts, or parts of them, as products read them.
pub struct Ciphertexts {
    /// One part of one half of all ciphertexts each: first those of b, then those of a.
    parts: Vec<Part>,
    count: usize,
}

/// `[count, PART]` residues mod P1 and mod P2.
struct Part {
    wide: Vec<u64>,
    narrow: Vec<u16>,
}

impl Ciphertexts {
    /// Room for `count` ciphertexts, all zero.
    pub fn new(count: usize) -> Self {
        let parts = (0..2 * PARTS).map(|_| Part { wide: vec![0; count * PART], narrow: vec![0; count * PART] });
        Self { parts: parts.collect(), count }
    }

    /// Stores a ciphertext at `index`.
    ///
    /// # Panics
    /// If `index` is not below the count.
    pub fn put(&mut self, index: usize, ciphertext: &Ciphertext) {
        assert!(index < self.count, "ciphertext {index} of {}", self.count);
        let target = index * PART..(index + 1) * PART;
        let words = [&ciphertext.b, &ciphertext.a]
            .into_iter()
            .flat_map(|half| half.residue(0).chunks_exact(PART).zip(half.residue(1).chunks_exact(PART)));
        for (part, (wide, narrow)) in self.parts.iter_mut().zip(words) {
            part.wide[target.clone()].copy_from_slice(wide);
            narrow_words(&mut part.narrow[target.clone()], narrow);
        }
    }

    /// Number of ciphertexts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of one ciphertext in memory.
    pub const MEMORY_BYTES: usize = 2 * DEGREE * (8 + 2);
}

/// Words from one weight polynomial to the next. With a power of two, the same parts of all
/// polynomials would compete for the same cache sets.
const STRIDE: usize = DEGREE + 64;

/// Integer polynomials with small coefficients in the NTT domain: a row for every output block.
/// Reusable; its memory never shrinks.
#[derive(Default)]
pub struct Weights {
    /// Mod P1 and mod P2, each `[rows, count, STRIDE]`.
    wide: Vec<u64>,
    narrow: Vec<u16>,
    rows: usize,
    count: usize,
    residue: Vec<u64>,
    columns: Vec<u64>,
}

impl Weights {
    /// Makes room for `rows` rows of `count` polynomials, whose content is unspecified until
    /// [`Weights::put`].
    pub fn resize(&mut self, rows: usize, count: usize) {
        (self.rows, self.count) = (rows, count);
        let words = (rows * count * STRIDE).max(self.wide.len());
        self.wide.resize(words, 0);
        self.narrow.resize(words, 0);
        self.residue.resize(DEGREE, 0);
    }

    /// Stores, as polynomial `k` of `row`, the NTT of the polynomial with these (index, coefficient)
    /// pairs.
    /// Indices are public; no branch depends on coefficients.
    ///
    /// # Panics
    /// If an index is not below N, or the row or k is out of range.
    pub fn put(&mut self, ctx: &Context, row: usize, k: usize, entries: &[(usize, i32)]) {
        assert!(row < self.rows && k < self.count, "polynomial {k} of row {row}: {} x {}", self.rows, self.count);
        let range = (row * self.count + k) * STRIDE..(row * self.count + k) * STRIDE + DEGREE;
        let (width, period) = shape(entries);
        for (i, residue) in [&mut self.wide[range.clone()], &mut self.residue].into_iter().enumerate() {
            let (table, m) = (ctx.basis().table(i), ctx.basis().modulus(i));
            if width == period {
                residue.fill(0);
                entries.iter().for_each(|&(position, w)| residue[position] = m.reduce_i64(i64::from(w)));
                table.forward(residue);
            } else {
                self.columns.clear();
                self.columns.resize(DEGREE / period * width, 0);
                for &(position, w) in entries {
                    self.columns[position / period * width + position % period] = m.reduce_i64(i64::from(w));
                }
                table.forward_columns(&mut self.columns, width, residue);
            }
        }
        narrow_words(&mut self.narrow[range], &self.residue);
    }

    /// A part of all polynomials: mod P1, mod P2.
    fn part(&self, part: usize) -> (Vec<&[u64]>, Vec<&[u16]>) {
        let places =
            (0..self.rows * self.count).map(|entry| entry * STRIDE + part * PART..entry * STRIDE + (part + 1) * PART);
        (places.clone().map(|range| &self.wide[range]).collect(), places.map(|range| &self.narrow[range]).collect())
    }
}

fn narrow_words(target: &mut [u16], source: &[u64]) {
    // Residues mod P2 fit 16 bits.
    target.iter_mut().zip(source).for_each(|(target, &word)| *target = word as u16);
}

/// Width and period of the rows that contain all entries, for a transform of the fewest words;
/// equal if no narrower rows do. Depends on indices alone.
fn shape(entries: &[(usize, i32)]) -> (usize, usize) {
    let used = entries.iter().fold(0, |used, (position, _)| used | position);
    let shapes = [8, 16, 32, 64].map(|width: usize| match used / width {
        0 => (width, DEGREE),
        larger => (width, width << larger.trailing_zeros()),
    });
    shapes.into_iter().min_by_key(|(width, period)| (DEGREE / period * width, *width)).expect("there are four shapes")
}

/// Sums of products: one for every row of weights and of ciphertexts. Reusable.
#[derive(Default)]
pub struct Sums {
    /// Sums mod P1 as low and high words, and sums mod P2, each `[2, PARTS, rows, columns, PART]`.
    low: Vec<u64>,
    high: Vec<u64>,
    narrow: Vec<u64>,
    rows: usize,
    columns: usize,
    /// Products in each sum since its last reduction.
    products: usize,
}

impl Sums {
    /// Sets all sums to zero, for `rows` rows of weights and `columns` rows of ciphertexts.
    pub fn reset(&mut self, rows: usize, columns: usize) {
        (self.rows, self.columns, self.products) = (rows, columns, 0);
        for words in [&mut self.low, &mut self.high, &mut self.narrow] {
            words.clear();
            words.resize(2 * DEGREE * rows * columns, 0);
        }
    }

    /// Adds to sum (o, t) the products of the weights of row o and the ciphertexts `chosen[t]`.
    ///
    /// # Panics
    /// If rows do not match [`Sums::reset`] or each other in length, an index of a ciphertext is
    /// out of range, or a row has [`MAX_ACCUMULATED`] weights or more.
    pub fn add(&mut self, ctx: &Context, weights: &Weights, ciphertexts: &Ciphertexts, chosen: &[Vec<usize>]) {
        let (rows, columns, count) = (self.rows, self.columns, weights.count);
        let fits = weights.rows == rows && chosen.len() == columns && chosen.iter().all(|c| c.len() == count);
        assert!(fits && count < MAX_ACCUMULATED, "{} x {count} weights for {rows} x {columns} sums", weights.rows);
        let [first, second] = [0, 1].map(|i| ctx.basis().table(i));
        if self.products + count > MAX_ACCUMULATED {
            first.reduce_acc(&mut self.low, &mut self.high);
            self.products = 1;
        }
        self.products += count;
        for part in 0..PARTS {
            let (wide, narrow) = weights.part(part);
            for half in 0..2 {
                let ciphertext_part = &ciphertexts.parts[half * PARTS + part];
                let places = chosen.iter().flatten().map(|&c| c * PART..(c + 1) * PART);
                let of_wide: Vec<&[u64]> = places.clone().map(|range| &ciphertext_part.wide[range]).collect();
                let of_narrow: Vec<&[u16]> = places.map(|range| &ciphertext_part.narrow[range]).collect();
                let words = rows * columns * PART;
                let sums = (half * PARTS + part) * words..(half * PARTS + part + 1) * words;
                let (low, high) = (&mut self.low[sums.clone()], &mut self.high[sums.clone()]);
                first.mac_matrix(low, high, &wide, &of_wide, count);
                second.mac_matrix_narrow(&mut self.narrow[sums], &narrow, &of_narrow, count);
            }
        }
    }

    /// Returns sum (o, t) for resharing.
    ///
    /// # Panics
    /// If o or t is out of range.
    pub fn sum(&self, ctx: &Context, o: usize, t: usize) -> Sum {
        assert!(o < self.rows && t < self.columns, "sum ({o}, {t}) of {} x {}", self.rows, self.columns);
        Sum { b: self.half(ctx, 0, o, t), a: self.half(ctx, 1, o, t) }
    }

    fn half(&self, ctx: &Context, half: usize, o: usize, t: usize) -> Accumulator {
        let places = (0..PARTS).map(|part| {
            let start = (((half * PARTS + part) * self.rows + o) * self.columns + t) * PART;
            start..start + PART
        });
        let gather = |words: &[u64]| places.clone().flat_map(|range| &words[range]).copied().collect::<Vec<u64>>();
        let (mut low, mut high) = (gather(&self.low), gather(&self.high));
        low.extend(gather(&self.narrow));
        high.resize(FRESH * DEGREE, 0);
        Accumulator::from_sums(ctx.basis(), low, high, self.products)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_arith::prg::{Prg, Seed};
    use tacit_arith::rns::{Ntt, RnsPoly};

    #[test]
    fn shape_is_the_narrowest_that_holds_all_entries() {
        let shape_of = |places: &[usize]| shape(&places.iter().map(|&position| (position, 1)).collect::<Vec<_>>());
        assert_eq!(shape_of(&[0]), (8, DEGREE));
        assert_eq!(shape_of(&[0, 3136]), (8, 64));
        // Outputs of 28 x 28 in four parts, and of 14 x 14.
        assert_eq!(shape_of(&[0, 1, 2, 3]), (8, DEGREE));
        assert_eq!(shape_of(&[0, 3, 784 * 4]), (8, 64));
        assert_eq!(shape_of(&[15, 196 << 4]), (16, 64));
        assert_eq!(shape_of(&[31, 98 << 5]), (32, 64));
        let (width, period) = shape_of(&(0..80).map(|k| ((49 * k) << 3) % DEGREE + k % 8).collect::<Vec<_>>());
        assert_eq!(width, period);
        let everywhere = shape_of(&(0..DEGREE).collect::<Vec<_>>());
        assert_eq!(everywhere.0, everywhere.1);
    }

    fn uniform(ctx: &Context, prg: &mut Prg) -> RnsPoly<Ntt> {
        let words = (0..FRESH).flat_map(|i| (0..DEGREE).map(move |_| i));
        RnsPoly::new(ctx.basis(), words.map(|i| prg.next_u64() % ctx.basis().modulus(i).value()).collect())
    }

    /// Several sizes, each in several calls.
    #[test]
    fn sums_match_products_added_one_by_one() {
        let (ctx, mut prg) = (Context::new().unwrap(), Prg::from_seed(Seed([3; 16])));
        let basis = ctx.basis();
        let polys: Vec<Ciphertext> =
            (0..7).map(|_| Ciphertext { b: uniform(&ctx, &mut prg), a: uniform(&ctx, &mut prg) }).collect();
        let mut ciphertexts = Ciphertexts::new(polys.len());
        polys.iter().enumerate().for_each(|(i, c)| ciphertexts.put(i, c));
        let shapes = [vec![0], vec![5, 784 * 4, 784 * 4 + 3], vec![0, 3136], vec![31, 98 << 5, 4095]];
        for (rows, columns) in [(1, 1), (5, 1), (2, 2), (3, 3), (7, 2)] {
            let mut sums = Sums::default();
            sums.reset(rows, columns);
            let mut expected: Vec<[Accumulator; 2]> =
                (0..rows * columns).map(|_| [0; 2].map(|_| Accumulator::new(basis, FRESH))).collect();
            let mut weights = Weights::default();
            for count in [3, 1] {
                weights.resize(rows, count);
                let chosen: Vec<Vec<usize>> =
                    (0..columns).map(|t| (0..count).map(|k| (3 * t + k) % polys.len()).collect()).collect();
                for (o, k) in (0..rows).flat_map(|o| (0..count).map(move |k| (o, k))) {
                    let places = &shapes[(o + k) % shapes.len()];
                    let entries: Vec<(usize, i32)> =
                        places.iter().map(|&position| (position, prg.next_u64() as i16 as i32)).collect();
                    weights.put(&ctx, o, k, &entries);
                    let mut all = vec![0i64; DEGREE];
                    entries.iter().for_each(|&(position, w)| all[position] = w.into());
                    let weight = RnsPoly::from_signed(basis, FRESH, &all).into_ntt(basis);
                    for (t, chosen) in chosen.iter().enumerate() {
                        let [b, a] = &mut expected[o * columns + t];
                        let c = &polys[chosen[k]];
                        b.add_products(basis, FRESH, &[(&weight, &c.b)]);
                        a.add_products(basis, FRESH, &[(&weight, &c.a)]);
                    }
                }
                sums.add(&ctx, &weights, &ciphertexts, &chosen);
            }
            for (position, [b, a]) in expected.iter_mut().enumerate() {
                let mut sum = sums.sum(&ctx, position / columns, position % columns);
                assert!(sum.b.take(basis) == b.take(basis) && sum.a.take(basis) == a.take(basis), "{rows} x {columns}");
            }
        }
    }
}
