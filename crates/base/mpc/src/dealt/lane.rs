//! Word types for arithmetic shares: 32 bits where all of a gate's rings fit, else 64.

use tacit_arith::prg::Prg;
use tacit_arith::ring;
use zeroize::Zeroize;

pub(super) trait Lane: Copy + Default + Send + Sync + Zeroize {
    /// The low bits of `value`.
    fn of(value: u64) -> Self;
    /// `value` in two's complement.
    fn small(value: i8) -> Self;
    /// The word with zeros above.
    fn wide(self) -> u64;
    fn plus(self, rhs: Self) -> Self;
    fn minus(self, rhs: Self) -> Self;
    fn times(self, rhs: Self) -> Self;
    fn shl(self, bits: u32) -> Self;
    /// The next column of a stream.
    fn draw(prg: &mut Prg, out: &mut [Self]);
    /// `sum += factor * column`.
    fn accumulate(sum: &mut [Self], factor: &[i8], column: &[Self]);
}

macro_rules! lane {
    ($word:ty, $signed:ty, $accumulate:path, $draw:expr) => {
        impl Lane for $word {
            #[inline(always)]
            fn of(value: u64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn small(value: i8) -> Self {
                <$signed>::from(value) as Self
            }

            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn plus(self, rhs: Self) -> Self {
                self.wrapping_add(rhs)
            }

            #[inline(always)]
            fn minus(self, rhs: Self) -> Self {
                self.wrapping_sub(rhs)
            }

            #[inline(always)]
            fn times(self, rhs: Self) -> Self {
                self.wrapping_mul(rhs)
            }

            #[inline(always)]
            fn shl(self, bits: u32) -> Self {
                self << bits
            }

            fn draw(prg: &mut Prg, out: &mut [Self]) {
                let draw: fn(&mut Prg, &mut [Self]) = $draw;
                draw(prg, out);
            }

            fn accumulate(sum: &mut [Self], factor: &[i8], column: &[Self]) {
                $accumulate(sum, factor, column);
            }
        }
    };
}

lane!(u64, i64, ring::accumulate_u64, |prg, out| prg.fill_u64(out));
lane!(u32, i32, ring::accumulate_u32, |prg, out| {
    // Each word of the stream holds two lanes.
    let mut words = [0u64; 64];
    for part in out.chunks_mut(128) {
        let words = &mut words[..part.len().div_ceil(2)];
        prg.fill_u64(words);
        for (pair, word) in part.chunks_mut(2).zip(words.iter()) {
            pair[0] = *word as u32;
            if let Some(second) = pair.get_mut(1) {
                *second = (*word >> 32) as u32;
            }
        }
    }
    words.zeroize();
});
