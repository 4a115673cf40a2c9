//! Signed digits of integers that are given by their residues mod two primes: what switching keys multiplies.

use super::RnsBasis;
use crate::cpu::{Arithmetic, Cpu};
use crate::modulus::Shoup;

/// Words that are worked on together.
const PART: usize = 512;
/// Bits of the smaller prime, at most.
const SECOND_BITS: u32 = 16;

/// Digits of integers in `[0, p_0 p_1)`: the lower ones in `[-2^(b-1), 2^(b-1))`, the highest from 0 on.
#[derive(Clone, Copy)]
pub struct Digits {
    /// `p_0^-1 mod p_1`.
    inverse: Shoup,
    primes: [u64; 2],
    bits: u32,
    count: usize,
    arithmetic: Arithmetic,
}

impl Digits {
    /// For the first two primes of a basis and `count` digits of `bits` bits.
    ///
    /// # Panics
    /// If the first prime does not have 33 to 52 bits and the second 16 at most; if digits have fewer than 8
    /// bits, or more than the second prime has room for; if they are fewer than two, too few for the product
    /// of the primes, or so many that the highest is always 0.
    #[must_use]
    pub fn new(basis: &RnsBasis, bits: u32, count: usize) -> Self {
        Self::with_cpu(Cpu::best(), basis, bits, count)
    }

