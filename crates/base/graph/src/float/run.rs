//! The float interpreter, which is the reference for lowerings.

use super::{FloatGraph, FloatNode, FloatOp};
use crate::GraphError;
use crate::kernel;
use crate::walk::{Interpreter, NodeId, SortedGraph, walk};

/// A callback that gets each node's tensor.
pub type NodeObserver<'a> = dyn FnMut(NodeId, &FloatNode, &[f32]) + 'a;

/// Runs a sorted graph on one input of the input node's shape; returns the result's elements.
///
/// # Errors
/// If the input's length is wrong.
pub fn run(graph: &FloatGraph, input: &[f32]) -> Result<Vec<f32>, GraphError> {
    run_tapped(graph, input, &mut |_, _, _| {})
}

/// Runs the graph as [`run`] does and passes each node's tensor to `tap`, in topological order.
///
/// # Errors
/// As [`run`].
pub fn run_tapped(graph: &FloatGraph, input: &[f32], tap: &mut NodeObserver) -> Result<Vec<f32>, GraphError> {
    if input.len() != graph.nodes[0].elements() {
        return Err(GraphError::Input {
            what: format!("{} values for an input of shape {:?}", input.len(), graph.nodes[0].shape),
        });
    }
    walk(graph, &mut Reference { graph, input, tap })
}

impl SortedGraph for FloatGraph {
    type Node = FloatNode;

    fn nodes(&self) -> &[FloatNode] {
        &self.nodes
    }

    fn inputs(node: &FloatNode) -> &[NodeId] {
        &node.inputs
    }

    fn result(&self) -> NodeId {
        self.output
    }
}

struct Reference<'a, 'b> {
    graph: &'a FloatGraph,
    input: &'a [f32],
    tap: &'a mut NodeObserver<'b>,
}

impl Interpreter for Reference<'_, '_> {
    type Node = FloatNode;
    type Wire = Vec<f32>;
    type Error = GraphError;

    fn node(&mut self, id: NodeId, node: &FloatNode, inputs: &[&Vec<f32>]) -> Result<Vec<f32>, GraphError> {
        let value = compute(self.graph, node, inputs, self.input);
        (self.tap)(id, node, &value);
        Ok(value)
    }
}

fn compute(graph: &FloatGraph, node: &FloatNode, inputs: &[&Vec<f32>], input: &[f32]) -> Vec<f32> {
    let x: &[f32] = inputs.first().map_or(&[], |x| x.as_slice());
    let shape: &[usize] = node.inputs.first().map_or(&[], |&id| graph.nodes[id].shape.as_slice());
    match &node.op {
        FloatOp::Input => input.to_vec(),
        FloatOp::Conv { geometry, weights, bias } => kernel::conv2d(geometry, x, shape, &node.shape, weights, bias),
        FloatOp::Dense { weights, bias } => kernel::dense(x, weights, bias),
        FloatOp::Affine { scale, shift } => {
            let inner = x.len() / scale.len().max(1);
            x.iter().enumerate().map(|(i, v)| v * scale[i / inner] + shift[i / inner]).collect()
        }
        FloatOp::PositionScale(f) => kernel::scale_positions(x, f, |v, f| v * f),
        FloatOp::Relu => x.iter().map(|&v| tacit_floats::larger(v, 0.0)).collect(),
        FloatOp::Function(f) => x.iter().map(|v| f.value(f64::from(*v)) as f32).collect(),
        FloatOp::MaxPool(w) => kernel::pool(w, x, shape, &node.shape, tacit_floats::larger),
        FloatOp::SumPool(w) => kernel::pool(w, x, shape, &node.shape, |a, b| a + b),
        FloatOp::Add => x.iter().zip(inputs[1]).map(|(a, b)| a + b).collect(),
        FloatOp::Sub => x.iter().zip(inputs[1]).map(|(a, b)| a - b).collect(),
        FloatOp::Mul => x.iter().zip(inputs[1]).map(|(a, b)| a * b).collect(),
        FloatOp::Concat => inputs.iter().flat_map(|v| v.iter().copied()).collect(),
        FloatOp::Slice(s) => kernel::slice(s, x, shape),
        FloatOp::Pad { before, .. } => kernel::pad(before, x, shape, &node.shape),
        FloatOp::Reshape => x.to_vec(),
        FloatOp::Transpose(perm) => kernel::transpose(perm, x, shape),
        FloatOp::ArgMax => vec![tacit_floats::first_largest(x).map_or(f32::NAN, |class| class as f32)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Window;

    /// Returns the result of one operation on an input of three values (an image for windows).
    fn run_one(op: FloatOp, input: &[f32]) -> Vec<f32> {
        let shape = if matches!(op, FloatOp::ArgMax) { vec![3] } else { vec![1, 1, 3] };
        let mut graph = FloatGraph::new("x", shape).unwrap();
        graph.output = graph.push("y", op, &[0], &[]).unwrap();
        run(&graph, input).unwrap()
    }

    #[test]
    fn nan_stays_nan() {
        let window = Window { kernel: [1, 3], stride: [1, 1], pads: [0; 4] };
        for place in 0..3 {
            let mut input = [-1.0, 2.0, 2.0];
            assert_eq!(run_one(FloatOp::ArgMax, &input), [1.0]);
            input[place] = f32::NAN;
            for op in [FloatOp::MaxPool(window.clone()), FloatOp::SumPool(window.clone()), FloatOp::ArgMax] {
                let name = op.name();
                assert!(run_one(op, &input)[0].is_nan(), "{name} of {input:?}");
            }
            assert!(run_one(FloatOp::Relu, &input)[place].is_nan());
        }
    }
}
