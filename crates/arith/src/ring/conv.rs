//! The kernels. The padded input is split into `stride.0 * stride.1` phase planes, so that every kernel tap is one offset into a
//! plane and all output positions of a channel form one run of words (with a few unused columns at row ends). A block of
//! output channels and [`RUN`] positions is accumulated in registers.

use super::spec::{ConvSpec, ShapeError};
use crate::cpu::Cpu;
use rayon::prelude::*;

/// Output positions in one register block: four 512-bit vectors.
const RUN: usize = 32;
/// Output channels in one register block.
const CHANNELS: usize = 4;
/// Why a window of [`RUN`] words always exists.
const WINDOW: &str = "two runs of words follow the last plane";
/// Below this many output positions a dot product per output is faster than a run.
const FEW_POSITIONS: usize = 12;

/// `weights * input` mod 2^64. Runs on the current rayon pool, over output channels.
///
/// # Errors
/// [`ShapeError`] if the shape is impossible or a slice does not fit it.
pub fn conv2d(spec: &ConvSpec, weights: &[i32], input: &[u64]) -> Result<Vec<u64>, ShapeError> {
    conv2d_on(Cpu::best(), spec, weights, input)
}

pub(super) fn conv2d_on(cpu: Cpu, spec: &ConvSpec, weights: &[i32], input: &[u64]) -> Result<Vec<u64>, ShapeError> {
    spec.check()?;
    if weights.len() != spec.weight_len() || input.len() != spec.in_len() {
        return Err(ShapeError::new("weights or input of another length", spec));
    }
    let planes = Planes::new(spec, input);
    let mut out = vec![0; spec.out_len()];
    let plane = spec.out_h() * spec.out_w();
    if plane < FEW_POSITIONS {
        few_positions(cpu, spec, &planes, weights, &mut out);
        return Ok(out);
    }
    let run = |(o, channels): (usize, &mut [u64])| match channels.len() / plane {
        CHANNELS => channel_block::<CHANNELS>(cpu, spec, &planes, weights, o, channels),
        n => (0..n).for_each(|c| {
            channel_block::<1>(cpu, spec, &planes, weights, o + c, &mut channels[c * plane..][..plane]);
        }),
    };
    // Blocks do not cross groups: each group is cut on its own.
    let group = spec.group_out();
    out.par_chunks_mut(group * plane).enumerate().for_each(|(g, part)| {
        let blocks = part.par_chunks_mut(CHANNELS * plane).enumerate();
        blocks.for_each(|(b, channels)| run((g * group + b * CHANNELS, channels)));
    });
    Ok(out)
}

/// The padded input, channel by channel and phase by phase.
struct Planes {
    words: Vec<u64>,
    width: usize,
    /// Words of one plane.
    size: usize,
    phases: usize,
}

impl Planes {
    fn new(spec: &ConvSpec, input: &[u64]) -> Self {
        let (sh, sw) = spec.stride;
        let (padded_h, padded_w) = spec.padded();
        let width = padded_w.div_ceil(sw);
        let size = padded_h.div_ceil(sh) * width;
        // Runs are rounded up to whole blocks: the last one reads (and ignores) words after the last plane.
        let mut words = vec![0; spec.in_ch * sh * sw * size + 2 * RUN];
        for (row, values) in input.chunks_exact(spec.in_w).enumerate() {
            let (c, y) = (row / spec.in_h, row % spec.in_h + spec.pads[0]);
            let line = (c * sh * sw + (y % sh) * sw) * size + (y / sh) * width;
            if sw == 1 {
                words[line + spec.pads[1]..][..values.len()].copy_from_slice(values);
                continue;
            }
            for (x, &v) in values.iter().enumerate() {
                let x = x + spec.pads[1];
                words[line + (x % sw) * size + x / sw] = v;
            }
        }
        Self { words, width, size, phases: sh * sw }
    }

    /// Where the taps of one output channel start, in the order of its weights.
    fn offsets(&self, spec: &ConvSpec, group: usize) -> Vec<usize> {
        let mut offsets = Vec::with_capacity(spec.group_in() * spec.kernel.0 * spec.kernel.1);
        for c in group * spec.group_in()..(group + 1) * spec.group_in() {
            for ky in 0..spec.kernel.0 {
                for kx in 0..spec.kernel.1 {
                    let (dy, dx) = (ky * spec.dilation.0, kx * spec.dilation.1);
                    let phase = (dy % spec.stride.0) * spec.stride.1 + dx % spec.stride.1;
                    let shift = dy / spec.stride.0 * self.width + dx / spec.stride.1;
                    offsets.push((c * self.phases + phase) * self.size + shift);
                }
            }
        }
        offsets
    }
}

