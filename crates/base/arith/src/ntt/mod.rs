//! Negacyclic number-theoretic transform (NTT) over `Z_p[X]/(X^N + 1)`, and pointwise kernels on
//! its values.
//!
//! The order of the NTT domain is fixed, so that values sampled there from a seed mean the same on
//! every machine: bit-reversed, then an 8x8 transposition inside each block of 64 coefficients, which
//! saves the SIMD kernels a shuffle. Kernels are chosen at run time, and tested bit for bit against
//! the portable one.

mod by_halves;
mod fma;
mod galois;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod matrix;
mod portable;
mod runs;

pub use galois::Galois;
pub use matrix::MAX_NARROW;
pub use runs::SHORTEST_RUN;

use crate::LatticeError;
use crate::cpu::{Arithmetic, Cpu};
use crate::modulus::{Modulus, Shoup};
use crate::pointwise::Pointwise;

/// Most products that [`NttTable::mac`] may add up before [`NttTable::reduce_acc`]: the sum of low
/// halves, below 2^52 each, must fit 64 bits.
pub const MAX_ACCUMULATED: usize = 4095;

/// The kernel of a transform, with the factors of both directions.
#[derive(Clone)]
enum Kernel {
    Portable([Twiddles; 2]),
    Fma([fma::RealTwiddles; 2]),
    #[cfg(target_arch = "x86_64")]
    Ifma(Box<[ifma::Factors; 2]>),
}

/// Twiddle factors for one direction.
#[derive(Clone)]
struct Twiddles {
    /// `value[m + i]`: factor of group `i` in the stage with `m` groups, a power of two below N.
    value: Vec<u64>,
    /// Shoup quotients (52 bits) of `value`.
    quotient: Vec<u64>,
}

impl Twiddles {
    fn new(n: usize, modulus: &Modulus, root: u64) -> Self {
        let value = twiddle_values(n, modulus, root);
        let quotient = value.iter().map(|&w| modulus.shoup(w).quotient).collect();
        Self { value, quotient }
    }

    #[inline(always)]
    fn at(&self, i: usize) -> Shoup {
        Shoup { value: self.value[i], quotient: self.quotient[i] }
    }
}

/// The powers of `root` in bit-reversed order (see [`Twiddles::value`]).
fn twiddle_values(n: usize, modulus: &Modulus, root: u64) -> Vec<u64> {
    let mut value = vec![0; n];
    let mut power = 1;
    for k in 0..n {
        value[k.reverse_bits() >> (usize::BITS - n.trailing_zeros())] = power;
        power = modulus.mul(power, root);
    }
    value
}

/// Indices of the factors of the last three stages, as the SIMD kernels read them: for each block of
/// 64, one vector of 8 factors for the stage of width 4, two for width 2, four for width 1.
fn block_order(n: usize) -> impl Iterator<Item = usize> {
    (0..n / 64).flat_map(move |b| {
        [(0, n / 8), (1, n / 4), (2, n / 2)].into_iter().flat_map(move |(log_stride, groups)| {
            (0..1 << log_stride).flat_map(move |h| (0..8).map(move |j| groups + (((b * 8 + j) << log_stride) | h)))
        })
    })
}

/// Transform of one degree and modulus. Immutable.
#[derive(Clone)]
pub struct NttTable {
    degree: usize,
    modulus: Modulus,
    pointwise: Pointwise,
    kernel: Kernel,
    degree_inverse: Shoup,
}

impl NttTable {
    /// Builds the tables for `degree`, a power of two from 64 to 2^17, on the fastest kernel.
    ///
    /// # Errors
    /// [`LatticeError::Degree`]; [`LatticeError::NoRoot`] if `2 * degree` does not divide `p - 1`.
    pub fn new(degree: usize, modulus: Modulus) -> Result<Self, LatticeError> {
        Self::with_cpu(Cpu::best(), degree, modulus)
    }

    /// As [`NttTable::new`] on the fastest kernel of `cpu`.
    ///
    /// # Errors
    /// As [`NttTable::new`].
    pub fn with_cpu(cpu: Cpu, degree: usize, modulus: Modulus) -> Result<Self, LatticeError> {
        if !degree.is_power_of_two() || !(64..=1 << 17).contains(&degree) {
            return Err(LatticeError::Degree { degree });
        }
        let root = modulus.primitive_root(2 * degree as u64)?;
        let roots = [root, modulus.inv(root)];
        let kernel = match cpu.arithmetic() {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Ifma => Kernel::Ifma(Box::new(roots.map(|r| ifma::Factors::new(degree, &modulus, r)))),
            #[cfg(not(target_arch = "x86_64"))]
            Arithmetic::Ifma => unreachable!("no other processor has these instructions"),
            Arithmetic::Fma => Kernel::Fma(roots.map(|r| fma::RealTwiddles::new(degree, &modulus, r))),
            Arithmetic::Portable => Kernel::Portable(roots.map(|r| Twiddles::new(degree, &modulus, r))),
        };
        Ok(Self {
            degree,
            modulus,
            pointwise: Pointwise::with_cpu(cpu, modulus),
            kernel,
            degree_inverse: modulus.shoup(modulus.inv(degree as u64)),
        })
    }

