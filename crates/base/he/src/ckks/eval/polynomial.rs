//! Polynomials of a ciphertext at the least depth, `ceil(log2(degree + 1))`: baby and giant steps
//! by powers of two ([PS73]), in the power or the Chebyshev basis ([CCS19]). Scales follow from the
//! result back to the powers ([BMTH21]), so every sum is exact in its scale.

use super::super::cipher::Ciphertext;
use super::super::context::Context;
use super::super::keys::{KeyId, KeyKind};
use super::super::noise::Estimate;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::Evaluator;
use super::basic::{Product, reduce_real};
use crate::HeError;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The functions that coefficients belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// `x^i`.
    Power,
    /// Chebyshev polynomials `T_i`, for arguments in [-1, 1].
    Chebyshev,
}

/// A polynomial with real coefficients.
#[derive(Clone, PartialEq, Debug)]
pub struct Polynomial {
    basis: Basis,
    coefficients: Vec<f64>,
}

/// A split of a polynomial for its evaluation: `sum terms[i] B_i + sum q_m B_m`.
struct Node {
    terms: Vec<(usize, f64)>,
    products: Vec<(usize, Self)>,
}

/// Powers (or Chebyshev polynomials) of one ciphertext.
pub struct Powers {
    basis: Basis,
    level: usize,
    by_degree: BTreeMap<usize, Ciphertext>,
}

const WHAT: &str = "polynomial";

const PART: usize = 1024;

fn log2_ceil(n: usize) -> usize {
    n.next_power_of_two().trailing_zeros() as usize
}

impl Polynomial {
    /// The polynomial of these coefficients, the constant first.
    ///
    /// # Errors
    /// [`HeError::Circuit`] if it is constant or a coefficient is not finite.
    pub fn new(basis: Basis, coefficients: &[f64]) -> Result<Self, HeError> {
        let used = coefficients.iter().rposition(|&c| c != 0.0).unwrap_or(0);
        if used == 0 || coefficients.iter().any(|c| !c.is_finite()) {
            let why = "it needs a finite coefficient beyond the constant, and no other kind".to_owned();
            return Err(HeError::Circuit { what: WHAT, why });
        }
        Ok(Self { basis, coefficients: coefficients[..=used].to_vec() })
    }

    /// Degree of the polynomial.
    pub fn degree(&self) -> usize {
        self.coefficients.len() - 1
    }

    /// Levels that an evaluation takes.
    pub fn depth(&self) -> usize {
        log2_ceil(self.degree() + 1)
    }

    /// `factor p + addend`.
    ///
    /// # Panics
    /// If the factor is zero or either number is not finite.
    #[must_use]
    pub fn scaled(&self, factor: f64, addend: f64) -> Self {
        let mut coefficients: Vec<f64> = self.coefficients.iter().map(|c| c * factor).collect();
        coefficients[0] += addend;
        Self::new(self.basis, &coefficients).expect("a multiple of a polynomial is one")
    }

    /// Value at a real number.
    pub fn at(&self, x: f64) -> f64 {
        self.at_each([x])[0]
    }

    /// Values at several real numbers.
    pub fn at_each<const COUNT: usize>(&self, x: [f64; COUNT]) -> [f64; COUNT] {
        match self.basis {
            Basis::Power => {
                self.coefficients.iter().rev().fold([0.0; COUNT], |sum, c| std::array::from_fn(|i| sum[i] * x[i] + c))
            }
            Basis::Chebyshev => {
                let zero = [0.0; COUNT];
                let (b1, b2) = self.coefficients.iter().skip(1).rev().fold((zero, zero), |(b1, b2), c| {
                    let next: [f64; COUNT] = std::array::from_fn(|i| 2.0 * x[i] * b1[i] - b2[i] + c);
                    (next, b1)
                });
                std::array::from_fn(|i| x[i] * b1[i] - b2[i] + self.coefficients[0])
            }
        }
    }

    /// Relinearisations of an evaluation, powers included: entry i counts those that give `i + 1`
    /// levels below the argument.
    pub fn relinearisations(&self) -> Vec<usize> {
        self.node().relinearisations(self.basis, self.depth())
    }

