//! Measures this machine's rates in the kernels of ciphertext operations.

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::NttTable;
use tacit_arith::rns::Conversion;

/// Words of a copy that exceeds the caches.
const COPIED_WORDS: usize = 1 << 24;
const SOURCES: usize = 8;
const TARGETS: usize = 15;

/// Rates of one thread.
pub struct Machine {
    /// Seconds of a forward transform with a prime just below 2^50.
    pub ntt_s: f64,
    /// Bytes a second of a copy, reads and writes both counted.
    pub memory: f64,
    /// Products a second in a conversion from 8 primes to 15.
    conversion: f64,
    kernel: &'static str,
}

/// Returns the shortest of at least `runs` runs, repeated for at least a tenth of a second.
pub fn best(runs: usize, mut run: impl FnMut()) -> f64 {
    let (start, mut best, mut rounds) = (Instant::now(), Duration::MAX, 0);
    while rounds < runs || start.elapsed() < Duration::from_millis(100) {
        let start_of_round = Instant::now();
        run();
        best = best.min(start_of_round.elapsed());
        rounds += 1;
    }
    best.as_secs_f64()
}

/// Returns primes just below `2^50` that are 1 mod 2^17.
fn primes() -> Vec<Modulus> {
    let candidates = (1..).map(|k| (1u64 << 50) + 1 - (k << 17));
    candidates.filter_map(|p| Modulus::new(p).ok()).take(SOURCES + TARGETS).collect()
}

/// Measures a forward transform of `degree` words mod a prime just below 2^50 on one thread,
/// seconds.
///
/// # Errors
/// None in practice: the prime suits every supported degree.
pub fn ntt_s(degree: usize) -> anyhow::Result<f64> {
    let prime = primes()[0];
    let table = NttTable::new(degree, prime)?;
    let mut words: Vec<u64> = (0..degree as u64).map(|i| prime.reduce(i * 0x9E37_79B9)).collect();
    Ok(best(20, || table.forward(black_box(&mut words))))
}

impl Machine {
    /// Measures the rates for transforms of `degree` words, on one thread.
    ///
    /// # Errors
    /// None in practice: the primes suit every supported degree.
    pub fn measure(degree: usize) -> anyhow::Result<Self> {
        let primes = primes();
        let table = NttTable::new(degree, primes[0])?;
        let words: Vec<u64> = (0..degree as u64).map(|i| primes[0].reduce(i * 0x9E37_79B9)).collect();
        let (source, mut target) = (vec![1u64; COPIED_WORDS], vec![0u64; COPIED_WORDS]);
        let memory = 16.0 * COPIED_WORDS as f64 / best(3, || black_box(&mut target).copy_from_slice(&source));
        let conversion = Conversion::new(&primes[..SOURCES], &primes[SOURCES..])?;
        let residues = vec![words; SOURCES];
        let residues: Vec<&[u64]> = residues.iter().map(Vec::as_slice).collect();
        let mut targets = vec![vec![0; degree]; TARGETS];
        let mut targets: Vec<&mut [u64]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
        let seconds = best(5, || conversion.apply(&residues, black_box(&mut targets)));
        let products = (degree * SOURCES * TARGETS) as f64;
        Ok(Self { ntt_s: ntt_s(degree)?, memory, conversion: products / seconds, kernel: table.kernel_name() })
    }

    /// Returns the rates as JSON.
    pub fn to_json(&self, degree: usize) -> Value {
        json!({
            "degree": degree,
            "kernel": self.kernel,
            "ntt_us": self.ntt_s * 1e6,
            "memory_gb_s": self.memory / 1e9,
            "conversion_products_per_ns": self.conversion / 1e9,
        })
    }
}
