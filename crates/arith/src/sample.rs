//! Samplers. Secret-dependent values come out of branch-free code; only the uniform sampler of public
//! polynomials rejects.

use crate::modulus::Modulus;
use crate::pointwise::Pointwise;
use crate::prg::Prg;
use zeroize::Zeroizing;

/// Coins per side of the centred binomial error: variance `ERROR_COINS / 2` = 10.5, standard deviation 3.24
/// (the standard asks for at least 3.19).
pub const ERROR_COINS: u32 = 21;

/// Exactly uniform words in `[0, p)`. Rejects 64-bit words at or above the largest multiple of p (probability
/// below `p / 2^64 <= 2^-14`); which words were rejected is independent of the result.
pub fn uniform(prg: &mut Prg, modulus: &Modulus, out: &mut [u64]) {
    let (p, op) = (modulus.value(), Pointwise::new(*modulus));
    let last = u64::MAX - (u64::MAX % p + 1) % p;
    let mut rejected = Vec::new();
    for (i, part) in out.chunks_mut(CHUNK).enumerate() {
        prg.fill_u64(part);
        if op.any_above(part, last) {
            let places = part.iter().enumerate().filter(|(_, x)| **x > last);
            rejected.extend(places.map(|(j, _)| CHUNK * i + j));
        }
        op.reduce(part);
    }
    // All words are drawn first, then those for the rejected ones, in order.
    for i in rejected {
        let word = std::iter::repeat_with(|| prg.next_u64()).find(|&word| word <= last);
        out[i] = modulus.reduce(word.expect("a generator does not end"));
    }
}

/// Words that are drawn, checked and reduced while they are in the first cache.
const CHUNK: usize = 1024;

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

    /// The definition, word by word, on streams with a word to reject among them.
    #[test]
    fn uniform_words_are_those_of_the_definition() {
        // 2^64 mod p is nearly p: one word in 19,000 is rejected.
        let m = Modulus::new(1_086_130_538_722_589).unwrap();
        let (p, mut rejections) = (m.value(), 0);
        let last = u64::MAX - (u64::MAX % p + 1) % p;
        for seed in 0..32 {
            let mut words = vec![0; 5000];
            uniform(&mut Prg::from_seed(Seed([seed; 16])), &m, &mut words);
            let mut stream = Prg::from_seed(Seed([seed; 16]));
            let mut expected = vec![0; 5000];
            stream.fill_u64(&mut expected);
            for x in &mut expected {
                while *x > last {
                    rejections += 1;
                    *x = stream.next_u64();
                }
                *x %= p;
            }
            assert_eq!(words, expected);
        }
        assert!(rejections > 0, "no word was rejected: the test needs other seeds");
    }

    #[test]
    fn draws_follow_the_seed() {
        assert_eq!(*error(&mut prg(), 100), *error(&mut prg(), 100));
        assert_ne!(*error(&mut prg(), 100), *error(&mut prg().fork(1), 100));
    }
}
