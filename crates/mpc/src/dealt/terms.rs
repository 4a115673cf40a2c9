//! What the opened bits are combined with: products of the masks that the dealer drew.
//!
//! With digits `0 .. D` (the highest last), masks `a_j` of `eq_j` (`j >= 1`), `b_i` of `lt_i` (`i < D - 1`)
//! and opened `e_j = eq_j ^ a_j`, `l_i = lt_i ^ b_i`, the lower digits decide ```text H = sum_{i < D-1} lt_i
//! prod_{j > i} eq_j,      eq_j = e_j + (1 - 2 e_j) a_j,      lt_i = l_i + (1 - 2 l_i) b_i ``` which is 0 or
//! 1, since at most one of its terms is. Multiplied out it is `k_0 + sum_M k_M M` over monomials `M =
//! prod_{j in S} a_j` or `b_i prod_{j in S} a_j`, with public `k`.
//!
//! * One exchange: with the top digit's bit and all signs opened as `q` under a mask `beta`, the result is
//!   `d = q ^ beta ^ H = q + (1 - 2 q)(beta + (1 - 2 beta) H)`: a public combination of the terms `beta` and
//!   `(1 - 2 beta) M`. Folding the sign into `q` saves one term against the sum over all digits.
//! * Two exchanges: the same over GF(2), where single masks are shared anyway.

use super::Exchanges;

/// A product of masks: `a_j` for each bit `j - 1` of `set`, and `b_i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Monomial {
    pub(super) set: usize,
    pub(super) low: Option<usize>,
}

/// The monomials of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    digits: usize,
    exchanges: Exchanges,
    monomials: Vec<Monomial>,
}

/// The `a_j` with `j > i` among `digits` digits, as a set.
fn above(i: usize, digits: usize) -> usize {
    ((1 << (digits - 1)) - 1) & !((1 << i) - 1)
}

/// All subsets of `set`, the empty one included.
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    (0..=set).filter(move |s| s & !set == 0)
}

impl Terms {
    pub(super) fn new(digits: usize, exchanges: Exchanges) -> Self {
        let one = exchanges == Exchanges::One;
        let least = if one { 1 } else { 2 };
        let alone =
            subsets(above(0, digits)).filter(|s| s.count_ones() >= least).map(|set| Monomial { set, low: None });
        let mut monomials: Vec<Monomial> = alone.collect();
        for i in 0..digits - 1 {
            let sets = subsets(above(i, digits)).filter(|&s| one || s != 0);
            monomials.extend(sets.map(|set| Monomial { set, low: Some(i) }));
        }
        Self { digits, exchanges, monomials }
    }

    /// Products whose XOR shares are dealt.
    pub(super) fn planes(&self) -> &[Monomial] {
        if self.exchanges == Exchanges::Two { &self.monomials } else { &[] }
    }

    /// Monomials whose arithmetic shares are dealt, beside the first term.
    pub(super) fn arithmetic(&self) -> &[Monomial] {
        if self.exchanges == Exchanges::One { &self.monomials } else { &[] }
    }

    /// Terms of the multiplexer.
    pub(super) fn count(&self) -> usize {
        1 + self.arithmetic().len()
    }

    /// `masks` are planes in the order `a_1 .. a_{D-1}, b_0 .. b_{D-2}`; the plane of a monomial's product.
    pub(super) fn product(&self, monomial: Monomial, masks: &[u64], words: usize) -> Vec<u64> {
        let plane = |i: usize| &masks[i * words..][..words];
        let mut out = vec![u64::MAX; words];
        let factors = (0..self.digits - 1).filter(|j| monomial.set >> j & 1 == 1);
        for index in factors.chain(monomial.low.map(|i| self.digits - 1 + i)) {
            out.iter_mut().zip(plane(index)).for_each(|(o, m)| *o &= m);
        }
        out
    }

