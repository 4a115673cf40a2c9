//! The convolution kernels. The padded input is split into `stride.0 * stride.1` phase planes.
//! Every kernel tap is then one offset into a plane, and all output positions of a channel are one
//! run of words (with a few unused columns at row ends).
//!
//! Registers accumulate a block of output channels and [`RUN`] positions. Rings of up to 32 bits
//! use 32-bit words: a vector holds twice as many, and multiplies them in one instruction.

use super::spec::{ConvSpec, ShapeError};
use super::word::{RUN, Word};
use crate::cpu::Cpu;
use rayon::prelude::*;

/// Output channels in one register block.
const CHANNELS: usize = 4;
/// Below this many output positions, a dot product per output is faster than a run.
const FEW_POSITIONS: usize = 12;

/// Computes `weights * input` mod `2^bits`, for `bits` up to 64; the caller drops the bits above.
/// Runs on the current rayon pool, over output channels.
///
/// # Errors
/// [`ShapeError`] if the shape is impossible or a slice does not fit it.
pub fn conv2d(spec: &ConvSpec, weights: &[i32], input: &[u64], bits: u32) -> Result<Vec<u64>, ShapeError> {
    conv2d_on(Cpu::best(), spec, weights, input, bits)
}

pub(super) fn conv2d_on(
    cpu: Cpu,
    spec: &ConvSpec,
    weights: &[i32],
    input: &[u64],
    bits: u32,
) -> Result<Vec<u64>, ShapeError> {
    spec.check()?;
    if weights.len() != spec.weight_len() || input.len() != spec.in_len() {
        return Err(ShapeError::new("weights or input of another length", spec));
    }
    Ok(if bits <= u32::BITS {
        convolve::<u32>(cpu, spec, weights, input).into_iter().map(u64::from).collect()
    } else {
        convolve::<u64>(cpu, spec, weights, input)
    })
}

fn convolve<W: Word>(cpu: Cpu, spec: &ConvSpec, weights: &[i32], input: &[u64]) -> Vec<W> {
    let planes = Planes::<W>::new(spec, input);
    let mut out = vec![W::default(); spec.out_len()];
    let plane = spec.out_h() * spec.out_w();
    if plane < FEW_POSITIONS {
        few_positions(cpu, spec, &planes, weights, &mut out);
        return out;
    }
    // No block crosses groups.
    let group = spec.group_out();
    out.par_chunks_mut(group * plane).enumerate().for_each(|(g, part)| {
        let blocks = part.par_chunks_mut(CHANNELS * plane).enumerate();
        blocks.for_each(|(b, channels)| {
            let o = g * group + b * CHANNELS;
            match channels.len() / plane {
                CHANNELS => channel_block::<W, CHANNELS>(cpu, spec, &planes, weights, o, channels),
                n => (0..n).for_each(|c| {
                    channel_block::<W, 1>(cpu, spec, &planes, weights, o + c, &mut channels[c * plane..][..plane]);
                }),
            }
        });
    });
    out
}

/// The padded input, channel by channel and phase by phase.
struct Planes<W> {
    words: Vec<W>,
    width: usize,
    /// Words of one plane.
    size: usize,
    phases: usize,
}

impl<W: Word> Planes<W> {
    fn new(spec: &ConvSpec, input: &[u64]) -> Self {
        let (sh, sw) = spec.stride;
        let (padded_h, padded_w) = spec.padded();
        let width = padded_w.div_ceil(sw);
        let size = padded_h.div_ceil(sh) * width;
        // The last run reads (and ignores) words after the last plane.
        let mut words = vec![W::default(); spec.in_ch * sh * sw * size + 2 * RUN];
        for (row, values) in input.chunks_exact(spec.in_w).enumerate() {
            let (c, y) = (row / spec.in_h, row % spec.in_h + spec.pads[0]);
            let line = (c * sh * sw + (y % sh) * sw) * size + (y / sh) * width;
            if sw == 1 {
                let line = &mut words[line + spec.pads[1]..][..values.len()];
                line.iter_mut().zip(values).for_each(|(word, &v)| *word = W::of(v));
                continue;
            }
            for (x, &v) in values.iter().enumerate() {
                let x = x + spec.pads[1];
                words[line + (x % sw) * size + x / sw] = W::of(v);
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

/// Computes output channels `o .. o + C` of one group.
fn channel_block<W: Word, const C: usize>(
    cpu: Cpu,
    spec: &ConvSpec,
    planes: &Planes<W>,
    weights: &[i32],
    o: usize,
    out: &mut [W],
) {
    let offsets = planes.offsets(spec, o / spec.group_out());
    let taps = offsets.len();
    let mut interleaved = Vec::with_capacity(taps);
    for t in 0..taps {
        let column: [W; C] = std::array::from_fn(|c| W::of_weight(weights[(o + c) * taps + t]));
        interleaved.push(column);
    }
    let (out_h, out_w) = (spec.out_h(), spec.out_w());
    let last = (out_h - 1) * planes.width + out_w;
    for start in (0..last).step_by(RUN) {
        let sums = W::sums(cpu, &planes.words[start..], &offsets, &interleaved);
        let (mut y, mut x, mut i) = (start / planes.width, start % planes.width, 0);
        while i < RUN && y < out_h {
            let length = (planes.width - x).min(RUN - i);
            let used = length.min(out_w.saturating_sub(x));
            for (c, sums) in sums.iter().enumerate() {
                let index = (c * out_h + y) * out_w + x.min(out_w);
                out[index..index + used].copy_from_slice(&sums[i..i + used]);
            }
            (y, x, i) = (y + 1, 0, i + length);
        }
    }
}

/// Fully connected layers and very small images: one dot product per output.
fn few_positions<W: Word>(cpu: Cpu, spec: &ConvSpec, planes: &Planes<W>, weights: &[i32], out: &mut [W]) {
    let positions = spec.out_h() * spec.out_w();
    for group in 0..spec.groups {
        let offsets = planes.offsets(spec, group);
        let columns: Vec<Vec<W>> = (0..positions)
            .map(|i| {
                let index = i / spec.out_w() * planes.width + i % spec.out_w();
                offsets.iter().map(|&o| planes.words[o + index]).collect()
            })
            .collect();
        let channels = group * spec.group_out();
        let part = &mut out[channels * positions..][..spec.group_out() * positions];
        part.par_chunks_mut(positions).with_min_len(16).enumerate().for_each(|(c, outputs)| {
            let row = &weights[(channels + c) * offsets.len()..][..offsets.len()];
            for (sum, column) in outputs.iter_mut().zip(&columns) {
                *sum = W::dot(cpu, row, column);
            }
        });
    }
}