    /// As [`Digits::new`] on the fastest kernel of `cpu`.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn with_cpu(cpu: Cpu, basis: &RnsBasis, bits: u32, count: usize) -> Self {
        let primes = [0, 1].map(|i| basis.modulus(i).value());
        let product = u128::from(primes[0]) * u128::from(primes[1]);
        let fits = (1 << 32..1 << 52).contains(&primes[0]) && primes[1] < 1 << SECOND_BITS;
        let fits = fits && bits >= 8 && 1 << bits <= primes[1];
        assert!(fits, "digits of {bits} bits of a product of {primes:?}");
        let needed = 128 - (product - 1).leading_zeros();
        let last = bits * (count as u32 - 1);
        assert!(count >= 2 && (last..last + bits).contains(&(needed - 1)), "{count} digits for {needed} bits");
        let m = basis.modulus(1);
        let inverse = m.shoup(m.inv(m.reduce(primes[0])));
        Self { inverse, primes, bits, count, arithmetic: cpu.arithmetic() }
    }

    /// Digits of the integers with residues `first` and `second`, N each: `[count, 2, N]`, each digit mod
    /// both primes.
    ///
    /// # Panics
    /// If lengths differ, or are not a multiple of 64.
    pub fn of(&self, basis: &RnsBasis, [first, second]: [&[u64]; 2], out: &mut [u64]) {
        let n = first.len();
        let fits = second.len() == n && out.len() == 2 * self.count * n && n.is_multiple_of(64);
        assert!(fits, "{n} and {} words, room for {}", second.len(), out.len());
        let mut upper = [0; PART];
        let mut reduced = [0; PART];
        for from in (0..n).step_by(PART) {
            let len = PART.min(n - from);
            let (upper, reduced) = (&mut upper[..len], &mut reduced[..len]);
            // The integer is `first + p_0 upper`.
            reduced.copy_from_slice(&first[from..from + len]);
            upper.copy_from_slice(&second[from..from + len]);
            basis.table(1).pointwise().reduce(reduced);
            basis.table(1).pointwise().sub_scale(upper, reduced, self.inverse);
            self.split(&first[from..from + len], upper, out, (from, n));
        }
    }

    fn split(&self, first: &[u64], upper: &[u64], out: &mut [u64], place: (usize, usize)) {
        match self.arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Ifma => {
                #[target_feature(enable = "avx512f,avx512dq")]
                fn run(this: &Digits, first: &[u64], upper: &[u64], out: &mut [u64], place: (usize, usize)) {
                    this.split_with(first, upper, out, place);
                }
                // SAFETY: this arithmetic is chosen only where AVX-512 F and DQ were detected.
                unsafe { run(self, first, upper, out, place) }
            }
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Fma => {
                #[target_feature(enable = "avx2")]
                fn run(this: &Digits, first: &[u64], upper: &[u64], out: &mut [u64], place: (usize, usize)) {
                    this.split_with(first, upper, out, place);
                }
                // SAFETY: this arithmetic is chosen only where AVX2 was detected.
                unsafe { run(self, first, upper, out, place) }
            }
            _ => self.split_with(first, upper, out, place),
        }
    }

    /// Digits of `first + p_0 upper` into the words from `from` on of each of the `[count, 2, n]` residues.
    #[inline(always)]
    fn split_with(&self, first: &[u64], upper: &[u64], out: &mut [u64], (from, n): (usize, usize)) {
        let (bits, half, mask) = (self.bits, 1u64 << (self.bits - 1), (1u64 << self.bits) - 1);
        let halves = (0..self.count as u32 - 1).map(|i| u128::from(half) << (bits * i)).sum::<u128>();
        let low16 = (1u64 << SECOND_BITS) - 1;
        let [halves_low, halves_high] = [halves as u64 & low16, (halves >> SECOND_BITS) as u64];
        let [p_low, p_high] = [self.primes[0] & low16, self.primes[0] >> SECOND_BITS];
        // The integer, with halves added: its lowest digit, and the rest.
        let (mut lowest, mut rest) = ([0u64; PART], [0u64; PART]);
        let words = lowest.iter_mut().zip(&mut rest).zip(first.iter().zip(upper));
        for ((lowest, rest), (&x, &t)) in words {
            let low = x + p_low * t + halves_low;
            *lowest = low & mask;
            // Below 2^52 and 2^57.
            let high = p_high * t + (low >> SECOND_BITS) + halves_high;
            *rest = (high << (SECOND_BITS - bits)) | ((low & low16) >> bits);
        }
        for (i, digit) in out.chunks_exact_mut(2 * n).enumerate() {
            let last = i + 1 == self.count;
            let (less, mask) = if last { (0, u64::MAX) } else { (half, mask) };
            let (words, shift) = if i == 0 { (&lowest, 0) } else { (&rest, bits * (i as u32 - 1)) };
            let (a, b) = digit.split_at_mut(n);
            for (to, p) in [(a, self.primes[0]), (b, self.primes[1])] {
                for (to, word) in to[from..from + first.len()].iter_mut().zip(words) {
                    let digit = ((word >> shift) & mask).wrapping_sub(less);
                    // A negative one is far above p.
                    *to = digit.min(digit.wrapping_add(p));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRIMES: [u64; 2] = [1_125_899_906_826_241, 40_961];

    fn check(values: &[u128]) {
        let basis = RnsBasis::new(64, &PRIMES).unwrap();
        let residues = PRIMES.map(|p| values.iter().map(|v| (v % u128::from(p)) as u64).collect::<Vec<u64>>());
        for cpu in Cpu::available() {
            for (bits, count) in [(14, 5), (11, 6), (15, 5)] {
                let mut out = vec![7; 2 * count * values.len()];
                let digits = Digits::with_cpu(cpu, &basis, bits, count);
                digits.of(&basis, [&residues[0], &residues[1]], &mut out);
                let digit = |i: usize, at: usize| {
                    let signed = [0, 1].map(|k| basis.modulus(k).centred(out[(2 * i + k) * values.len() + at]));
                    assert_eq!(signed[0], signed[1], "digit {i}");
                    signed[0]
                };
                for (at, &value) in values.iter().enumerate() {
                    let sum: i128 = (0..count).map(|i| i128::from(digit(i, at)) << (bits as usize * i)).sum();
                    assert_eq!(sum, value as i128, "{bits} bits, {cpu:?}");
                    let half = 1i64 << (bits - 1);
                    assert!((0..count - 1).all(|i| (-half..half).contains(&digit(i, at))));
                    assert!((0..1i64 << bits).contains(&digit(count - 1, at)));
                }
            }
        }
    }

    #[test]
    fn digits_of_extreme_integers() {
        let q = u128::from(PRIMES[0]) * u128::from(PRIMES[1]);
        let near = |x: u128| [x.saturating_sub(1), x, x + 1];
        let ends = (0..66).flat_map(|bit| near(1 << bit)).chain([0, q - 1, q - 2]).filter(|&v| v < q);
        let mut values: Vec<u128> = ends.collect();
        values.resize(values.len().next_multiple_of(64), q / 2);
        check(&values);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn digits_add_up(values in prop::collection::vec(0..u128::from(PRIMES[0]) * u128::from(PRIMES[1]), 640)) {
            check(&values);
        }
    }
}