/// Output channels `o .. o + C` of one group.
fn channel_block<const C: usize>(
    cpu: Cpu,
    spec: &ConvSpec,
    planes: &Planes,
    weights: &[i32],
    o: usize,
    out: &mut [u64],
) {
    let offsets = planes.offsets(spec, o / spec.group_out());
    let taps = offsets.len();
    let mut interleaved = Vec::with_capacity(taps);
    for t in 0..taps {
        let column: [u64; C] = std::array::from_fn(|c| i64::from(weights[(o + c) * taps + t]) as u64);
        interleaved.push(column);
    }
    let (out_h, out_w) = (spec.out_h(), spec.out_w());
    let last = (out_h - 1) * planes.width + out_w;
    for start in (0..last).step_by(RUN) {
        let sums = run_block(cpu, &planes.words[start..], &offsets, &interleaved);
        let (mut y, mut x, mut i) = (start / planes.width, start % planes.width, 0);
        while i < RUN && y < out_h {
            let length = (planes.width - x).min(RUN - i);
            let used = length.min(out_w.saturating_sub(x));
            for (c, sums) in sums.iter().enumerate() {
                let at = (c * out_h + y) * out_w + x.min(out_w);
                out[at..at + used].copy_from_slice(&sums[i..i + used]);
            }
            (y, x, i) = (y + 1, 0, i + length);
        }
    }
}

#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
fn run_block<const C: usize>(cpu: Cpu, words: &[u64], offsets: &[usize], weights: &[[u64; C]]) -> [[u64; RUN]; C] {
    #[cfg(target_arch = "x86_64")]
    if cpu.has_wide_words() {
        // SAFETY: AVX-512F and DQ were detected.
        return unsafe { run_block_avx512(words, offsets, weights) };
    }
    let mut sums = [[0u64; RUN]; C];
    for (&offset, column) in offsets.iter().zip(weights) {
        let window: &[u64; RUN] = words[offset..].first_chunk().expect(WINDOW);
        for (sums, &w) in sums.iter_mut().zip(column) {
            for (s, &v) in sums.iter_mut().zip(window) {
                *s = s.wrapping_add(v.wrapping_mul(w));
            }
        }
    }
    sums
}

/// # Safety
/// AVX-512F and DQ must be present.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn run_block_avx512<const C: usize>(words: &[u64], offsets: &[usize], weights: &[[u64; C]]) -> [[u64; RUN]; C] {
    use std::arch::x86_64::*;
    let mut sums = [[_mm512_setzero_si512(); RUN / 8]; C];
    for (&offset, column) in offsets.iter().zip(weights) {
        let window: &[u64; RUN] = words[offset..].first_chunk().expect(WINDOW);
        // SAFETY: vector i covers words 8 i to 8 i + 7 of the RUN words of `window`.
        let values: [__m512i; RUN / 8] =
            std::array::from_fn(|i| unsafe { _mm512_loadu_si512(window[8 * i..].as_ptr().cast()) });
        for c in 0..C {
            let w = _mm512_set1_epi64(column[c] as i64);
            for i in 0..RUN / 8 {
                sums[c][i] = _mm512_add_epi64(sums[c][i], _mm512_mullo_epi64(values[i], w));
            }
        }
    }
    let mut out = [[0; RUN]; C];
    for c in 0..C {
        for i in 0..RUN / 8 {
            // SAFETY: as for the loads.
            unsafe { _mm512_storeu_si512(out[c][8 * i..].as_mut_ptr().cast(), sums[c][i]) };
        }
    }
    out
}

/// Fully connected layers and very small images: gathers the inputs of each position, then one dot product per output.
fn few_positions(cpu: Cpu, spec: &ConvSpec, planes: &Planes, weights: &[i32], out: &mut [u64]) {
    let positions = spec.out_h() * spec.out_w();
    for group in 0..spec.groups {
        let offsets = planes.offsets(spec, group);
        let columns: Vec<Vec<u64>> = (0..positions)
            .map(|i| {
                let at = i / spec.out_w() * planes.width + i % spec.out_w();
                offsets.iter().map(|&o| planes.words[o + at]).collect()
            })
            .collect();
        let channels = group * spec.group_out();
        let part = &mut out[channels * positions..][..spec.group_out() * positions];
        part.par_chunks_mut(positions).with_min_len(16).enumerate().for_each(|(c, outputs)| {
            let row = &weights[(channels + c) * offsets.len()..][..offsets.len()];
            for (sum, column) in outputs.iter_mut().zip(&columns) {
                *sum = dot(cpu, row, column);
            }
        });
    }
}

#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
fn dot(cpu: Cpu, weights: &[i32], values: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if cpu.has_wide_words() {
        // SAFETY: AVX-512F, DQ and VL were detected.
        return unsafe { dot_avx512(weights, values) };
    }
    dot_any(weights, values)
}

#[inline(always)]
fn dot_any(weights: &[i32], values: &[u64]) -> u64 {
    let products = weights.iter().zip(values).map(|(&w, &v)| v.wrapping_mul(i64::from(w) as u64));
    products.fold(0, u64::wrapping_add)
}

/// # Safety
/// AVX-512F, DQ and VL must be present.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
unsafe fn dot_avx512(weights: &[i32], values: &[u64]) -> u64 {
    dot_any(weights, values)
}