    /// Chooses the split with the fewest relinearisations, then products, then powers, which are
    /// products at high levels. A split computes all powers up to some power of two and uses
    /// products beyond.
    fn node(&self) -> Node {
        let splits = (0..self.depth()).map(|log_babies| {
            let mut remainder = self.coefficients.clone();
            node(self.basis, &mut remainder, self.depth(), 1 << log_babies)
        });
        let best = splits.min_by_key(|node| {
            let relinearisations = node.relinearisations(self.basis, self.depth()).into_iter().sum::<usize>();
            (relinearisations, node.closed_powers(self.basis).len() + node.count_products())
        });
        best.expect("the depth of what is no constant is at least 1")
    }
}

/// Splits `p = q B_m + r`, with m the largest power of two up to the degree, and r again, until the
/// remainder is a sum of baby steps that `depth` levels allow.
fn node(basis: Basis, remainder: &mut Vec<f64>, depth: usize, babies: usize) -> Node {
    let mut node = Node { terms: Vec::new(), products: Vec::new() };
    loop {
        let degree = remainder.iter().rposition(|&c| c != 0.0).unwrap_or(0);
        remainder.truncate(degree + 1);
        if degree == 0 || (degree <= babies && log2_ceil(degree) < depth) {
            node.terms.extend(remainder.iter().enumerate().filter(|(_, c)| **c != 0.0).map(|(i, &c)| (i, c)));
            return node;
        }
        let m = 1 << degree.ilog2();
        let mut quotient = remainder.split_off(m);
        if basis == Basis::Chebyshev {
            // T_(m+i) = 2 T_m T_i - T_(m-i)
            for i in 1..quotient.len() {
                remainder[m - i] -= quotient[i];
                quotient[i] *= 2.0;
            }
        }
        if quotient.len() == 1 {
            node.terms.push((m, quotient[0]));
        } else {
            node.products.push((m, self::node(basis, &mut quotient, depth - 1, babies)));
        }
    }
}

impl Node {
    fn powers(&self, into: &mut BTreeSet<usize>) {
        into.extend(self.terms.iter().map(|&(i, _)| i).filter(|&i| i > 0));
        for (m, quotient) in &self.products {
            into.insert(*m);
            quotient.powers(into);
        }
    }

    /// The powers that the split needs, and those from which they are computed.
    fn closed_powers(&self, basis: Basis) -> BTreeSet<usize> {
        let (mut direct, mut closed) = (BTreeSet::new(), BTreeSet::new());
        self.powers(&mut direct);
        direct.into_iter().for_each(|i| close(basis, i, &mut closed));
        closed
    }

    /// As [`Polynomial::relinearisations`], of a polynomial of `depth` levels.
    fn relinearisations(&self, basis: Basis, depth: usize) -> Vec<usize> {
        let mut counts = vec![0; depth];
        self.closed_powers(basis).into_iter().filter(|&i| i > 1).for_each(|i| counts[log2_ceil(i) - 1] += 1);
        self.count_sums(&mut counts);
        counts
    }

    /// Counts sums with products by level; the last entry is that of the whole.
    fn count_sums(&self, counts: &mut [usize]) {
        if let Some((last_count, counts_above)) = counts.split_last_mut().filter(|_| !self.products.is_empty()) {
            *last_count += 1;
            self.products.iter().for_each(|(_, quotient)| quotient.count_sums(counts_above));
        }
    }

    /// Number of products, without those that make powers.
    fn count_products(&self) -> usize {
        self.products.iter().map(|(_, quotient)| 1 + quotient.count_products()).sum()
    }
}

/// The factors of power `i`: the largest power of two below `i`, and the rest.
fn factors(i: usize) -> (usize, usize) {
    let m = if i.is_power_of_two() { i / 2 } else { 1 << i.ilog2() };
    (m, i - m)
}

fn close(basis: Basis, i: usize, into: &mut BTreeSet<usize>) {
    if i == 0 || !into.insert(i) || i == 1 {
        return;
    }
    let (a, b) = factors(i);
    close(basis, a, into);
    close(basis, b, into);
    if basis == Basis::Chebyshev {
        close(basis, a - b, into);
    }
}

fn needed(basis: Basis, polynomials: &[&Polynomial]) -> BTreeSet<usize> {
    let mut powers: BTreeSet<usize> = polynomials.iter().flat_map(|p| p.node().closed_powers(basis)).collect();
    powers.insert(1);
    powers
}

