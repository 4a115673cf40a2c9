//! Vectors of doubles that hold integers below 2^53, for the floating-point kernels. Each kernel has
//! one source, compiled for AVX2 with FMA and for arrays (NEON and tests).

/// A vector of doubles.
///
/// # Safety
/// Every function needs the instructions of its implementation and pointers to [`Lanes::LEN`] words,
/// and must be inlined into a function that enables these instructions.
pub(crate) trait Lanes: Copy {
    /// The same lanes as 64-bit integers.
    type Words: Copy;
    /// Doubles in a vector.
    const LEN: usize;
    /// A vector with `x` in every lane.
    unsafe fn splat(x: f64) -> Self;
    unsafe fn load(source: *const f64) -> Self;
    unsafe fn store(self, target: *mut f64);
    unsafe fn add(self, rhs: Self) -> Self;
    unsafe fn sub(self, rhs: Self) -> Self;
    unsafe fn mul(self, rhs: Self) -> Self;
    /// `self * factor + term`, rounded once.
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self;
    /// `self * factor - term`, rounded once.
    unsafe fn mul_sub(self, factor: Self, term: Self) -> Self;
    /// `term - self * factor`, rounded once.
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self;
    /// The nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// `self + addend` where `self` is negative.
    unsafe fn add_if_negative(self, addend: Self) -> Self;
    /// The bit patterns of the doubles.
    unsafe fn bits(self) -> Self::Words;
    /// The doubles with these bit patterns.
    unsafe fn from_bits(words: Self::Words) -> Self;
    unsafe fn splat_words(x: u64) -> Self::Words;
    unsafe fn load_words(source: *const u64) -> Self::Words;
    unsafe fn store_words(words: Self::Words, target: *mut u64);
    unsafe fn add_words(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn sub_words(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn and_words(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn or_words(a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shifts each word right by `BITS` and fills with zeros.
    unsafe fn shift_right<const BITS: i32>(a: Self::Words) -> Self::Words;
    /// `negative` where the highest bit of `sign` is set, else `non_negative`.
    unsafe fn choose(sign: Self::Words, negative: Self::Words, non_negative: Self::Words) -> Self::Words;
    /// Transposes the 8x8 matrix of doubles at `data`.
    unsafe fn transpose(data: *mut f64);
}

/// 2^52. Doubles from here to 2^53 are integers: their low 52 bits are the distance from 2^52.
pub(crate) const TWO52: f64 = 4_503_599_627_370_496.0;

/// Converts integers below 2^52 to doubles.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn to_real<V: Lanes>(words: V::Words) -> V {
    // SAFETY: by the caller.
    unsafe { V::from_bits(V::or_words(words, V::splat_words(TWO52.to_bits()))).sub(V::splat(TWO52)) }
}

/// Undoes [`to_real`].
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn to_words<V: Lanes>(x: V) -> V::Words {
    // SAFETY: by the caller.
    unsafe { V::and_words(x.add(V::splat(TWO52)).bits(), V::splat_words((1 << 52) - 1)) }
}

/// Arithmetic modulo `p < 2^50` on integers in doubles.
#[derive(Clone, Copy)]
pub(crate) struct RealModulus<V> {
    pub p: V,
    pub inverse: V,
}

impl<V: Lanes> RealModulus<V> {
    /// # Safety
    /// As [`Lanes`], for all functions here.
    #[inline(always)]
    pub(crate) unsafe fn new(p: u64) -> Self {
        // SAFETY: by the caller.
        unsafe { Self { p: V::splat(p as f64), inverse: V::splat(1.0 / p as f64) } }
    }

    /// `x mod p` for `|x| <= 2^52.2 + 4p`: in `[-0.51p, 0.51p]` for `p > 2^10`, below p in absolute
    /// value for all p. Two roundings make the quotient wrong by at most `|x| / p * 2^-52`: 0.39
    /// for p = 3.
    #[inline(always)]
    pub(crate) unsafe fn reduce(self, x: V) -> V {
        // SAFETY: by the caller.
        unsafe { x.mul(self.inverse).round().mul_sub_from(self.p, x) }
    }

    /// `x w mod p` for `|x| <= b p < 2^53` and `0 <= w < p`: at most `(0.5 + 0.375 b) p` in
    /// absolute value.
    ///
    /// The product is exactly `high + low`, where `high` is the rounded product. Before rounding to
    /// an integer, the quotient `high / p` is below `2^50 b`. Three roundings make it wrong by at
    /// most `1.5 * 2^-52 * 2^50 b`. The rest of `high` is then an integer below 2^53, so the later
    /// steps are exact.
    #[inline(always)]
    pub(crate) unsafe fn mul(self, x: V, w: V) -> V {
        // SAFETY: by the caller.
        unsafe {
            let high = x.mul(w);
            let low = x.mul_sub(w, high);
            high.mul(self.inverse).round().mul_sub_from(self.p, high).add(low)
        }
    }

    /// [`RealModulus::reduce`] twice, interleaved.
    #[inline(always)]
    pub(crate) unsafe fn reduce_two(self, [x, y]: [V; 2]) -> [V; 2] {
        // SAFETY: by the caller.
        unsafe {
            let (q, r) = (x.mul(self.inverse), y.mul(self.inverse));
            let (q, r) = (q.round(), r.round());
            [q.mul_sub_from(self.p, x), r.mul_sub_from(self.p, y)]
        }
    }

    /// [`RealModulus::mul`] twice, interleaved.
    #[inline(always)]
    pub(crate) unsafe fn mul_two(self, [x, y]: [V; 2], [w, v]: [V; 2]) -> [V; 2] {
        // SAFETY: by the caller.
        unsafe {
            let (high, second_high) = (x.mul(w), y.mul(v));
            let (q, r) = (high.mul(self.inverse), second_high.mul(self.inverse));
            let (low, second_low) = (x.mul_sub(w, high), y.mul_sub(v, second_high));
            let (q, r) = (q.round(), r.round());
            let (high, second_high) = (q.mul_sub_from(self.p, high), r.mul_sub_from(self.p, second_high));
            [high.add(low), second_high.add(second_low)]
        }
    }

    /// `x mod p` in `[0, p)` for `|x| <= 2^52.2 + 4p`.
    #[inline(always)]
    pub(crate) unsafe fn canonical(self, x: V) -> V {
        // SAFETY: by the caller.
        unsafe { self.reduce(x).add_if_negative(self.p) }
    }
}

/// Plain Rust, for NEON and for tests.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod array {
    use super::Lanes;
    use std::array::from_fn;

    impl Lanes for [f64; 4] {
        type Words = [u64; 4];
        const LEN: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            [x; 4]
        }
        #[inline(always)]
        unsafe fn load(source: *const f64) -> Self {
            // SAFETY: `source` is readable, by the caller.
            unsafe { source.cast::<Self>().read() }
        }
        #[inline(always)]
        unsafe fn store(self, target: *mut f64) {
            // SAFETY: `target` is writable, by the caller.
            unsafe { target.cast::<Self>().write(self) }
        }
        #[inline(always)]
        unsafe fn add(self, rhs: Self) -> Self {
            from_fn(|i| self[i] + rhs[i])
        }
        #[inline(always)]
        unsafe fn sub(self, rhs: Self) -> Self {
            from_fn(|i| self[i] - rhs[i])
        }
        #[inline(always)]
        unsafe fn mul(self, rhs: Self) -> Self {
            from_fn(|i| self[i] * rhs[i])
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
            from_fn(|i| self[i].mul_add(factor[i], term[i]))
        }
        #[inline(always)]
        unsafe fn mul_sub(self, factor: Self, term: Self) -> Self {
            from_fn(|i| self[i].mul_add(factor[i], -term[i]))
        }
        #[inline(always)]
        unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
            from_fn(|i| (-self[i]).mul_add(factor[i], term[i]))
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            self.map(f64::round_ties_even)
        }
        #[inline(always)]
        unsafe fn add_if_negative(self, addend: Self) -> Self {
            from_fn(|i| self[i] + if self[i].is_sign_negative() { addend[i] } else { 0.0 })
        }
        #[inline(always)]
        unsafe fn bits(self) -> [u64; 4] {
            self.map(f64::to_bits)
        }
        #[inline(always)]
        unsafe fn from_bits(words: [u64; 4]) -> Self {
            words.map(f64::from_bits)
        }
        #[inline(always)]
        unsafe fn splat_words(x: u64) -> [u64; 4] {
            [x; 4]
        }
        #[inline(always)]
        unsafe fn load_words(source: *const u64) -> [u64; 4] {
            // SAFETY: `source` is readable, by the caller.
            unsafe { source.cast::<[u64; 4]>().read() }
        }
        #[inline(always)]
        unsafe fn store_words(words: [u64; 4], target: *mut u64) {
            // SAFETY: `target` is writable, by the caller.
            unsafe { target.cast::<[u64; 4]>().write(words) }
        }
        #[inline(always)]
        unsafe fn add_words(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
            from_fn(|i| a[i].wrapping_add(b[i]))
        }
        #[inline(always)]
        unsafe fn sub_words(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
            from_fn(|i| a[i].wrapping_sub(b[i]))
        }
        #[inline(always)]
        unsafe fn and_words(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
            from_fn(|i| a[i] & b[i])
        }
        #[inline(always)]
        unsafe fn or_words(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
            from_fn(|i| a[i] | b[i])
        }
        #[inline(always)]
        unsafe fn shift_right<const BITS: i32>(a: [u64; 4]) -> [u64; 4] {
            a.map(|x| x >> BITS)
        }
        #[inline(always)]
        unsafe fn choose(sign: [u64; 4], negative: [u64; 4], non_negative: [u64; 4]) -> [u64; 4] {
            let mask = sign.map(|s| ((s as i64) >> 63) as u64);
            from_fn(|i| negative[i] & mask[i] | non_negative[i] & !mask[i])
        }
        #[inline(always)]
        unsafe fn transpose(data: *mut f64) {
            // SAFETY: the 64 words at `data` are writable, by the caller.
            let block = unsafe { &mut *data.cast::<[f64; 64]>() };
            (0..8).for_each(|i| (0..i).for_each(|j| block.swap(8 * i + j, 8 * j + i)));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    impl Lanes for __m256d {
        type Words = __m256i;
        const LEN: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            // SAFETY: AVX2 and FMA are present, by the caller (as in all functions here).
            unsafe { _mm256_set1_pd(x) }
        }
        #[inline(always)]
        unsafe fn load(source: *const f64) -> Self {
            // SAFETY: as above, and `source` is readable.
            unsafe { _mm256_loadu_pd(source) }
        }
        #[inline(always)]
        unsafe fn store(self, target: *mut f64) {
            // SAFETY: as above, and `target` is writable.
            unsafe { _mm256_storeu_pd(target, self) }
        }
        #[inline(always)]
        unsafe fn add(self, rhs: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_add_pd(self, rhs) }
        }
        #[inline(always)]
        unsafe fn sub(self, rhs: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_sub_pd(self, rhs) }
        }
        #[inline(always)]
        unsafe fn mul(self, rhs: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_mul_pd(self, rhs) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_pd(self, factor, term) }
        }
        #[inline(always)]
        unsafe fn mul_sub(self, factor: Self, term: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_fmsub_pd(self, factor, term) }
        }
        #[inline(always)]
        unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_fnmadd_pd(self, factor, term) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self) }
        }
        #[inline(always)]
        unsafe fn add_if_negative(self, addend: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_blendv_pd(self, _mm256_add_pd(self, addend), self) }
        }
        #[inline(always)]
        unsafe fn bits(self) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_castpd_si256(self) }
        }
        #[inline(always)]
        unsafe fn from_bits(words: __m256i) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_castsi256_pd(words) }
        }
        #[inline(always)]
        unsafe fn splat_words(x: u64) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_set1_epi64x(x as i64) }
        }
        #[inline(always)]
        unsafe fn load_words(source: *const u64) -> __m256i {
            // SAFETY: as above, and `source` is readable.
            unsafe { _mm256_loadu_si256(source.cast()) }
        }
        #[inline(always)]
        unsafe fn store_words(words: __m256i, target: *mut u64) {
            // SAFETY: as above, and `target` is writable.
            unsafe { _mm256_storeu_si256(target.cast(), words) }
        }
        #[inline(always)]
        unsafe fn add_words(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_add_epi64(a, b) }
        }
        #[inline(always)]
        unsafe fn sub_words(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_sub_epi64(a, b) }
        }
        #[inline(always)]
        unsafe fn and_words(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_and_si256(a, b) }
        }
        #[inline(always)]
        unsafe fn or_words(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_or_si256(a, b) }
        }
        #[inline(always)]
        unsafe fn shift_right<const BITS: i32>(a: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_srli_epi64::<BITS>(a) }
        }
        #[inline(always)]
        unsafe fn choose(sign: __m256i, negative: __m256i, non_negative: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe {
                let (negative, non_negative) = (_mm256_castsi256_pd(negative), _mm256_castsi256_pd(non_negative));
                _mm256_castpd_si256(_mm256_blendv_pd(non_negative, negative, _mm256_castsi256_pd(sign)))
            }
        }
        #[inline(always)]
        unsafe fn transpose(data: *mut f64) {
            // SAFETY: as above; all accesses are to the 64 words at `data`.
            unsafe {
                for i in 0..2 {
                    for j in 0..=i {
                        let (up, down) = (data.add(32 * j + 4 * i), data.add(32 * i + 4 * j));
                        let (upper, lower) = (load_transposed(up), load_transposed(down));
                        for k in 0..4 {
                            Self::store(upper[k], down.add(8 * k));
                            Self::store(lower[k], up.add(8 * k));
                        }
                    }
                }
            }
        }
    }

    /// Loads the 4x4 matrix at `source`, whose rows are 8 doubles apart, and transposes it.
    #[inline(always)]
    unsafe fn load_transposed(source: *const f64) -> [__m256d; 4] {
        // SAFETY: by the caller.
        unsafe {
            let (r, s): (__m256d, __m256d) = (Lanes::load(source), Lanes::load(source.add(8)));
            let (t, u): (__m256d, __m256d) = (Lanes::load(source.add(16)), Lanes::load(source.add(24)));
            let (a, b) = (_mm256_unpacklo_pd(r, s), _mm256_unpackhi_pd(r, s));
            let (c, d) = (_mm256_unpacklo_pd(t, u), _mm256_unpackhi_pd(t, u));
            [
                _mm256_permute2f128_pd::<0x20>(a, c),
                _mm256_permute2f128_pd::<0x20>(b, d),
                _mm256_permute2f128_pd::<0x31>(a, c),
                _mm256_permute2f128_pd::<0x31>(b, d),
            ]
        }
    }
}
