//! The one graph walk that every interpreter shares.

use crate::model::{ModelGraph, Node, NodeId};

/// An interpreter of the model graph: the plaintext reference, a protocol party, the cost model. It gives the tensor of each
/// node (its wire) from the wires of the node's inputs, and matches every `Op`.
pub trait Interpreter {
    /// What a tensor is to this interpreter.
    type Wire;
    /// Why a node failed.
    type Error;

    /// The wire of `node` from the wires of its inputs, in order. Called once for each node, in topological order.
    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Self::Wire]) -> Result<Self::Wire, Self::Error>;
}

/// Walks the graph and returns the result's wire. A wire is dropped after its last reader.
///
/// # Errors
/// Whatever the interpreter returned first.
pub fn walk<I: Interpreter>(graph: &ModelGraph, interpreter: &mut I) -> Result<I::Wire, I::Error> {
    let mut left = graph.use_counts();
    let mut wires: Vec<Option<I::Wire>> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.nodes().iter().enumerate() {
        let wire = {
            // The graph is checked when built: inputs come earlier, and a wire lives until its last reader.
            let inputs: Vec<&I::Wire> = node.inputs.iter().filter_map(|&i| wires[i].as_ref()).collect();
            debug_assert_eq!(inputs.len(), node.inputs.len());
            interpreter.node(id, node, &inputs)?
        };
        wires.push(Some(wire));
        for &i in &node.inputs {
            left[i] -= 1;
            if left[i] == 0 {
                wires[i] = None;
            }
        }
        if left[id] == 0 {
            wires[id] = None;
        }
    }
    match wires.swap_remove(graph.spec().output) {
        Some(wire) => Ok(wire),
        None => unreachable!("the result counts as a reader of its own node"),
    }
}
