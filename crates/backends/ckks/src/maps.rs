//! Linear operations of the float level as matrices on their input's elements, in row-major order.

use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_graph::kernel;

use super::sparse::Sparse;

/// A matrix, and an addend for each row.
pub(super) type Map = (Sparse, Vec<f64>);

/// Returns the map of `node` on a tensor of shape `from`, if it is linear and has one input.
pub(super) fn map(node: &FloatNode, from: &[usize]) -> Option<Map> {
    let (columns, rows) = (from.iter().product::<usize>(), node.elements());
    let plain = |matrix: Sparse| Some((matrix, vec![0.0; rows]));
    let indices = || (0..columns).collect::<Vec<usize>>();
    match &node.op {
        FloatOp::Conv { geometry, weights, bias } => {
            let plane = rows / bias.len();
            let bias = (0..rows).map(|i| f64::from(bias[i / plane])).collect();
            Some((conv(geometry, from, &node.shape, weights), bias))
        }
        FloatOp::Dense { weights, bias } => {
            let row = |w: &[f32]| w.iter().enumerate().map(|(c, &v)| (c as u32, v)).collect();
            let matrix = Sparse::from_rows(columns, weights.chunks(columns).map(row));
            Some((matrix, bias.iter().map(|&b| b.into()).collect()))
        }
        FloatOp::Affine { scale, shift } => {
            let spread = |v: &[f32]| (0..rows).map(|i| f64::from(v[i / (rows / v.len())])).collect::<Vec<f64>>();
            Some((Sparse::diagonal(&spread(scale)), spread(shift)))
        }
        FloatOp::PositionScale(factors) => {
            let factor = |i: usize| f64::from(factors[i % factors.len()]);
            plain(Sparse::diagonal(&(0..rows).map(factor).collect::<Vec<f64>>()))
        }
        FloatOp::SumPool(window) => plain(sum_pool(window, from, &node.shape)),
        FloatOp::Slice(slice) => plain(taken(columns, &kernel::slice(slice, &indices(), from))),
        FloatOp::Pad { before, .. } => {
            let numbered: Vec<usize> = (1..=columns).collect();
            let padded = kernel::pad(before, &numbered, from, &node.shape);
            let source = |i: &usize| i.checked_sub(1).map(|i| i as u32);
            plain(Sparse::select(columns, &padded.iter().map(source).collect::<Vec<_>>()))
        }
        FloatOp::Reshape => plain(Sparse::identity(columns)),
        FloatOp::Transpose(perm) => plain(taken(columns, &kernel::transpose_index(perm, from))),
        FloatOp::Input
        | FloatOp::Relu
        | FloatOp::Function(_)
        | FloatOp::MaxPool(_)
        | FloatOp::Add
        | FloatOp::Sub
        | FloatOp::Mul
        | FloatOp::Concat
        | FloatOp::ArgMax => None,
    }
}

fn taken(columns: usize, from: &[usize]) -> Sparse {
    Sparse::select(columns, &from.iter().map(|&i| Some(i as u32)).collect::<Vec<_>>())
}

/// Returns the input position of tap `tap` of output position `at`, if it is not padding.
fn position(at: usize, stride: usize, tap: usize, dilation: usize, pad: usize, len: usize) -> Option<usize> {
    (at * stride + tap * dilation).checked_sub(pad).filter(|p| *p < len)
}

fn conv(g: &ConvGeometry, from: &[usize], to: &[usize], weights: &[f32]) -> Sparse {
    let (height, width, inside) = (from[1], from[2], from[0] / g.groups);
    let row = |i: usize| {
        let (o, y, x) = (i / (to[1] * to[2]), i / to[2] % to[1], i % to[2]);
        let first = o / (g.out_channels / g.groups) * inside;
        let mut row = Vec::with_capacity(inside * g.kernel[0] * g.kernel[1]);
        for c in 0..inside {
            for ky in 0..g.kernel[0] {
                let Some(sy) = position(y, g.stride[0], ky, g.dilation[0], g.pads[0], height) else { continue };
                for kx in 0..g.kernel[1] {
                    let Some(sx) = position(x, g.stride[1], kx, g.dilation[1], g.pads[1], width) else { continue };
                    let weight = weights[((o * inside + c) * g.kernel[0] + ky) * g.kernel[1] + kx];
                    row.push(((((first + c) * height + sy) * width + sx) as u32, weight));
                }
            }
        }
        row
    };
    Sparse::from_rows(from.iter().product(), (0..to.iter().product()).map(row))
}

fn sum_pool(w: &Window, from: &[usize], to: &[usize]) -> Sparse {
    let (height, width) = (from[1], from[2]);
    let row = |i: usize| {
        let (c, y, x) = (i / (to[1] * to[2]), i / to[2] % to[1], i % to[2]);
        let rows = (0..w.kernel[0]).filter_map(|k| position(y, w.stride[0], k, 1, w.pads[0], height));
        let columns = |k: usize| position(x, w.stride[1], k, 1, w.pads[1], width);
        rows.flat_map(|sy| (0..w.kernel[1]).filter_map(columns).map(move |sx| (sy, sx)))
            .map(|(sy, sx)| (((c * height + sy) * width + sx) as u32, 1.0))
            .collect()
    };
    Sparse::from_rows(from.iter().product(), (0..to.iter().product()).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_graph::FloatGraph;
    use tacit_graph::float::run::run;
    use tacit_graph::geometry::Slice;
    use tacit_graph::rng::SplitMix;

    /// Each linear operation on an image: the matrix agrees with the float level.
    #[test]
    fn matrices_are_what_the_float_level_computes() {
        let mut rng = SplitMix::new(5);
        let mut some = |n: usize| (0..n).map(|_| rng.range(-1.0, 1.0) as f32).collect::<Vec<f32>>();
        let shape = [4, 6, 5];
        let geometry = ConvGeometry {
            out_channels: 6,
            kernel: [3, 2],
            stride: [2, 1],
            dilation: [1, 2],
            pads: [1, 0, 2, 1],
            groups: 2,
        };
        let ops = vec![
            FloatOp::Conv { geometry, weights: some(6 * 2 * 6), bias: some(6) },
            FloatOp::Affine { scale: some(4), shift: some(4) },
            FloatOp::PositionScale(some(30)),
            FloatOp::SumPool(Window { kernel: [3, 2], stride: [2, 2], pads: [1, 0, 1, 1] }),
            FloatOp::Slice(Slice { start: vec![1, 0, 1], step: vec![2, 3, 1], len: vec![2, 2, 4] }),
            FloatOp::Pad { before: vec![1, 0, 2], after: vec![0, 1, 1] },
            FloatOp::Transpose(vec![2, 0, 1]),
        ];
        for op in ops {
            let mut graph = FloatGraph::new("x", shape.to_vec()).unwrap();
            graph.output = graph.push("y", op, &[0], &[]).unwrap();
            let x = some(120);
            let wanted = run(&graph, &x).unwrap();
            let (matrix, bias) = map(&graph.nodes[1], &shape).unwrap();
            let doubles: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            let got: Vec<f64> = matrix.apply(&doubles).iter().zip(&bias).map(|(a, b)| a + b).collect();
            assert_eq!(got.len(), wanted.len());
            let off = got.iter().zip(&wanted).map(|(g, w)| (g - f64::from(*w)).abs()).fold(0.0, tacit_floats::larger);
            assert!(off < 1e-5, "{}: off by {off}", graph.nodes[1].op.name());
        }
    }
}
