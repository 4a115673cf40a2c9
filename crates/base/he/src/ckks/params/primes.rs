//! Choice of primes.

use super::super::scale::Scale;
use super::description::ParametersSpec;
use crate::HeError;
use tacit_arith::modulus::{MAX_MODULUS_BITS, is_prime};

/// Primes and scales of a chain.
pub(super) struct Chain {
    /// `q_0` to `q_(L-1)`.
    pub q: Vec<u64>,
    /// The special primes.
    pub p: Vec<u64>,
    /// Canonical scale at level l in entry `l - 1`.
    pub scales: Vec<Scale>,
}

/// The unused prime `1 mod step` below 2^50 that is nearest to `target`.
fn nearest(target: f64, step: u64, used: &[u64]) -> Result<u64, HeError> {
    let limit = 1u64 << MAX_MODULUS_BITS;
    let middle = ((target / step as f64) as u64).min(limit / step);
    // Near a number of this size, more than one in 40 candidates is prime.
    for away in 0..1 << 14 {
        for k in [middle.checked_sub(away), middle.checked_add(away + 1)].into_iter().flatten() {
            let candidate = k * step + 1;
            let is_near = (0.75..1.5).contains(&(candidate as f64 / target));
            if is_near && candidate < limit && !used.contains(&candidate) && is_prime(candidate) {
                return Ok(candidate);
            }
        }
    }
    Err(HeError::NoPrime { bits: target.log2().round() as u32, step })
}

/// Chooses primes from the top down. Each brings the scale of a rescaled product of two canonical
/// ciphertexts nearest to its segment's power of two, so deviations do not grow.
pub(super) fn choose(spec: &ParametersSpec) -> Result<Chain, HeError> {
    let step = 2 << spec.log_degree;
    let levels = 1 + spec.segments.iter().map(|s| s.count).sum::<usize>();
    let mut used: Vec<u64> = Vec::new();
    let mut take = |target: f64| -> Result<u64, HeError> {
        let prime = nearest(target, step, &used)?;
        used.push(prime);
        Ok(prime)
    };
    // Special primes come first: they must be the largest.
    let special = spec.groups.iter().map(|g| g.alpha).max().unwrap_or(0);
    let p = (0..special).map(|_| take(2f64.powi(spec.special_bits as i32))).collect::<Result<Vec<_>, _>>()?;
    let (mut q, mut scales) = (vec![0; levels], vec![Scale::ONE; levels]);
    let mut level = levels;
    for segment in spec.segments.iter().rev() {
        let goal = Scale::power_of_two(segment.bits);
        scales[level - 1] = goal;
        for _ in 0..segment.count {
            let product = scales[level - 1].times(scales[level - 1]);
            q[level - 1] = take(product.over(goal).to_f64())?;
            scales[level - 2] = product.over_prime(q[level - 1]);
            level -= 1;
        }
    }
    q[0] = take(2f64.powi(spec.base_bits as i32))?;
    Ok(Chain { q, p, scales })
}