/// Relinearisation keys for products at levels from `source_level` down to above `target_level`.
pub fn relinearisation_needs(context: &Context, source_level: usize, target_level: usize) -> Vec<KeyId> {
    let groups = context
        .parameters()
        .spec()
        .groups
        .iter()
        .map(|g| g.up_to_level.min(source_level))
        .filter(|&l| l > target_level);
    groups
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|level| KeyId::for_level(context, KeyKind::Relinearise, level))
        .collect()
}

impl Evaluator<'_> {
    /// Computes the powers of `x` that `polynomials`, all in one basis, need.
    ///
    /// # Errors
    /// [`HeError::Circuit`] without polynomials or with several bases; [`HeError::Level`] if `x` is
    /// too low; those of [`KeySet::get`](super::super::KeySet::get) for a missing key.
    pub fn powers(&self, x: &Ciphertext, polynomials: &[&Polynomial]) -> Result<Powers, HeError> {
        let bases: Vec<Basis> = polynomials.iter().map(|p| p.basis).collect();
        let Some(&basis) = bases.first().filter(|basis| bases.iter().all(|b| b == *basis)) else {
            let why = "powers are shared by polynomials of one basis".to_owned();
            return Err(HeError::Circuit { what: WHAT, why });
        };
        let depth = polynomials.iter().map(|p| p.depth()).max().expect("there is a polynomial");
        if x.level() <= depth {
            return Err(HeError::Level { what: WHAT, need: depth + 1, have: x.level() });
        }
        let mut powers = Powers { basis, level: x.level(), by_degree: BTreeMap::from([(1, x.clone())]) };
        for i in needed(basis, polynomials).into_iter().filter(|&i| i > 1) {
            let power = self.power(&powers, i)?;
            powers.by_degree.insert(i, power);
        }
        Ok(powers)
    }

    /// Power `i` from lower ones, by one product and one rescaling.
    fn power(&self, powers: &Powers, i: usize) -> Result<Ciphertext, HeError> {
        let (a, b) = factors(i);
        let (left, right) = (&powers.by_degree[&a], &powers.by_degree[&b]);
        let level = left.level().min(right.level());
        let factor = if powers.basis == Basis::Chebyshev { 2 } else { 1 };
        let mut product = if a == b {
            self.square_times(factor, left)?
        } else {
            self.product_times(factor, &left.drop_to(level)?, &right.drop_to(level)?)?
        };
        if powers.basis == Basis::Chebyshev {
            product.linear = match a - b {
                0 => self.add_real(&product.linear, -1.0),
                k => {
                    let scale = product.linear.scale;
                    self.add_terms(product.linear, &[(&powers.by_degree[&k], -1.0)], scale)
                }
            };
        }
        let power = self.finish(product)?;
        // Chebyshev polynomials on [-1, 1] have a mean square of a half.
        Ok(if powers.basis == Basis::Chebyshev { power.with_magnitude(0.5f64.sqrt()) } else { power })
    }

    /// Adds `value x` of each term to `sum`, which has `scale` and at most the levels of `x`.
    fn add_terms(&self, mut sum: Ciphertext, terms: &[(&Ciphertext, f64)], scale: Scale) -> Ciphertext {
        let (context, shape) = (self.context, sum.c0.shape());
        let scaled: Vec<f64> = terms.iter().map(|(x, value)| value * scale.over(x.scale).to_f64()).collect();
        for (h, half) in [&mut sum.c0, &mut sum.c1].into_iter().enumerate() {
            let halves: Vec<&Poly<Ntt>> = terms.iter().map(|(x, _)| [&x.c0, &x.c1][h]).collect();
            half.limbs_mut().for_each(|(k, limb)| {
                let op = context.pointwise(shape, k);
                let factors: Vec<_> =
                    scaled.iter().map(|&v| op.modulus().shoup(reduce_real(op.modulus(), v))).collect();
                // The sum stays in the first-level cache.
                for (start, part) in limb.chunks_mut(PART).enumerate().map(|(i, part)| (i * PART, part)) {
                    for (x, &factor) in halves.iter().zip(&factors) {
                        op.add_scaled(part, &x.limb(k)[start..start + part.len()], factor);
                    }
                }
            });
        }
        for ((x, value), scaled) in terms.iter().zip(scaled) {
            let deviation = x.estimate.deviation * scaled.abs();
            sum.estimate = sum.estimate.plus(Estimate { deviation, magnitude: x.estimate.magnitude * value.abs() });
        }
        sum
    }

    /// Evaluates `p` on the argument of `powers` to `level` with exactly `scale`.
    ///
    /// # Errors
    /// [`HeError::Level`] if `level` is above that of the powers less the depth of `p`;
    /// [`HeError::Circuit`] for powers of other polynomials; [`HeError::MissingKey`] or
    /// [`HeError::KeyTooLow`] without a relinearisation key.
    pub fn polynomial_at(
        &self,
        powers: &Powers,
        p: &Polynomial,
        level: usize,
        scale: Scale,
    ) -> Result<Ciphertext, HeError> {
        if level == 0 || level + p.depth() > powers.level {
            return Err(HeError::Level { what: WHAT, need: level + p.depth(), have: powers.level });
        }
        let node = p.node();
        let mut direct = BTreeSet::new();
        node.powers(&mut direct);
        if powers.basis != p.basis || direct.iter().any(|i| !powers.by_degree.contains_key(i)) {
            let why = "the powers were made for other polynomials".to_owned();
            return Err(HeError::Circuit { what: WHAT, why });
        }
        self.node(powers, &node, level, scale)
    }

    fn node(&self, powers: &Powers, node: &Node, level: usize, scale: Scale) -> Result<Ciphertext, HeError> {
        let context = self.context;
        let prime = context.parameters().primes()[level];
        let wide = scale.times_prime(prime);
        let shape = super::super::shape::Shape::level(level + 1);
        let zero = Ciphertext {
            c0: Poly::zero(context, shape),
            c1: Poly::zero(context, shape),
            scale: wide,
            slots: powers.by_degree[&1].slots,
            estimate: Estimate { deviation: 0.0, magnitude: 0.0 },
        };
        let mut products: Option<Product> = None;
        for (m, quotient) in &node.products {
            let power = powers.by_degree[m].drop_to(level + 1)?;
            let quotient = self.node(powers, quotient, level + 1, wide.over(power.scale))?;
            let product = self.product(&quotient, &power)?;
            match &mut products {
                Some(sum) => sum.add_assign(&product, context),
                None => products = Some(product),
            }
        }
        let mut sum = match &mut products {
            // By construction the scale is `wide`, up to the rounding of scales.
            Some(products) => Ciphertext { scale: wide, ..std::mem::replace(&mut products.linear, zero) },
            None => zero,
        };
        let terms: Vec<_> =
            node.terms.iter().filter(|(i, _)| *i > 0).map(|(i, v)| (&powers.by_degree[i], *v)).collect();
        sum = self.add_terms(sum, &terms, wide);
        if let Some((_, value)) = node.terms.iter().find(|(i, _)| *i == 0) {
            sum = self.add_real(&sum, *value);
        }
        let mut result = match products {
            Some(products) => self.finish(Product { linear: sum, ..products })?,
            None => self.rescale(&sum)?,
        };
        result.scale = scale;
        Ok(result)
    }

    /// `p(x)` at the least depth, with the canonical scale of its level.
    ///
    /// # Errors
    /// As [`Evaluator::powers`] and [`Evaluator::polynomial_at`].
    pub fn polynomial(&self, x: &Ciphertext, p: &Polynomial) -> Result<Ciphertext, HeError> {
        let powers = self.powers(x, &[p])?;
        let level = x.level() - p.depth();
        self.polynomial_at(&powers, p, level, self.context.parameters().scale(level))
    }

    /// `x (1 + sign(x)) / 2` with a composite `sign`, such as a minimax one. Takes one level more.
    ///
    /// # Errors
    /// As [`Evaluator::polynomial`].
    pub fn relu(&self, x: &Ciphertext, sign: &[Polynomial]) -> Result<Ciphertext, HeError> {
        let sign = sign.iter().try_fold(x.clone(), |x, p| self.polynomial(&x, p))?;
        let level = sign.level();
        // At half the scale, x is x / 2 when read at the whole scale: halving is free.
        let x = self.adjust(x, level, sign.scale.over(Scale::power_of_two(1)))?;
        let estimate = Estimate { magnitude: x.estimate.magnitude / 2.0, ..x.estimate };
        let half = Ciphertext { scale: sign.scale, estimate, ..x };
        self.mul_rescale(&half, &self.add_real(&sign, 1.0))
    }
}
