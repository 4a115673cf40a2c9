//! Loops shared by reference interpreters over wrapping integers (`i64`) and over floats (`f32`):
//! convolution, fully connected layers, pooling windows, strided copies. Shapes are those of a
//! checked graph: `[C, H, W]` row major, or `[F]`.

use rayon::prelude::*;

use crate::geometry::{ConvGeometry, ConvPlan, Slice, Window, valid_span};
use crate::matrix;

/// Integers of this magnitude and below are exact in `f64`, and so are their sums up to this
/// magnitude.
const EXACT_LIMIT: f64 = (1u64 << 53) as f64;

/// Arithmetic of one interpreter.
pub trait Scalar: Copy + Default + PartialOrd + Send + Sync {
    /// Type of the weights.
    type Weight: Copy + Default + PartialEq + Send + Sync;
    /// Computes the convolution as a product of matrices; `None` if that would not be exact.
    fn conv_as_product(plan: &ConvPlan, input: &[Self], weights: &[Self::Weight], bias: &[Self]) -> Option<Vec<Self>>;
    /// `acc + x * w`.
    fn mac(acc: Self, x: Self, w: Self::Weight) -> Self;
    /// `a + b`.
    fn plus(a: Self, b: Self) -> Self;
}

impl Scalar for i64 {
    type Weight = i32;
    fn conv_as_product(plan: &ConvPlan, input: &[Self], weights: &[i32], bias: &[Self]) -> Option<Vec<Self>> {
        let row = weights.len() / plan.conv.out_channels;
        let heaviest = weights.par_chunks(row.max(1)).map(magnitude_sum).reduce(|| 0.0, tacit_floats::larger);
        if largest_magnitude(input) * heaviest + largest_magnitude(bias) >= EXACT_LIMIT {
            return None;
        }
        let input: Vec<f64> = input.iter().map(|&x| x as f64).collect();
        let weights: Vec<f64> = weights.par_iter().map(|&w| f64::from(w)).collect();
        let bias: Vec<f64> = bias.iter().map(|&b| b as f64).collect();
        let out = matrix::conv2d(plan, &input, &weights, &bias);
        Some(out.iter().map(|&v| v as Self).collect())
    }
    #[inline(always)]
    fn mac(acc: Self, x: Self, w: i32) -> Self {
        acc.wrapping_add(x.wrapping_mul(Self::from(w)))
    }
    #[inline(always)]
    fn plus(a: Self, b: Self) -> Self {
        a.wrapping_add(b)
    }
}

fn largest_magnitude(values: &[i64]) -> f64 {
    values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0) as f64
}

fn magnitude_sum(row: &[i32]) -> f64 {
    row.iter().map(|w| f64::from(w.unsigned_abs())).sum()
}

impl Scalar for f32 {
    type Weight = Self;
    fn conv_as_product(plan: &ConvPlan, input: &[Self], weights: &[Self], bias: &[Self]) -> Option<Vec<Self>> {
        Some(matrix::conv2d(plan, input, weights, bias))
    }
    #[inline(always)]
    fn mac(acc: Self, x: Self, w: Self) -> Self {
        acc + x * w
    }
    #[inline(always)]
    fn plus(a: Self, b: Self) -> Self {
        a + b
    }
}

/// Computes `conv` on `input` of shape `in_shape`; each output plane starts from its value of
/// `bias`.
pub fn conv2d<S: Scalar>(
    conv: &ConvGeometry,
    input: &[S],
    in_shape: &[usize],
    out_shape: &[usize],
    weights: &[S::Weight],
    bias: &[S],
) -> Vec<S> {
    let plan = ConvPlan::new(conv, in_shape, out_shape);
    let product = matrix::pays_off(&plan).then(|| S::conv_as_product(&plan, input, weights, bias)).flatten();
    product.unwrap_or_else(|| conv_in_loops(&plan, input, weights, bias))
}

fn conv_in_loops<S: Scalar>(plan: &ConvPlan, input: &[S], weights: &[S::Weight], bias: &[S]) -> Vec<S> {
    let plane = plan.out_height * plan.out_width;
    let mut out = vec![S::default(); plan.conv.out_channels * plane];
    out.par_chunks_mut(plane).enumerate().for_each(|(o, acc)| {
        acc.fill(bias[o]);
        output_plane(plan, o, input, weights, acc);
    });
    out
}

