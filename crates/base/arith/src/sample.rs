//! Samplers. Secret values come from branch-free code; only the uniform sampler of public
//! polynomials rejects.

use crate::modulus::Modulus;
use crate::pointwise::Pointwise;
use crate::prg::{Prg, PublicSeed};
use zeroize::Zeroizing;

/// Coins per side of the centred binomial error: variance `ERROR_COINS / 2` = 10.5, standard
/// deviation 3.24 (the standard asks for at least 3.19).
pub const ERROR_COINS: u32 = 21;

/// Draws uniform words in `[0, p)`. Rejects 64-bit words at or above the largest multiple of p
/// (probability below `2^-14`); which were rejected is independent of the result.
pub fn uniform(prg: &mut Prg, modulus: &Modulus, out: &mut [u64]) {
    let (op, last) = (Pointwise::new(*modulus), last_accepted(modulus));
    let mut rejected = Vec::new();
    for (i, part) in out.chunks_mut(CHUNK).enumerate() {
        prg.fill_u64(part);
        rejected.extend(positions_above(&op, part, last).into_iter().map(|j| CHUNK * i + j));
        op.reduce(part);
    }
    // Replacements follow all other words in the stream, in order.
    rejected.into_iter().for_each(|i| out[i] = draw_accepted(prg, modulus, last));
}

fn last_accepted(modulus: &Modulus) -> u64 {
    let p = modulus.value();
    u64::MAX - (u64::MAX % p + 1) % p
}

fn positions_above(op: &Pointwise, words: &[u64], last: u64) -> Vec<usize> {
    if !op.any_above(words, last) {
        return Vec::new();
    }
    words.iter().enumerate().filter(|(_, x)| **x > last).map(|(j, _)| j).collect()
}

fn draw_accepted(prg: &mut Prg, modulus: &Modulus, last: u64) -> u64 {
    let word = std::iter::repeat_with(|| prg.next_u64()).find(|&word| word <= last);
    modulus.reduce(word.expect("a generator does not end"))
}

/// The words that [`uniform`] draws from the stream of a seed, in parts that fit the first-level
/// cache.
pub struct UniformParts {
    op: Pointwise,
    last: u64,
    words: Prg,
    /// The stream after all words; made at the first rejection.
    spare: Option<Prg>,
    seed: PublicSeed,
    total: usize,
}

impl UniformParts {
    /// Prepares to draw `total` words of `seed` in `[0, p)`, with the modulus p of `op`.
    ///
    /// # Panics
    /// If `total` is odd.
    pub fn new(op: &Pointwise, seed: PublicSeed, total: usize) -> Self {
        assert!(total.is_multiple_of(2), "words are drawn in pairs");
        Self { op: *op, last: last_accepted(op.modulus()), words: seed.stream(), spare: None, seed, total }
    }

    /// Draws the next `out.len()` words. After `total` words the content is unspecified.
    pub fn next(&mut self, out: &mut [u64]) {
        self.words.fill_u64(out);
        let rejected = positions_above(&self.op, out, self.last);
        self.op.reduce(out);
        for i in rejected {
            let spare = self.spare.get_or_insert_with(|| self.seed.stream_from(self.total as u64 / 2));
            out[i] = draw_accepted(spare, self.op.modulus(), self.last);
        }
    }
}

const CHUNK: usize = 1024;

/// `n` values of `{-1, 0, 1}`, each with probability 1/3 up to 2^-63.
#[must_use]
pub fn ternary(prg: &mut Prg, n: usize) -> Zeroizing<Vec<i64>> {
    let mut words = Zeroizing::new(vec![0u64; n]);
    prg.fill_u64(&mut words);
    Zeroizing::new(words.iter().map(|&w| ((u128::from(w) * 3) >> 64) as i64 - 1).collect())
}

/// `n` values of the centred binomial distribution with [`ERROR_COINS`] coins a side, so from -21
/// to 21.
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
    fn moments_match_the_distributions() {
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
    fn uniform_words_match_the_definition() {
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
    fn parts_match_the_whole() {
        // One word in 19,000 is rejected, as above.
        let m = Modulus::new(1_086_130_538_722_589).unwrap();
        for seed in 0..32 {
            let seed = PublicSeed::from_bytes([seed; 16]);
            let mut uncut = vec![0; 5000];
            uniform(&mut seed.stream(), &m, &mut uncut);
            let mut parts = UniformParts::new(&Pointwise::new(m), seed, uncut.len());
            let mut joined = vec![0; 5000];
            joined.chunks_mut(512).for_each(|part| parts.next(part));
            assert_eq!(joined, uncut);
        }
    }

    #[test]
    fn draws_follow_the_seed() {
        assert_eq!(*error(&mut prg(), 100), *error(&mut prg(), 100));
        assert_ne!(*error(&mut prg(), 100), *error(&mut prg().fork(1), 100));
    }
}