    /// One exchange: for each element the public addend of `d`, and the coefficient of each term. `opened`
    /// holds the planes `e_1 .., l_0 .., q`.
    pub(super) fn coefficients(&self, opened: &[u64], words: usize, len: usize) -> (Vec<u64>, Vec<Vec<u64>>) {
        let bit = |plane: usize, i: usize| opened[plane * words + i / 64] >> (i % 64) & 1;
        let d = self.digits;
        let (mut addend, mut of_terms) = (vec![0; len], vec![vec![0u64; len]; self.count()]);
        // For each product over a set of digits, the factor that it gets from `e`.
        let (mut signs, mut tops) = ([0u64; 8], [[0u64; 8]; 8]);
        for i in 0..len {
            let e: [u64; 3] = std::array::from_fn(|j| if j + 1 < d { bit(j, i) } else { 0 });
            let q = bit(2 * d - 2, i);
            let flip = 1u64.wrapping_sub(2 * q);
            for set in 0..1usize << (d - 1) {
                signs[set] = product(&e, set, |e| 1u64.wrapping_sub(2 * e));
            }
            let mut k0 = 0u64;
            for low in 0..d - 1 {
                let j = above(low, d);
                for set in subsets(j) {
                    tops[low][set] = product(&e, j & !set, |e| e).wrapping_mul(signs[set]);
                }
                k0 = k0.wrapping_add(tops[low][0] * bit(d - 1 + low, i));
            }
            addend[i] = q.wrapping_add(flip.wrapping_mul(k0));
            of_terms[0][i] = flip.wrapping_mul(1u64.wrapping_sub(2u64.wrapping_mul(k0)));
            for (term, monomial) in of_terms[1..].iter_mut().zip(&self.monomials) {
                let k = match monomial.low {
                    Some(low) => tops[low][monomial.set].wrapping_mul(1u64.wrapping_sub(2 * bit(d - 1 + low, i))),
                    None => {
                        let lows = (0..d - 1).filter(|&low| monomial.set & !above(low, d) == 0);
                        lows.fold(0u64, |k, low| {
                            k.wrapping_add(tops[low][monomial.set].wrapping_mul(bit(d - 1 + low, i)))
                        })
                    }
                };
                term[i] = flip.wrapping_mul(k);
            }
        }
        (addend, of_terms)
    }

    /// Two exchanges: a party's share of `H`. `opened` as for [`coefficients`](Self::coefficients) without
    /// `q`, `masks` and `products` the party's shares; `public` whether it adds what is public.
    pub(super) fn lower(
        &self,
        opened: &[u64],
        masks: &[u64],
        products: &[u64],
        words: usize,
        public: bool,
    ) -> Vec<u64> {
        let d = self.digits;
        let plane = |planes: &'_ [u64], i: usize| planes[i * words..][..words].to_vec();
        let share = |wanted: Monomial| -> Vec<u64> {
            match (wanted.set.count_ones(), wanted.low) {
                (0, None) => vec![if public { u64::MAX } else { 0 }; words],
                (1, None) => plane(masks, wanted.set.trailing_zeros() as usize),
                (0, Some(i)) => plane(masks, d - 1 + i),
                _ => {
                    let at = self.monomials.iter().position(|m| *m == wanted);
                    plane(products, at.expect("every product of two masks or more was dealt"))
                }
            }
        };
        let mut out = vec![0; words];
        for i in 0..d - 1 {
            let j = above(i, d);
            for set in subsets(j) {
                let mut factor = vec![u64::MAX; words];
                for e in (0..d - 1).filter(|b| (j & !set) >> b & 1 == 1) {
                    factor.iter_mut().zip(&opened[e * words..]).for_each(|(f, e)| *f &= e);
                }
                let (alone, with) = (share(Monomial { set, low: None }), share(Monomial { set, low: Some(i) }));
                let l = &opened[(d - 1 + i) * words..][..words];
                for (w, out) in out.iter_mut().enumerate() {
                    *out ^= factor[w] & ((l[w] & alone[w]) ^ with[w]);
                }
            }
        }
        out
    }
}

/// The product of `f(e_j)` over a set.
fn product(e: &[u64; 3], set: usize, f: impl Fn(u64) -> u64) -> u64 {
    let members = e.iter().enumerate().filter(|(j, _)| set >> j & 1 == 1);
    members.fold(1u64, |product, (_, &e)| product.wrapping_mul(f(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_formulas() {
        for d in 1..=4usize {
            // Sets of masks of eq, and for each lower digit any set above it.
            let one = (1 << (d - 1)) - 1 + (0..d - 1).map(|i| 1 << (d - 1 - i)).sum::<usize>();
            assert_eq!(Terms::new(d, Exchanges::One).count(), 1 + one);
        }
        assert_eq!([1, 2, 3, 4].map(|d| Terms::new(d, Exchanges::One).count()), [1, 4, 10, 22]);
        for d in 2..=8usize {
            let want = (1 << (d - 1)) - d + (1..d).map(|k| (1 << k) - 1).sum::<usize>();
            assert_eq!(Terms::new(d, Exchanges::Two).planes().len(), want);
        }
    }
}
