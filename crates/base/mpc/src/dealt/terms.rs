//! The terms that the opened bits are combined with: products of the dealer's masks.
//!
//! With digits `0 .. D` (the highest last), masks `a_j` of `eq_j` (`j >= 1`), `b_i` of `lt_i`
//! (`i < D - 1`) and opened `e_j = eq_j ^ a_j`, `l_i = lt_i ^ b_i`, the lower digits decide
//! ```text
//! H = sum_{i < D-1} lt_i prod_{j > i} eq_j
//! eq_j = e_j + (1 - 2 e_j) a_j,      lt_i = l_i + (1 - 2 l_i) b_i
//! ```
//! which is 0 or 1, since at most one of its terms is. Multiplied out, `H = k_0 + sum_M k_M M` over
//! monomials `M = prod_{j in S} a_j` or `b_i prod_{j in S} a_j`, with public `k`.
//!
//! * One exchange: with the top digit's bit and all signs opened as `q` under a mask `beta`, the result is
//!   `d = q ^ beta ^ H = q + (1 - 2 q)(beta + (1 - 2 beta) H)`: a public combination of the terms `beta` and
//!   `(1 - 2 beta) M`. Folding the sign into `q` saves one term against the sum over all digits.
//! * Two exchanges: the same over GF(2), where single masks are shared in any case.

use super::Exchanges;

/// A product of masks: `a_j` for each bit `j - 1` of `set`, and `b_i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Monomial {
    pub(super) set: usize,
    pub(super) low: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    digits: usize,
    exchanges: Exchanges,
    monomials: Vec<Monomial>,
}

/// The `a_j` with `j > i` among `digits` digits, as a set.
fn higher_digits(i: usize, digits: usize) -> usize {
    ((1 << (digits - 1)) - 1) & !((1 << i) - 1)
}

/// All subsets of `set`, the empty one included.
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    (0..=set).filter(move |s| s & !set == 0)
}

impl Terms {
    pub(super) fn new(digits: usize, exchanges: Exchanges) -> Self {
        let is_one_exchange = exchanges == Exchanges::One;
        let least = if is_one_exchange { 1 } else { 2 };
        let alone = subsets(higher_digits(0, digits))
            .filter(|s| s.count_ones() >= least)
            .map(|set| Monomial { set, low: None });
        let mut monomials: Vec<Monomial> = alone.collect();
        for i in 0..digits - 1 {
            let sets = subsets(higher_digits(i, digits)).filter(|&s| is_one_exchange || s != 0);
            monomials.extend(sets.map(|set| Monomial { set, low: Some(i) }));
        }
        Self { digits, exchanges, monomials }
    }

    /// Monomials with dealt XOR shares.
    pub(super) fn xor_shared_monomials(&self) -> &[Monomial] {
        if self.exchanges == Exchanges::Two { &self.monomials } else { &[] }
    }

    /// Monomials with dealt arithmetic shares, beside the first term.
    pub(super) fn arithmetic_monomials(&self) -> &[Monomial] {
        if self.exchanges == Exchanges::One { &self.monomials } else { &[] }
    }

    /// Terms of the multiplexer.
    pub(super) fn count(&self) -> usize {
        1 + self.arithmetic_monomials().len()
    }

    /// The plane of a monomial's product. `masks` are planes in the order `a_1 .. a_{D-1}, b_0 ..
    /// b_{D-2}`.
    pub(super) fn product(&self, monomial: Monomial, masks: &[u64], words: usize) -> Vec<u64> {
        let mut out = vec![u64::MAX; words];
        let factors = (0..self.digits - 1).filter(|j| monomial.set >> j & 1 == 1);
        for index in factors.chain(monomial.low.map(|i| self.digits - 1 + i)) {
            out.iter_mut().zip(&masks[index * words..][..words]).for_each(|(o, m)| *o &= m);
        }
        out
    }

