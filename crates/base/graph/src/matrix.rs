//! Convolution as a product of matrices: weights `[out, in * kh * kw]` times the windows of the
//! input. The product is several times as fast as [`kernel`](crate::kernel)'s loops. The results
//! are equal where arithmetic is exact (integers in `f64`). Sums of floats are rounded in another
//! order, which depends on the processor's widest vectors.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, LinalgScalar, Slice};
use rayon::prelude::*;

use crate::geometry::{ConvPlan, valid_span};

/// Largest number of elements of windows laid out at once: 8 MB of `f64`.
const WINDOW_ELEMENTS: usize = 1 << 20;
/// Products with fewer terms, or fewer rows of weights, use the loops.
const MIN_TERMS: usize = 8;

/// Number types that the product supports.
pub trait Number: LinalgScalar + Send + Sync {}
impl Number for f32 {}
impl Number for f64 {}

/// Whether the product is worth its preparation.
pub(crate) fn pays_off(plan: &ConvPlan) -> bool {
    depth(plan) >= MIN_TERMS && plan.conv.out_channels / plan.conv.groups >= MIN_TERMS
}

/// Number of multiplications for one output element.
fn depth(plan: &ConvPlan) -> usize {
    plan.group_channels * plan.conv.kernel[0] * plan.conv.kernel[1]
}

/// Computes the convolution; each output plane starts from its value of `bias`.
pub(crate) fn conv2d<T: Number>(plan: &ConvPlan, input: &[T], weights: &[T], bias: &[T]) -> Vec<T> {
    let plane = plan.out_height * plan.out_width;
    let (groups, depth) = (plan.conv.groups, depth(plan));
    let rows = plan.conv.out_channels / groups;
    let in_group = plan.group_channels * plan.height * plan.width;
    let mut out = vec![T::zero(); plan.conv.out_channels * plane];
    out.par_chunks_mut(plane).zip(bias).for_each(|(plane, &start)| plane.fill(start));
    let lines = (WINDOW_ELEMENTS / (depth * plan.out_width).max(1)).clamp(1, plan.out_height.max(1));
    for (group, out) in out.chunks_mut(rows * plane).enumerate() {
        let source = &input[group * in_group..][..in_group];
        let weights = &weights[group * rows * depth..][..rows * depth];
        let weights = ArrayView2::from_shape((rows, depth), weights).expect("the slice has the length of the shape");
        for top in (0..plan.out_height).step_by(lines) {
            let bottom = (top + lines).min(plan.out_height);
            let windows = windows(plan, source, top, bottom);
            let columns = (bottom - top) * plan.out_width;
            let windows = ArrayView2::from_shape((depth, columns), &windows).expect("as many elements were laid out");
            add_product(out, plane, weights, windows, top * plan.out_width);
        }
    }
    out
}

/// Adds `weights * windows` to the columns of `out` (rows of `plane` elements) from column
/// `first_column` on, in parallel by rows.
fn add_product<T: Number>(
    out: &mut [T],
    plane: usize,
    weights: ArrayView2<'_, T>,
    windows: ArrayView2<'_, T>,
    first_column: usize,
) {
    let rows = weights.nrows().div_ceil(rayon::current_num_threads()).next_multiple_of(MIN_TERMS);
    out.par_chunks_mut(rows * plane).enumerate().for_each(|(part, out)| {
        let count = out.len() / plane;
        let mut out = ArrayViewMut2::from_shape((count, plane), out).expect("whole rows were cut off");
        out.slice_axis_inplace(Axis(1), Slice::from(first_column..first_column + windows.ncols()));
        let weights = weights.slice_axis(Axis(0), Slice::from(part * rows..part * rows + count));
        general_mat_mul(T::one(), &weights, &windows, T::one(), &mut out);
    });
}

/// Returns the windows of output lines `top..bottom` as a matrix
/// `[in * kh * kw, (bottom - top) * out_width]`, with zeros for padding.
fn windows<T: Number>(plan: &ConvPlan, source: &[T], top: usize, bottom: usize) -> Vec<T> {
    let c = plan.conv;
    let [kh, kw] = c.kernel;
    let width = plan.out_width;
    let columns = (bottom - top) * width;
    let mut laid_out = vec![T::zero(); depth(plan) * columns];
    laid_out.par_chunks_mut(columns.max(1)).enumerate().for_each(|(tap, row)| {
        let (ky, kx) = (tap / kw % kh, tap % kw);
        let source = &source[tap / (kh * kw) * plan.height * plan.width..][..plan.height * plan.width];
        let (first_row, last_row) =
            valid_span(plan.out_height, plan.height, c.stride[0], ky * c.dilation[0], c.pads[0]);
        let (start, end) = valid_span(width, plan.width, c.stride[1], kx * c.dilation[1], c.pads[1]);
        if start >= end {
            return;
        }
        for line in first_row.max(top)..last_row.min(bottom) {
            let y = line * c.stride[0] + ky * c.dilation[0] - c.pads[0];
            let x = start * c.stride[1] + kx * c.dilation[1] - c.pads[1];
            let source_row = &source[y * plan.width + x..(y + 1) * plan.width];
            let target = &mut row[(line - top) * width + start..(line - top) * width + end];
            if c.stride[1] == 1 {
                target.copy_from_slice(&source_row[..target.len()]);
            } else {
                target.iter_mut().zip(source_row.iter().step_by(c.stride[1])).for_each(|(slot, value)| *slot = *value);
            }
        }
    });
    laid_out
}
