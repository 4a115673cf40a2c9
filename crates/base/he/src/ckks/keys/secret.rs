//! The secret key and the public key.

use super::super::context::Context;
use super::super::params::SPARSE_WEIGHT;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use std::sync::Arc;
use tacit_arith::prg::{Prg, PublicSeed, Seed, SplitPrg};
use tacit_arith::sample::{self, UniformParts};
use zeroize::{Zeroize, Zeroizing};

/// A secret polynomial with coefficients -1, 0, 1, at every prime. Wiped on drop; cannot be printed
/// or serialised.
pub struct SecretKey {
    context: Arc<Context>,
    s: Zeroizing<Poly<Ntt>>,
    /// Seed of the sparse secret of bootstrapping.
    sparse: Seed,
}

impl SecretKey {
    /// Draws a uniform key, and a seed for the sparse secret of bootstrapping.
    #[must_use]
    pub fn generate(context: &Arc<Context>, prg: &mut Prg) -> Self {
        let s = transform_secret(context, &sample::ternary(prg, context.degree()));
        Self { context: context.clone(), s, sparse: prg.next_seed() }
    }

    /// A key of another library, with a fixed seed of its sparse secret.
    #[cfg(test)]
    pub(in super::super) fn from_coefficients(context: &Arc<Context>, coefficients: &[i64]) -> Self {
        Self { context: context.clone(), s: transform_secret(context, coefficients), sparse: Seed([0; 16]) }
    }

    /// The sparse secret of bootstrapping, always the same: [`SPARSE_WEIGHT`] coefficients are 1 or
    /// -1.
    pub(super) fn sparse(&self) -> Zeroizing<Poly<Ntt>> {
        let mut prg = Prg::from_seed(self.sparse.clone());
        transform_secret(&self.context, &sparse(&mut prg, self.context.degree(), SPARSE_WEIGHT))
    }

    /// The context of the key.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The secret polynomial at every prime.
    pub(in super::super) fn s(&self) -> &Poly<Ntt> {
        &self.s
    }

    /// Makes a fresh public key at the highest level.
    #[must_use]
    pub fn public_key(&self, prg: &mut SplitPrg) -> PublicKey {
        let context = &self.context;
        let shape = Shape::level(context.parameters().levels());
        let a = uniform(context, shape, prg.public_seed());
        let b = zero_under(context, &self.s, &a, shape, prg.secret());
        PublicKey { b, a }
    }
}

fn transform_secret(context: &Context, coefficients: &[i64]) -> Zeroizing<Poly<Ntt>> {
    Zeroizing::new(Poly::from_signed(context, full_shape(context), coefficients).into_ntt(context))
}

fn full_shape(context: &Context) -> Shape {
    Shape { level: context.parameters().levels(), special: context.parameters().special_primes().len() }
}

/// `e - a s`: the half of an encryption of zero that goes with `a`.
pub(in super::super) fn zero_under(
    context: &Context,
    s: &Poly<Ntt>,
    a: &Poly<Ntt>,
    shape: Shape,
    prg: &mut Prg,
) -> Poly<Ntt> {
    let error = sample::error(prg, context.degree());
    let mut b = Poly::from_signed(context, shape, &error).into_ntt(context);
    // `a` is public, so the product is as secret as the key.
    let mut product = Zeroizing::new(a.clone());
    product.mul_assign(s, context);
    b.sub_assign(&product, context);
    b
}

/// The uniform polynomial of a seed, in NTT form. Every prime has its own stream, so residues can
/// be drawn in any order and for any shape.
pub(in super::super) fn uniform(context: &Context, shape: Shape, seed: PublicSeed) -> Poly<Ntt> {
    use rayon::prelude::*;
    let mut a = Poly::scratch(context, shape);
    a.limbs_mut().for_each(|(k, limb)| uniform_parts(context, shape, seed, k).next(limb));
    a
}

/// Limb `k` of [`uniform`], in parts.
pub(super) fn uniform_parts(context: &Context, shape: Shape, seed: PublicSeed, k: usize) -> UniformParts {
    UniformParts::new(context.pointwise(shape, k), seed.fork(context.index(shape, k) as u64), context.degree())
}

/// Draws `n` coefficients of which `weight` are 1 or -1, uniform among all such, without branches
/// or indices that depend on them: each position is chosen with the probability that leaves a
/// uniform choice for the rest.
fn sparse(prg: &mut Prg, n: usize, weight: usize) -> Zeroizing<Vec<i64>> {
    let mut words = Zeroizing::new(vec![0u64; n]);
    prg.fill_u64(&mut words);
    let mut missing = weight as u64;
    let choose = |(i, &word): (usize, &u64)| {
        // Uniform below the number of positions left: below `missing` with the right probability,
        // up to 2^-47.
        let (left, sign) = ((n - i) as u64, (word & 1) as i64);
        let index = ((u128::from(word >> 1) * u128::from(left)) >> 63) as u64;
        let chosen = index.wrapping_sub(missing) >> 63;
        missing -= chosen;
        (chosen as i64) * (1 - 2 * sign)
    };
    let coefficients = words.iter().enumerate().map(choose).collect();
    missing.zeroize();
    Zeroizing::new(coefficients)
}

/// `(b, a)` with `b + a s = e`: an encryption of zero that anyone may re-randomise.
pub struct PublicKey {
    pub(in super::super) b: Poly<Ntt>,
    pub(in super::super) a: Poly<Ntt>,
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Bench, spec};
    use super::*;

    /// Clients store seeds, and servers keys under the secrets of seeds.
    #[test]
    fn secrets_of_seeds_are_pinned() {
        let context = Bench::new(&spec(8), 1).context;
        let key = SecretKey::generate(&context, &mut Prg::from_seed(Seed([9; 16])));
        let mut hasher = blake3::Hasher::new();
        for poly in [&key.s, &key.sparse()] {
            for x in poly.limb(0) {
                hasher.update(&x.to_le_bytes());
            }
        }
        assert_eq!(hasher.finalize().to_hex()[..16], *"33a1ac70b6a313ae");
    }

    #[test]
    fn sparse_secrets_have_their_weight_and_are_spread() {
        let mut prg = Prg::from_seed(Seed([1; 16]));
        let (mut halves, mut signs) = ([0i64; 2], 0);
        for _ in 0..200 {
            let s = sparse(&mut prg, 1024, 32);
            assert_eq!(s.iter().map(|v| v.abs()).sum::<i64>(), 32);
            s.iter().enumerate().for_each(|(i, v)| halves[i / 512] += v.abs());
            signs += s.iter().sum::<i64>();
        }
        // 6400 choices, deviation below 40 in a half, 80 for the sum of signs.
        assert!((halves[0] - 3200).abs() < 250 && signs.abs() < 450, "{halves:?} {signs}");
    }
}