fn output_plane<S: Scalar>(plan: &ConvPlan, o: usize, input: &[S], weights: &[S::Weight], acc: &mut [S]) {
    let c = plan.conv;
    let [kh, kw] = c.kernel;
    let in_plane = plan.height * plan.width;
    let group = o / (c.out_channels / c.groups);
    let pointwise = c.kernel == [1, 1] && c.stride == [1, 1] && c.pads == [0; 4];
    for i in 0..plan.group_channels {
        let source = &input[(group * plan.group_channels + i) * in_plane..][..in_plane];
        let taps = &weights[(o * plan.group_channels + i) * kh * kw..][..kh * kw];
        if pointwise {
            axpy(acc, source, taps[0]);
            continue;
        }
        for ky in 0..kh {
            let (top, bottom) = valid_span(plan.out_height, plan.height, c.stride[0], ky * c.dilation[0], c.pads[0]);
            for kx in 0..kw {
                let w = taps[ky * kw + kx];
                if w == S::Weight::default() {
                    continue;
                }
                let (start, end) = valid_span(plan.out_width, plan.width, c.stride[1], kx * c.dilation[1], c.pads[1]);
                if start >= end {
                    continue;
                }
                for oy in top..bottom {
                    let y = oy * c.stride[0] + ky * c.dilation[0] - c.pads[0];
                    let x = start * c.stride[1] + kx * c.dilation[1] - c.pads[1];
                    let target = &mut acc[oy * plan.out_width + start..oy * plan.out_width + end];
                    let row = &source[y * plan.width + x..(y + 1) * plan.width];
                    if c.stride[1] == 1 {
                        axpy(target, row, w);
                    } else {
                        for (a, &v) in target.iter_mut().zip(row.iter().step_by(c.stride[1])) {
                            *a = S::mac(*a, v, w);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn axpy<S: Scalar>(acc: &mut [S], row: &[S], w: S::Weight) {
    for (a, &v) in acc.iter_mut().zip(row) {
        *a = S::mac(*a, v, w);
    }
}

/// Computes `weights * input + bias`, with weights `[out, in]`.
pub fn dense<S: Scalar>(input: &[S], weights: &[S::Weight], bias: &[S]) -> Vec<S> {
    let row = input.len().max(1);
    weights
        .par_chunks(row)
        .zip(bias.par_iter())
        .map(|(w, &b)| {
            // Four independent sums hide the latency of an addition.
            let mut acc = [S::default(); 4];
            let unrolled = row / 4 * 4;
            for (x, w) in input[..unrolled].chunks_exact(4).zip(w[..unrolled].chunks_exact(4)) {
                for k in 0..4 {
                    acc[k] = S::mac(acc[k], x[k], w[k]);
                }
            }
            for (&x, &w) in input[unrolled..].iter().zip(&w[unrolled..]) {
                acc[0] = S::mac(acc[0], x, w);
            }
            S::plus(S::plus(S::plus(acc[0], acc[1]), S::plus(acc[2], acc[3])), b)
        })
        .collect()
}

/// Folds each window's real (not padded) elements with `fold`. Every window has at least one.
pub fn pool<S: Scalar>(
    window: &Window,
    input: &[S],
    in_shape: &[usize],
    out_shape: &[usize],
    fold: impl Fn(S, S) -> S + Sync,
) -> Vec<S> {
    let (h, w) = (in_shape[1], in_shape[2]);
    let (oh, ow) = (out_shape[1], out_shape[2]);
    let mut out = vec![S::default(); out_shape[0] * oh * ow];
    let span = |o: usize, axis: usize, len: usize| {
        let start = o * window.stride[axis];
        let lo = start.saturating_sub(window.pads[axis]);
        let hi = (start + window.kernel[axis]).saturating_sub(window.pads[axis]).min(len);
        lo.min(hi)..hi
    };
    out.par_chunks_mut(oh * ow).zip(input.par_chunks(h * w)).for_each(|(plane, source)| {
        for oy in 0..oh {
            for ox in 0..ow {
                let mut best: Option<S> = None;
                for y in span(oy, 0, h) {
                    for &v in &source[y * w..][span(ox, 1, w)] {
                        best = Some(best.map_or(v, |b| fold(b, v)));
                    }
                }
                plane[oy * ow + ox] = best.unwrap_or_default();
            }
        }
    });
    out
}

/// Strided slice of a row-major tensor.
pub fn slice<S: Copy>(s: &Slice, input: &[S], in_shape: &[usize]) -> Vec<S> {
    let mut out = Vec::with_capacity(s.len.iter().product());
    let mut index = vec![0usize; s.len.len()];
    let strides = row_major(in_shape);
    loop {
        let source_index: usize = (0..index.len()).map(|i| (s.start[i] + index[i] * s.step[i]) * strides[i]).sum();
        out.push(input[source_index]);
        if !advance(&mut index, &s.len) {
            return out;
        }
    }
}

/// Returns for each element of the transposed tensor its position in the row-major input.
pub fn transpose_index(perm: &[usize], in_shape: &[usize]) -> Vec<usize> {
    let strides = row_major(in_shape);
    let mut index = vec![0];
    for &axis in perm {
        let steps = (0..in_shape[axis]).map(|i| i * strides[axis]);
        index = index.iter().flat_map(|&at| steps.clone().map(move |s| at + s)).collect();
    }
    index
}

/// Reorders axes: axis `i` of the result is axis `perm[i]` of the input.
pub fn transpose<S: Copy>(perm: &[usize], input: &[S], in_shape: &[usize]) -> Vec<S> {
    transpose_index(perm, in_shape).into_iter().map(|source_index| input[source_index]).collect()
}

/// Zero padding of a row-major tensor.
pub fn pad<S: Copy + Default>(before: &[usize], input: &[S], in_shape: &[usize], out_shape: &[usize]) -> Vec<S> {
    let mut out = vec![S::default(); out_shape.iter().product()];
    let strides = row_major(out_shape);
    let mut index = vec![0usize; in_shape.len()];
    for &v in input {
        let target_index: usize = (0..index.len()).map(|i| (index[i] + before[i]) * strides[i]).sum();
        out[target_index] = v;
        advance(&mut index, in_shape);
    }
    out
}

/// Multiplies by one factor, or by one per spatial position.
pub fn scale_positions<S: Scalar, F: Copy + Sync>(input: &[S], factors: &[F], mul: impl Fn(S, F) -> S) -> Vec<S> {
    input.iter().enumerate().map(|(i, &x)| mul(x, factors[i % factors.len()])).collect()
}

fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Advances to the next index in row-major order; returns false after the last.
fn advance(index: &mut [usize], shape: &[usize]) -> bool {
    for i in (0..index.len()).rev() {
        index[i] += 1;
        if index[i] < shape[i] {
            return true;
        }
        index[i] = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::conv_shape;
    use crate::rng::SplitMix;

    /// Convolution straight from its definition.
    fn schoolbook(c: &ConvGeometry, x: &[i64], s: &[usize], os: &[usize], w: &[i32], b: &[i64]) -> Vec<i64> {
        let (cg, og) = (s[0] / c.groups, c.out_channels / c.groups);
        let mut out = Vec::new();
        for (o, &start) in b.iter().enumerate() {
            for oy in 0..os[1] {
                for ox in 0..os[2] {
                    let mut acc = start;
                    for i in 0..cg {
                        for ky in 0..c.kernel[0] {
                            for kx in 0..c.kernel[1] {
                                let y = (oy * c.stride[0] + ky * c.dilation[0]) as i64 - c.pads[0] as i64;
                                let xx = (ox * c.stride[1] + kx * c.dilation[1]) as i64 - c.pads[1] as i64;
                                if y < 0 || xx < 0 || y >= s[1] as i64 || xx >= s[2] as i64 {
                                    continue;
                                }
                                let position = ((o / og) * cg + i) * s[1] * s[2] + y as usize * s[2] + xx as usize;
                                let wi = ((o * cg + i) * c.kernel[0] + ky) * c.kernel[1] + kx;
                                acc = acc.wrapping_add(x[position].wrapping_mul(i64::from(w[wi])));
                            }
                        }
                    }
                    out.push(acc);
                }
            }
        }
        out
    }

    #[test]
    fn conv_equals_schoolbook() {
        let mut rng = SplitMix::new(1);
        for round in 0..200 {
            let mut pick = |n: u64| (rng.next_u64() % n) as usize;
            let groups = 1 + pick(3);
            let (cin, cout) = (groups * (1 + pick(3)), groups * (1 + pick(3)));
            let c = ConvGeometry {
                out_channels: cout,
                kernel: [1 + pick(3), 1 + pick(4)],
                stride: [1 + pick(2), 1 + pick(3)],
                pads: [pick(3), pick(3), pick(2), pick(3)],
                groups,
                dilation: [1 + pick(2), 1 + pick(2)],
            };
            let shape = vec![cin, 5 + pick(6), 5 + pick(6)];
            let Ok(out) = conv_shape(&c, &shape) else { continue };
            let n: usize = shape.iter().product();
            let x: Vec<i64> = (0..n).map(|_| pick(2001) as i64 - 1000).collect();
            let w: Vec<i32> =
                (0..cout * cin / groups * c.kernel[0] * c.kernel[1]).map(|_| pick(201) as i32 - 100).collect();
            let b: Vec<i64> = (0..cout).map(|_| pick(1000) as i64).collect();
            let expected = schoolbook(&c, &x, &shape, &out, &w, &b);
            assert_eq!(conv2d(&c, &x, &shape, &out, &w, &b), expected, "round {round}: {c:?} on {shape:?}");
            // Both implementations, independent of the choice for these sizes.
            let plan = ConvPlan::new(&c, &shape, &out);
            assert_eq!(conv_in_loops(&plan, &x, &w, &b), expected, "round {round}: {c:?} on {shape:?} in loops");
            let product = i64::conv_as_product(&plan, &x, &w, &b);
            assert_eq!(product, Some(expected), "round {round}: {c:?} on {shape:?} as a product");
        }
    }

    /// Values that a product in `f64` would round wrap as in the loops.
    #[test]
    fn inexact_products_are_computed_in_loops() {
        let c = ConvGeometry::pointwise(8);
        let (shape, w) = ([8, 1, 1], [i32::MAX; 64]);
        let x: Vec<i64> = (0..8).map(|i| (1 << 40) + i).collect();
        let plan = ConvPlan::new(&c, &shape, &shape);
        assert!(matrix::pays_off(&plan));
        assert_eq!(i64::conv_as_product(&plan, &x, &w, &[1; 8]), None);
        assert_eq!(conv2d(&c, &x, &shape, &shape, &w, &[1; 8]), schoolbook(&c, &x, &shape, &shape, &w, &[1; 8]));
    }
}