    /// Number of coefficients N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The modulus.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// The pointwise kernels modulo the same prime.
    pub fn pointwise(&self) -> &Pointwise {
        &self.pointwise
    }

    /// The name of the kernel in use, for reports.
    pub fn kernel_name(&self) -> &'static str {
        self.pointwise.kernel_name()
    }

    /// Whether `(2 log2 N + 1) p` and `16 p` fit 52 bits (`SMALL` in `ifma::transform`).
    #[cfg(target_arch = "x86_64")]
    fn is_small(&self) -> bool {
        let growth = (2 * u64::from(self.degree.trailing_zeros()) + 1).max(16);
        self.modulus.value() * growth < 1 << 52
    }

    /// Panics unless all buffers have N words.
    fn check(&self, lengths: &[usize]) {
        assert!(lengths.iter().all(|&l| l == self.degree), "buffers of length {lengths:?}, degree {}", self.degree);
    }

    /// Transforms coefficients in `[0, p)` to NTT values in `[0, p)`, in place.
    ///
    /// # Panics
    /// If `x` does not have N elements.
    pub fn forward(&self, x: &mut [u64]) {
        self.check(&[x.len()]);
        match &self.kernel {
            Kernel::Portable([t, _]) => portable::forward(self, t, x),
            Kernel::Fma([t, _]) => fma::forward(self, t, x),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(transforms) => ifma::forward(self, &transforms[0], x),
        }
    }

    /// Transforms into `out` a polynomial of which only the first `width` coefficients after each
    /// multiple of R may be nonzero. Row k of N / R `columns` holds those from `k R` on, in `[0, p)`.
    /// The content of `columns` is unspecified afterwards.
    ///
    /// # Panics
    /// If `width` is not 8, 16, 32 or 64, or the number of rows is no power of two. If `columns`
    /// has more than N words, or `out` does not have N elements.
    pub fn forward_columns(&self, columns: &mut [u64], width: usize, out: &mut [u64]) {
        self.check(&[out.len()]);
        let (len, n) = (columns.len(), self.degree);
        let fits = len.is_power_of_two() && (width..=n).contains(&len);
        assert!(fits && [8, 16, 32, 64].contains(&width), "{len} words in rows of {width}, degree {n}");
        match &self.kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(transforms) => ifma::forward_columns(self, &transforms[0], columns, width, out),
            _ => {
                out.fill(0);
                let rows = out.chunks_exact_mut(n / (len / width)).zip(columns.chunks_exact(width));
                rows.for_each(|(target, row)| target[..width].copy_from_slice(row));
                self.forward(out);
            }
        }
    }

    /// Transforms NTT values in `[0, p)` to coefficients in `[0, p)`, in place.
    ///
    /// # Panics
    /// If `x` does not have N elements.
    pub fn inverse(&self, x: &mut [u64]) {
        self.check(&[x.len()]);
        match &self.kernel {
            Kernel::Portable([_, t]) => portable::inverse(self, t, x),
            Kernel::Fma([_, t]) => fma::inverse(self, t, x),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(transforms) => ifma::inverse(self, &transforms[1], x),
        }
    }

    /// Sets `x[i] = x[i] * y[i] mod p`, all in `[0, p)`.
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn mul_assign(&self, x: &mut [u64], y: &[u64]) {
        self.check(&[x.len(), y.len()]);
        self.pointwise.mul(x, y);
    }

    /// Adds `a[i] * b[i]` to `low[i] + 2^52 high[i]` for every pair `(a, b)` of reduced words;
    /// `low[i]` gets less than 2^52 of each product. At most [`MAX_ACCUMULATED`] products may be added
    /// between two calls of [`NttTable::reduce_acc`].
    ///
    /// # Panics
    /// If buffers differ in length, or their length is not a multiple of 64.
    pub fn mac(&self, low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        let len = low.len();
        let fits = len.is_multiple_of(64) && high.len() == len;
        assert!(fits && pairs.iter().all(|(a, b)| a.len() == len && b.len() == len), "buffers of length {len}");
        match &self.kernel {
            Kernel::Portable(_) => portable::mac(low, high, pairs),
            Kernel::Fma(_) => by_halves::mac(low, high, pairs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(_) => ifma::mac(low, high, pairs),
        }
    }

    /// Sets `low[i] = low[i] + 2^52 * high[i] mod p`, in `[0, p)`, and `high[i] = 0`.
    ///
    /// # Panics
    /// If the buffers differ in length, or their length is not a multiple of 64.
    pub fn reduce_acc(&self, low: &mut [u64], high: &mut [u64]) {
        assert!(low.len() == high.len() && low.len().is_multiple_of(64), "{} and {} words", low.len(), high.len());
        match &self.kernel {
            Kernel::Portable(_) => portable::reduce_acc(self, low, high),
            Kernel::Fma(_) => fma::reduce_acc(self, low, high),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma(_) => ifma::reduce_acc(self, low, high),
        }
    }
}

#[cfg(test)]
mod tests;
