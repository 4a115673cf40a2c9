//! Samplers. Secret-dependent values come out of branch-free code; only the uniform sampler of public
//! polynomials rejects.

use crate::modulus::Modulus;
use crate::prg::Prg;
use zeroize::Zeroizing;

/// Coins per side of the centred binomial error: variance `ERROR_COINS / 2` = 10.5, standard deviation 3.24
/// (the standard asks for at least 3.19).
pub const ERROR_COINS: u32 = 21;

/// Exactly uniform words in `[0, p)`. Rejects 64-bit words at or above the largest multiple of p (probability
/// below `p / 2^64 <= 2^-14`); which words were rejected is independent of the result.
pub fn uniform(prg: &mut Prg, modulus: &Modulus, out: &mut [u64]) {
    let p = modulus.value();
    let last = u64::MAX - (u64::MAX % p + 1) % p;
    prg.fill_u64(out);
    for x in out {
        while *x > last {
            *x = prg.next_u64();
        }
        *x = modulus.reduce(*x);
    }
}

/// `n` values of `{-1, 0, 1}`, each with probability 1/3 up to 2^-63.
#[must_use]
pub fn ternary(prg: &mut Prg, n: usize) -> Zeroizing<Vec<i64>> {
    let mut words = Zeroizing::new(vec![0u64; n]);
    prg.fill_u64(&mut words);
    Zeroizing::new(words.iter().map(|&w| ((u128::from(w) * 3) >> 64) as i64 - 1).collect())
}

/// `n` values of the centred binomial distribution with [`ERROR_COINS`] coins a side: in `[-21, 21]`.
#[must_use]
pub fn error(prg: &mut Prg, n: usize) -> Zeroizing<Vec<i64>> {
    const SIDE: u64 = (1 << ERROR_COINS) - 1;
    let mut words = Zeroizing::new(vec![0u64; n]);
    prg.fill_u64(&mut words);
    let draw = |w: u64| i64::from((w & SIDE).count_ones()) - i64::from(((w >> ERROR_COINS) & SIDE).count_ones());
    Zeroizing::new(words.iter().map(|&w| draw(w)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::Seed;

    fn prg() -> Prg {
        Prg::from_seed(Seed([7; 16]))
    }

    fn moments(values: &[i64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<i64>() as f64 / n;
        (mean, values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n)
    }

    /// 2^16 draws: mean within 5 standard errors, variance within 5 %.
    #[test]
    fn moments_are_as_stated() {
        let (mean, variance) = moments(&error(&mut prg(), 1 << 16));
        assert!(mean.abs() < 5.0 * 3.24 / 256.0 && (variance / 10.5 - 1.0).abs() < 0.05, "{mean} {variance}");
        let values = ternary(&mut prg(), 1 << 16);
        let (mean, variance) = moments(&values);
        assert!(mean.abs() < 5.0 * 0.82 / 256.0 && (variance * 1.5 - 1.0).abs() < 0.05, "{mean} {variance}");
        assert!(values.iter().all(|v| (-1..=1).contains(v)));
    }

    #[test]
    fn uniform_words_are_reduced_and_spread() {
        for p in [3u64, 40961, 1_125_899_906_826_241] {
            let m = Modulus::new(p).unwrap();
            let mut out = vec![0; 30_000];
            uniform(&mut prg(), &m, &mut out);
            assert!(out.iter().all(|&v| v < p));
            let mean = out.iter().map(|&v| v as f64).sum::<f64>() / 30_000.0 / (p as f64 - 1.0);
            assert!((mean - 0.5).abs() < 0.012, "{p} {mean}");
        }
    }

    #[test]
    fn draws_follow_the_seed() {
        assert_eq!(*error(&mut prg(), 100), *error(&mut prg(), 100));
        assert_ne!(*error(&mut prg(), 100), *error(&mut prg().fork(1), 100));
    }
}
