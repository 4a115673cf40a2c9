//! Conversion between bases without computing the integers: [HPS19], with the quotient in floating
//! point.
//!
//! For `Q = q_1 .. q_k` and residues `x_i` of x, let `y_i = x_i (Q / q_i)^-1 mod q_i` and `v =
//! round(sum y_i / q_i)`. The centred representative of x is `sum y_i (Q / q_i) - v Q`, computed
//! mod each target prime.

#[cfg(target_arch = "x86_64")]
mod ifma;

use crate::LatticeError;
use crate::cpu::{Arithmetic, Cpu};
use crate::lanes::{Lanes, RealModulus, to_real};
use crate::modulus::{Modulus, Shoup};
use crate::products::{Reduction, Sum, TERMS};
use rayon::prelude::*;

/// Coefficients in a task: 8 pages of one residue.
const TASK: usize = 4096;

/// A conversion of residues modulo some distinct primes (the sources) to residues modulo others
/// (the targets). Both sets may overlap. Immutable.
///
/// The result is the residue of the representative of x in `[-Q/2, Q/2)`. Within `Q k 2^-50` of the
/// ends (k sources), it may be that of `x - Q` or `x + Q`, the same on every machine.
#[derive(Clone)]
pub struct Conversion {
    sources: Vec<Source>,
    targets: Vec<Target>,
    arithmetic: Arithmetic,
}

#[derive(Clone)]
struct Source {
    modulus: Modulus,
    /// `(Q / q_i)^-1 mod q_i`
    factor: Shoup,
    /// `1 / q_i`
    reciprocal: f64,
}

#[derive(Clone)]
struct Target {
    modulus: Modulus,
    /// `Q / q_i mod t` for each source, then `-Q mod t`.
    factors: Vec<u64>,
    /// `factors` as doubles.
    reals: Vec<f64>,
    /// `2^64 mod t`
    radix: Shoup,
    /// `2^52 mod t` and its square.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    radix52: [Shoup; 2],
    reduction: Reduction,
}

impl Conversion {
    /// Conversion from `source_moduli` to `target_moduli`, on the fastest kernel.
    ///
    /// # Errors
    /// As [`Conversion::with_cpu`].
    pub fn new(source_moduli: &[Modulus], target_moduli: &[Modulus]) -> Result<Self, LatticeError> {
        Self::with_cpu(Cpu::best(), source_moduli, target_moduli)
    }

    /// As [`Conversion::new`] on the fastest kernel of `cpu`.
    ///
    /// # Errors
    /// [`LatticeError::NoPrimes`] or [`LatticeError::Repeated`] if a set is empty or has a prime
    /// twice; [`LatticeError::Sources`] for more than 64 sources.
    pub fn with_cpu(cpu: Cpu, source_moduli: &[Modulus], target_moduli: &[Modulus]) -> Result<Self, LatticeError> {
        if source_moduli.is_empty() || target_moduli.is_empty() {
            return Err(LatticeError::NoPrimes);
        }
        for set in [source_moduli, target_moduli] {
            if let Some((_, m)) = set.iter().enumerate().find(|(i, m)| set[..*i].contains(m)) {
                return Err(LatticeError::Repeated { value: m.value() });
            }
        }
        if source_moduli.len() > MAX_SOURCES {
            return Err(LatticeError::Sources { count: source_moduli.len() });
        }
        let sources = source_moduli.iter().enumerate().map(|(i, m)| Source {
            modulus: *m,
            factor: m.shoup(m.inv(complement_product(source_moduli, i, m))),
            reciprocal: 1.0 / m.value() as f64,
        });
        let targets = target_moduli.iter().map(|m| {
            let mut factors: Vec<u64> =
                (0..source_moduli.len()).map(|i| complement_product(source_moduli, i, m)).collect();
            factors.push(m.neg(complement_product(source_moduli, source_moduli.len(), m)));
            let reals = factors.iter().map(|&c| c as f64).collect();
            let (radix, radix52) = (m.power_of_two(64), [52, 104].map(|exponent| m.power_of_two(exponent)));
            Target { modulus: *m, factors, reals, radix, radix52, reduction: Reduction::new(m) }
        });
        Ok(Self { sources: sources.collect(), targets: targets.collect(), arithmetic: cpu.arithmetic() })
    }

