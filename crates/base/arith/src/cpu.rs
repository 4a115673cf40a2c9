//! The instruction sets of this processor, in one value that every kernel is chosen by.

/// Instruction sets known to be present on this CPU: whoever has the value may run the kernels that
/// need them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    aes: bool,
    double_blocks: bool,
    wide_blocks: bool,
    fma: bool,
    ifma: bool,
    wide_words: bool,
}

/// Which kernels compute modulo primes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arithmetic {
    /// Plain Rust, any processor.
    Portable,
    /// Fused multiply-add on doubles: AVX2 or NEON.
    Fma,
    /// AVX-512 with 52-bit integer multiply-add.
    Ifma,
}

impl Arithmetic {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Fma => "fma",
            Self::Ifma => "ifma",
        }
    }
}

impl Cpu {
    /// The portable kernels alone.
    pub const fn portable() -> Self {
        Self { aes: false, double_blocks: false, wide_blocks: false, fma: false, ifma: false, wide_words: false }
    }

    /// All instruction sets of this processor.
    #[cfg(target_arch = "x86_64")]
    pub fn best() -> Self {
        let aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse2");
        let wide = is_x86_feature_detected!("avx512f");
        Self {
            aes,
            double_blocks: aes && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes"),
            wide_blocks: aes
                && wide
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("vaes"),
            fma: is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            ifma: wide && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512ifma"),
            wide_words: wide && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl"),
        }
    }

    /// All instruction sets of this processor.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn best() -> Self {
        Self { fma: cfg!(target_arch = "aarch64"), ..Self::portable() }
    }

    /// Values that together choose every kernel of this processor, from the portable to the fastest,
    /// for tests and benchmarks.
    pub fn available() -> Vec<Self> {
        let best = Self::best();
        let first = Self { aes: best.aes, fma: best.fma, ..Self::portable() };
        let second = Self { double_blocks: best.double_blocks, ..first };
        let mut kernels = vec![Self::portable(), first, second, best];
        kernels.dedup();
        kernels
    }

    /// AES-NI and SSE2.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_aes(self) -> bool {
        self.aes
    }

    /// AVX2 and VAES, with AES-NI: two blocks in a vector (Zen 3, Alder Lake and later).
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_double_blocks(self) -> bool {
        self.double_blocks
    }

    /// The AVX-512 parts of the block kernels: F, BW, VL, VBMI and VAES, with AES-NI (Ice Lake, Zen
    /// 4 and later).
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_wide_blocks(self) -> bool {
        self.wide_blocks
    }

    pub(crate) const fn has_fma(self) -> bool {
        self.fma
    }

    /// The fastest kernels modulo primes. IFMA needs AVX-512 F, DQ and IFMA.
    pub(crate) const fn arithmetic(self) -> Arithmetic {
        match (self.ifma, self.fma) {
            (true, _) => Arithmetic::Ifma,
            (false, true) => Arithmetic::Fma,
            (false, false) => Arithmetic::Portable,
        }
    }

    /// AVX-512 F, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_wide_words(self) -> bool {
        self.wide_words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_kernels_go_from_portable_to_best_without_repeats() {
        let kernels = Cpu::available();
        assert_eq!((kernels[0], kernels[kernels.len() - 1]), (Cpu::portable(), Cpu::best()));
        assert!(kernels.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