    /// For each element the public addend of `d`, and the coefficient of each term. `opened` holds
    /// the planes `e_1 .., l_0 .., q` with one exchange, and the masked bit with two.
    pub(super) fn coefficients(&self, opened: &[u64], words: usize, len: usize) -> (Vec<i8>, Vec<Vec<i8>>) {
        let d = self.digits;
        let bits: Vec<Vec<i8>> = opened.chunks(words).map(|plane| expand(plane, len)).collect();
        if self.exchanges == Exchanges::Two {
            let signs = sign(&bits[0]);
            return (bits.into_iter().next().expect("one plane was opened"), vec![signs]);
        }
        let (e, rest) = bits.split_at(d - 1);
        let (l, q) = rest.split_at(d - 1);
        let flip = sign(&q[0]);
        let (e_signs, l_signs): (Vec<Vec<i8>>, Vec<Vec<i8>>) =
            (e.iter().map(|e| sign(e)).collect(), l.iter().map(|l| sign(l)).collect());
        let (mut k0, mut of_sets) = (vec![0i8; len], vec![vec![0i8; len]; 1 << (d - 1)]);
        let mut of_pairs = Vec::with_capacity(self.monomials.len());
        for low in 0..d - 1 {
            for set in subsets(higher_digits(low, d)) {
                // The product over the digits above `low`: signs for those in `set`, opened bits for
                // the others.
                let members = (0..d - 1).filter(|j| higher_digits(low, d) >> j & 1 == 1);
                let factors = members.map(|j| if set >> j & 1 == 1 { &e_signs[j] } else { &e[j] });
                let product = factors.fold(flip.clone(), |product, factor| times(product, factor));
                let sum = if set == 0 { &mut k0 } else { &mut of_sets[set] };
                sum.iter_mut().zip(&product).zip(&l[low]).for_each(|((s, p), l)| *s += p * l);
                of_pairs.push((Monomial { set, low: Some(low) }, times(product, &l_signs[low])));
            }
        }
        // All of these include the sign of `q`: d = q + k0 + (flip - 2 k0) beta + ...
        let addend = q[0].iter().zip(&k0).map(|(q, k)| q + k).collect();
        let mut factors = vec![flip.iter().zip(&k0).map(|(f, k)| f - 2 * k).collect()];
        for monomial in &self.monomials {
            factors.push(match monomial.low {
                None => std::mem::take(&mut of_sets[monomial.set]),
                Some(_) => {
                    let entry = of_pairs.iter_mut().find(|(known, _)| known == monomial);
                    std::mem::take(&mut entry.expect("every pair was multiplied out").1)
                }
            });
        }
        (addend, factors)
    }

    /// Two exchanges: a party's share of `H`. `opened` as for [`coefficients`](Self::coefficients)
    /// without `q`, `masks` and `products` are the party's shares; `public` says whether this party
    /// adds public terms.
    pub(super) fn lower_digits_share(
        &self,
        opened: &[u64],
        masks: &[u64],
        products: &[u64],
        words: usize,
        public: bool,
    ) -> Vec<u64> {
        let d = self.digits;
        let plane = |planes: &'_ [u64], i: usize| planes[i * words..][..words].to_vec();
        let share = |target: Monomial| -> Vec<u64> {
            match (target.set.count_ones(), target.low) {
                (0, None) => vec![if public { u64::MAX } else { 0 }; words],
                (1, None) => plane(masks, target.set.trailing_zeros() as usize),
                (0, Some(i)) => plane(masks, d - 1 + i),
                _ => {
                    let position = self.monomials.iter().position(|m| *m == target);
                    plane(products, position.expect("every product of two masks or more was dealt"))
                }
            }
        };
        let mut out = vec![0; words];
        for i in 0..d - 1 {
            let j = higher_digits(i, d);
            for set in subsets(j) {
                let mut factor = vec![u64::MAX; words];
                for e in (0..d - 1).filter(|b| (j & !set) >> b & 1 == 1) {
                    factor.iter_mut().zip(&opened[e * words..]).for_each(|(f, e)| *f &= e);
                }
                let (without_low, with_low) =
                    (share(Monomial { set, low: None }), share(Monomial { set, low: Some(i) }));
                let l = &opened[(d - 1 + i) * words..][..words];
                for (w, out) in out.iter_mut().enumerate() {
                    *out ^= factor[w] & ((l[w] & without_low[w]) ^ with_low[w]);
                }
            }
        }
        out
    }
}

/// `1 - 2 b` for each bit.
fn sign(bits: &[i8]) -> Vec<i8> {
    bits.iter().map(|b| 1 - 2 * b).collect()
}

fn times(mut product: Vec<i8>, factor: &[i8]) -> Vec<i8> {
    product.iter_mut().zip(factor).for_each(|(p, f)| *p *= f);
    product
}

/// The bits of a byte, lowest first.
const BITS_OF_BYTES: [[i8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[byte][bit] = (byte >> bit & 1) as i8;
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// The first `len` bits of a plane of public bits, 0 or 1 each.
fn expand(plane: &[u64], len: usize) -> Vec<i8> {
    let mut out = Vec::with_capacity(64 * plane.len());
    for byte in plane.iter().flat_map(|word| word.to_le_bytes()) {
        out.extend_from_slice(&BITS_OF_BYTES[byte as usize]);
    }
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_formulas() {
        for d in 1..=4usize {
            // Sets of masks of eq, and for each lower digit any set above it.
            let one_exchange = (1 << (d - 1)) - 1 + (0..d - 1).map(|i| 1 << (d - 1 - i)).sum::<usize>();
            assert_eq!(Terms::new(d, Exchanges::One).count(), 1 + one_exchange);
        }
        assert_eq!([1, 2, 3, 4].map(|d| Terms::new(d, Exchanges::One).count()), [1, 4, 10, 22]);
        for d in 2..=8usize {
            let expected = (1 << (d - 1)) - d + (1..d).map(|k| (1 << k) - 1).sum::<usize>();
            assert_eq!(Terms::new(d, Exchanges::Two).xor_shared_monomials().len(), expected);
        }
    }
}