    /// The name of the kernel in use, for reports.
    pub fn kernel_name(&self) -> &'static str {
        self.arithmetic.name()
    }

    /// Converts `sources[i]`, residues in `[0, q_i)`, to `targets[j]`, residues in `[0, t_j)`, of
    /// any one length. Runs on the threads of the current `rayon` pool.
    ///
    /// # Panics
    /// If the number of slices is not the number of primes, or lengths differ.
    pub fn apply(&self, sources: &[&[u64]], targets: &mut [&mut [u64]]) {
        assert!(sources.len() == self.sources.len() && targets.len() == self.targets.len(), "one slice for each prime");
        let len = sources[0].len();
        let equal = sources.iter().all(|x| x.len() == len) && targets.iter().all(|x| x.len() == len);
        assert!(equal, "all residues are of as many coefficients");
        let mut tasks: Vec<(usize, Vec<&mut [u64]>)> =
            (0..len.div_ceil(TASK)).map(|i| (i * TASK, Vec::with_capacity(targets.len()))).collect();
        for residue in targets {
            tasks.iter_mut().zip(residue.chunks_mut(TASK)).for_each(|((_, parts), part)| parts.push(part));
        }
        tasks.into_par_iter().for_each(|(start, mut parts)| self.task(sources, start, &mut parts));
    }

    fn task(&self, sources: &[&[u64]], start: usize, targets: &mut [&mut [u64]]) {
        let block_end = targets[0].len() / BLOCK * BLOCK;
        let converted = match self.arithmetic {
            Arithmetic::Portable => 0,
            Arithmetic::Fma => {
                let mut scaled = vec![0.0; (self.sources.len() + 1) * BLOCK];
                for offset in (0..block_end).step_by(BLOCK) {
                    let sources = |i: usize| &sources[i][start + offset..][..BLOCK];
                    // SAFETY: this kernel is chosen only where the instructions were detected;
                    // `apply` checked that there is a slice for each prime.
                    unsafe { block(self, sources, &mut scaled, offset, targets) };
                }
                block_end
            }
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Ifma => {
                ifma::convert(&self.sources, &self.targets, sources, start, targets, block_end);
                block_end
            }
            #[cfg(not(target_arch = "x86_64"))]
            Arithmetic::Ifma => unreachable!("no other processor has these instructions"),
        };
        self.convert_one(sources, start, converted, targets);
    }

    /// Converts all coefficients from `start + offset` on, to places from `offset` on.
    fn convert_one(&self, sources: &[&[u64]], start: usize, offset: usize, targets: &mut [&mut [u64]]) {
        let mut scaled = vec![0; self.sources.len() + 1];
        for i in offset..targets[0].len() {
            let mut quotient = 0.0;
            for ((y, source), x) in scaled.iter_mut().zip(&self.sources).zip(sources) {
                *y = source.modulus.mul_shoup(x[start + i], source.factor);
                quotient += *y as f64 * source.reciprocal;
            }
            scaled[self.sources.len()] = quotient.round_ties_even() as u64;
            for (target, out) in self.targets.iter().zip(targets.iter_mut()) {
                out[i] = target.dot(&scaled);
            }
        }
    }
}

impl Target {
    /// The inner product with `factors`: at most 65 products below 2^100.
    fn dot(&self, scaled: &[u64]) -> u64 {
        let products = self.factors.iter().zip(scaled).map(|(&c, &y)| u128::from(c) * u128::from(y));
        let (sum, m) = (products.sum::<u128>(), &self.modulus);
        m.add(m.reduce(sum as u64), m.mul_shoup(m.reduce((sum >> 64) as u64), self.radix))
    }
}

/// Most source primes of one conversion.
pub const MAX_SOURCES: usize = 64;

#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m256d;
#[cfg(not(target_arch = "x86_64"))]
type Vector = [f64; 4];

/// Vectors of sums that are computed at once.
const ROW: usize = 4;

/// Coefficients that pass through all primes together: 16 sources fill half of a first-level cache.
const BLOCK: usize = 128;

/// Computes coefficients `offset` to `offset + BLOCK` of `targets` from those that `from` returns
/// of each source.
///
/// # Safety
/// The processor has the instructions of [`Vector`]. `from` returns `BLOCK` words of each source.
/// Each of `targets` has at least `offset + BLOCK` words. `scaled` has `BLOCK` doubles for each
/// source, and `BLOCK` more.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
unsafe fn block<'a>(
    conversion: &Conversion,
    from: impl Fn(usize) -> &'a [u64],
    scaled: &mut [f64],
    offset: usize,
    targets: &mut [&mut [u64]],
) {
    let sources = conversion.sources.len();
    assert!(scaled.len() == (sources + 1) * BLOCK, "a row for each source, and one for the quotients");
    let scaled = scaled.as_mut_ptr();
    // SAFETY: by the caller; the last row of `scaled` holds quotients.
    unsafe {
        let quotients = scaled.add(sources * BLOCK);
        (0..BLOCK).for_each(|k| *quotients.add(k) = 0.0);
        for (i, source) in conversion.sources.iter().enumerate() {
            let (x, m) = (from(i), RealModulus::<Vector>::new(source.modulus.value()));
            assert_eq!(x.len(), BLOCK, "as many coefficients of each source");
            let (w, reciprocal) = (Vector::splat(source.factor.value as f64), Vector::splat(source.reciprocal));
            for k in (0..BLOCK).step_by(Vector::LEN) {
                let y = m.mul(to_real(Vector::load_words(x.as_ptr().add(k))), w).add_if_negative(m.p);
                y.store(scaled.add(i * BLOCK + k));
                let sum = Vector::load(quotients.add(k)).add(y.mul(reciprocal));
                let sum = if i + 1 == sources { sum.round() } else { sum };
                sum.store(quotients.add(k));
            }
        }
        for (target, out) in conversion.targets.iter().zip(targets) {
            let out = out[offset..offset + BLOCK].as_mut_ptr();
            for k in (0..BLOCK).step_by(ROW * Vector::LEN) {
                let mut sums = [Sum::<Vector>::new(Vector::splat(0.0)); ROW];
                let mut row = 0;
                for (chunk, factors) in target.reals.chunks(TERMS).enumerate() {
                    if chunk > 0 {
                        for sum in &mut sums {
                            target.reduction.fold(sum);
                        }
                    }
                    for &factor in factors {
                        let w = Vector::splat(factor);
                        for (j, sum) in sums.iter_mut().enumerate() {
                            sum.add(Vector::load(scaled.add(row * BLOCK + k + j * Vector::LEN)), w);
                        }
                        row += 1;
                    }
                }
                for (j, &sum) in sums.iter().enumerate() {
                    Vector::store_words(target.reduction.finish(sum), out.add(k + j * Vector::LEN));
                }
            }
        }
    }
}

/// The product of all moduli but the one at `left_out`, mod m.
fn complement_product(source_moduli: &[Modulus], left_out: usize, m: &Modulus) -> u64 {
    let factors = source_moduli.iter().enumerate().filter(|(i, _)| *i != left_out);
    factors.fold(1, |r, (_, q)| m.mul(r, m.reduce(q.value())))
}
