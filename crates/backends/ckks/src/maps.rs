//! Linear operations of the float level as matrices on their input's elements, in row-major order.

use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_graph::kernel;

use super::sparse::Sparse;

pub(super) struct Map {
    pub matrix: Sparse,
    /// An addend for each row.
    pub bias: Vec<f64>,
}

/// The map of `node` on a tensor of shape `input_shape`, if it is linear and has one input.
pub(super) fn map(node: &FloatNode, input_shape: &[usize]) -> Option<Map> {
    let (columns, rows) = (input_shape.iter().product::<usize>(), node.elements());
    match &node.op {
        FloatOp::Conv { geometry, weights, bias } => {
            let plane = rows / bias.len();
            let bias = (0..rows).map(|i| f64::from(bias[i / plane])).collect();
            Some(Map { matrix: conv(geometry, input_shape, &node.shape, weights), bias })
        }
        FloatOp::Dense { weights, bias } => {
            let entries = weights.chunks(columns).map(|w| w.iter().enumerate().map(|(c, &v)| (c as u32, v)).collect());
            let matrix = Sparse::from_rows(columns, entries);
            Some(Map { matrix, bias: bias.iter().map(|&b| b.into()).collect() })
        }
        FloatOp::Affine { scale, shift } => {
            Some(Map { matrix: Sparse::diagonal(&repeat_values(scale, rows)), bias: repeat_values(shift, rows) })
        }
        FloatOp::PositionScale(factors) => {
            let diagonal: Vec<f64> = (0..rows).map(|i| f64::from(factors[i % factors.len()])).collect();
            Some(without_bias(Sparse::diagonal(&diagonal)))
        }
        FloatOp::SumPool(window) => Some(without_bias(sum_pool(window, input_shape, &node.shape))),
        FloatOp::Slice(slice) => {
            let indices: Vec<usize> = (0..columns).collect();
            Some(without_bias(selection(columns, &kernel::slice(slice, &indices, input_shape))))
        }
        FloatOp::Pad { before, .. } => {
            let numbered: Vec<usize> = (1..=columns).collect();
            let padded = kernel::pad(before, &numbered, input_shape, &node.shape);
            let sources: Vec<Option<u32>> = padded.iter().map(|i| i.checked_sub(1).map(|i| i as u32)).collect();
            Some(without_bias(Sparse::select(columns, &sources)))
        }
        FloatOp::Reshape => Some(without_bias(Sparse::identity(columns))),
        FloatOp::Transpose(perm) => Some(without_bias(selection(columns, &kernel::transpose_index(perm, input_shape)))),
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

fn without_bias(matrix: Sparse) -> Map {
    let bias = vec![0.0; matrix.rows()];
    Map { matrix, bias }
}

fn repeat_values(values: &[f32], rows: usize) -> Vec<f64> {
    (0..rows).map(|i| f64::from(values[i / (rows / values.len())])).collect()
}

/// The matrix whose row `i` takes element `sources[i]`.
fn selection(columns: usize, sources: &[usize]) -> Sparse {
    Sparse::select(columns, &sources.iter().map(|&i| Some(i as u32)).collect::<Vec<_>>())
}

/// The input position of tap `tap` of output position `output`, if it is not padding.
fn position(output: usize, stride: usize, tap: usize, dilation: usize, pad: usize, len: usize) -> Option<usize> {
    (output * stride + tap * dilation).checked_sub(pad).filter(|p| *p < len)
}

/// Channel, row and column of element `i`.
fn coordinates(shape: &[usize], i: usize) -> [usize; 3] {
    [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]]
}

fn conv(g: &ConvGeometry, input_shape: &[usize], output_shape: &[usize], weights: &[f32]) -> Sparse {
    let rows: usize = output_shape.iter().product();
    Sparse::from_rows(
        input_shape.iter().product(),
        (0..rows).map(|i| conv_row(g, input_shape, output_shape, weights, i)),
    )
}

fn conv_row(
    g: &ConvGeometry,
    input_shape: &[usize],
    output_shape: &[usize],
    weights: &[f32],
    i: usize,
) -> Vec<(u32, f32)> {
    let (height, width, inside) = (input_shape[1], input_shape[2], input_shape[0] / g.groups);
    let [o, y, x] = coordinates(output_shape, i);
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
}

fn sum_pool(w: &Window, input_shape: &[usize], output_shape: &[usize]) -> Sparse {
    let rows: usize = output_shape.iter().product();
    Sparse::from_rows(input_shape.iter().product(), (0..rows).map(|i| sum_pool_row(w, input_shape, output_shape, i)))
}

fn sum_pool_row(w: &Window, input_shape: &[usize], output_shape: &[usize], i: usize) -> Vec<(u32, f32)> {
    let (height, width) = (input_shape[1], input_shape[2]);
    let [c, y, x] = coordinates(output_shape, i);
    let mut row = Vec::new();
    for sy in (0..w.kernel[0]).filter_map(|k| position(y, w.stride[0], k, 1, w.pads[0], height)) {
        let columns = (0..w.kernel[1]).filter_map(|k| position(x, w.stride[1], k, 1, w.pads[1], width));
        row.extend(columns.map(|sx| (((c * height + sy) * width + sx) as u32, 1.0)));
    }
    row
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
    fn matrices_match_float_level() {
        let mut rng = SplitMix::new(5);
        let mut draw = |n: usize| (0..n).map(|_| rng.range(-1.0, 1.0) as f32).collect::<Vec<f32>>();
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
            FloatOp::Conv { geometry, weights: draw(6 * 2 * 6), bias: draw(6) },
            FloatOp::Affine { scale: draw(4), shift: draw(4) },
            FloatOp::PositionScale(draw(30)),
            FloatOp::SumPool(Window { kernel: [3, 2], stride: [2, 2], pads: [1, 0, 1, 1] }),
            FloatOp::Slice(Slice { start: vec![1, 0, 1], step: vec![2, 3, 1], len: vec![2, 2, 4] }),
            FloatOp::Pad { before: vec![1, 0, 2], after: vec![0, 1, 1] },
            FloatOp::Transpose(vec![2, 0, 1]),
        ];
        for op in ops {
            let mut graph = FloatGraph::new("x", shape.to_vec()).unwrap();
            graph.output = graph.push("y", op, &[0], &[]).unwrap();
            let x = draw(120);
            let expected = run(&graph, &x).unwrap();
            let Map { matrix, bias } = map(&graph.nodes[1], &shape).unwrap();
            let doubles: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            let result: Vec<f64> = matrix.apply(&doubles).iter().zip(&bias).map(|(a, b)| a + b).collect();
            assert_eq!(result.len(), expected.len());
            let off =
                result.iter().zip(&expected).map(|(g, w)| (g - f64::from(*w)).abs()).fold(0.0, tacit_floats::larger);
            assert!(off < 1e-5, "{}: off by {off}", graph.nodes[1].op.name());
        }
    }
}
