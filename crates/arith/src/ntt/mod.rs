//! Negacyclic number-theoretic transform over `Z_p[X]/(X^N + 1)`, and the pointwise kernels that go with it.
//!
//! The NTT domain's order is fixed (bit-reversed, then an 8x8 transposition inside each block of 64
//! coefficients, which saves the SIMD kernels a shuffle), so that values sampled in the NTT domain from a
//! seed mean the same on every machine. Kernels are chosen at run time; the portable one is the twin that
//! every other is tested against, bit for bit.

mod fma;
mod galois;
mod ifma;
mod portable;

pub use galois::Galois;

use crate::LatticeError;
use crate::cpu::Cpu;
use crate::modulus::{Modulus, Shoup};
use crate::pointwise::Pointwise;

/// Products that [`NttTable::mac`] may add up before [`NttTable::reduce_acc`]: low halves are below 2^52 and
/// the sum must fit 64 bits.
pub const MAX_ACCUMULATED: usize = 4095;

/// How a transform is computed, chosen from a [`Cpu`].
#[derive(Clone)]
enum Kernel {
    /// Plain Rust, any processor.
    Portable,
    /// Double-precision fused multiply-add: AVX2 or NEON. Both directions as doubles.
    Fma(Box<[fma::RealTwiddles; 2]>),
    /// AVX-512 with 52-bit integer multiply-add.
    Ifma,
}

/// Twiddle factors for one direction.
#[derive(Clone)]
struct Twiddles {
    /// `value[m + i]`: factor of group `i` in the stage with `m` groups (`m` a power of two below N).
    value: Vec<u64>,
    /// Shoup quotients (52 bits) of `value`.
    quotient: Vec<u64>,
    /// The factors of the three stages inside each 64-coefficient block, in the order the SIMD kernels read
    /// them: per block 14 vectors of 8 (value, quotient alternating): stage of width 4, two of width 2, four
    /// of width 1.
    block: Vec<u64>,
}

impl Twiddles {
    fn new(n: usize, modulus: &Modulus, root: u64) -> Self {
        let log_n = n.trailing_zeros();
        let mut value = vec![0; n];
        let mut power = 1;
        for k in 0..n {
            value[k.reverse_bits() >> (usize::BITS - log_n)] = power;
            power = modulus.mul(power, root);
        }
        let quotient: Vec<u64> = value.iter().map(|&w| modulus.shoup(w).quotient).collect();
        let mut block = Vec::with_capacity(n / 64 * 112);
        for b in 0..n / 64 {
            for (log_stride, groups) in [(0, n / 8), (1, n / 4), (2, n / 2)] {
                for h in 0..1 << log_stride {
                    let index = |j: usize| groups + (((b * 8 + j) << log_stride) | h);
                    block.extend((0..8).map(|j| value[index(j)]));
                    block.extend((0..8).map(|j| quotient[index(j)]));
                }
            }
        }
        Self { value, quotient, block }
    }

    #[inline(always)]
    fn at(&self, i: usize) -> Shoup {
        Shoup { value: self.value[i], quotient: self.quotient[i] }
    }
}

/// Transform of one degree and modulus. Immutable and shareable between threads.
#[derive(Clone)]
pub struct NttTable {
    degree: usize,
    modulus: Modulus,
    pointwise: Pointwise,
    kernel: Kernel,
    forward: Twiddles,
    inverse: Twiddles,
    degree_inverse: Shoup,
    /// 2^52 mod p
    radix: Shoup,
}

impl NttTable {
    /// Tables for degree `degree` (a power of two, 64 to 2^17) on the fastest kernel.
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
        let [forward, inverse] = [root, modulus.inv(root)].map(|r| Twiddles::new(degree, &modulus, r));
        let real = || Box::new([&forward, &inverse].map(|t| fma::RealTwiddles::new(t, modulus.value())));
        let kernel = match (cpu.has_ifma(), cpu.has_fma()) {
            (true, _) => Kernel::Ifma,
            (false, true) => Kernel::Fma(real()),
            (false, false) => Kernel::Portable,
        };
        Ok(Self {
            degree,
            modulus,
            pointwise: Pointwise::with_cpu(cpu, modulus),
            kernel,
            forward,
            inverse,
            degree_inverse: modulus.shoup(modulus.inv(degree as u64)),
            radix: modulus.shoup(modulus.reduce(1 << 52)),
        })
    }

    /// Number of coefficients N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The modulus.
    #[must_use]
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// The pointwise kernels modulo the same prime.
    #[must_use]
    pub fn pointwise(&self) -> &Pointwise {
        &self.pointwise
    }

    fn check(&self, lengths: &[usize]) {
        assert!(lengths.iter().all(|&l| l == self.degree), "buffers of length {lengths:?}, degree {}", self.degree);
    }

    /// Coefficients in `[0, p)` to NTT values in `[0, p)`, in place.
    ///
    /// # Panics
    /// If `x` does not have N elements.
    pub fn forward(&self, x: &mut [u64]) {
        self.check(&[x.len()]);
        match &self.kernel {
            Kernel::Portable => portable::forward(self, x),
            Kernel::Fma(real) => fma::forward(self, &real[0], x),
            Kernel::Ifma => ifma::forward(self, x),
        }
    }

    /// NTT values in `[0, p)` to coefficients in `[0, p)`, in place.
    ///
    /// # Panics
    /// If `x` does not have N elements.
    pub fn inverse(&self, x: &mut [u64]) {
        self.check(&[x.len()]);
        match &self.kernel {
            Kernel::Portable => portable::inverse(self, x),
            Kernel::Fma(real) => fma::inverse(self, &real[1], x),
            Kernel::Ifma => ifma::inverse(self, x),
        }
    }

    /// `x[i] = x[i] * y[i] mod p`, all in `[0, p)`.
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn mul_assign(&self, x: &mut [u64], y: &[u64]) {
        self.check(&[x.len(), y.len()]);
        match &self.kernel {
            Kernel::Portable | Kernel::Fma(_) => portable::mul_assign(self, x, y),
            Kernel::Ifma => ifma::mul_assign(self, x, y),
        }
    }

    /// For every pair `(a, b)` of reduced polynomials: adds the low 52 bits of `a[i] * b[i]` to `low[i]` and
    /// the rest to `high[i]`. At most [`MAX_ACCUMULATED`] products between two calls of
    /// [`NttTable::reduce_acc`].
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn mac(&self, low: &mut [u64], high: &mut [u64], pairs: &[(&[u64], &[u64])]) {
        self.check(&[low.len(), high.len()]);
        for (a, b) in pairs {
            self.check(&[a.len(), b.len()]);
        }
        match &self.kernel {
            Kernel::Portable | Kernel::Fma(_) => portable::mac(low, high, pairs),
            Kernel::Ifma => ifma::mac(low, high, pairs),
        }
    }

    /// `low[i] = low[i] + 2^52 * high[i] mod p`, in `[0, p)`; `high` becomes zero.
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn reduce_acc(&self, low: &mut [u64], high: &mut [u64]) {
        self.check(&[low.len(), high.len()]);
        match &self.kernel {
            Kernel::Portable | Kernel::Fma(_) => portable::reduce_acc(self, low, high),
            Kernel::Ifma => ifma::reduce_acc(self, low, high),
        }
    }
}

#[cfg(test)]
mod tests;
