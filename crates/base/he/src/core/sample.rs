//! Random polynomials for encryption, in NTT form.

use super::Ring;
use tacit_arith::prg::PublicSeed;
use tacit_arith::rns::{Ntt, RnsPoly};
use tacit_arith::sample;

/// Transforms N small signed coefficients at `level`. The caller wipes secret results.
///
/// # Panics
/// If there are not N coefficients, or the ring has fewer than `level` primes.
#[must_use]
pub fn small(ring: &Ring, level: usize, coefficients: &[i64]) -> RnsPoly<Ntt> {
    RnsPoly::from_signed(ring.basis(), level, coefficients).into_ntt(ring.basis())
}

/// Draws the uniform polynomial of `seed` at `level`, in NTT form, prime by prime.
///
/// # Panics
/// If the ring has fewer than `level` primes.
#[must_use]
pub fn uniform(ring: &Ring, level: usize, seed: PublicSeed) -> RnsPoly<Ntt> {
    let mut stream = seed.stream();
    let mut words = vec![0; level * ring.degree()];
    for (i, part) in words.chunks_exact_mut(ring.degree()).enumerate() {
        sample::uniform(&mut stream, ring.basis().modulus(i), part);
    }
    RnsPoly::new(ring.basis(), words)
}
