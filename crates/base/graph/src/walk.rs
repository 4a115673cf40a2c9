//! The graph walk that every interpreter of every level shares.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Index of a node in its graph.
pub type NodeId = usize;

/// A graph whose nodes are in topological order: a node's inputs have smaller indices than the
/// node.
pub trait SortedGraph {
    /// One operation with its result tensor.
    type Node;

    /// Nodes in topological order; the first is the input.
    fn nodes(&self) -> &[Self::Node];
    /// Nodes whose tensors a node reads.
    fn inputs(node: &Self::Node) -> &[NodeId];
    /// The node whose tensor is the result.
    fn result(&self) -> NodeId;

    /// Returns for each node the number of times that it is read (the result counts as read once
    /// more).
    fn use_counts(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes().len()];
        self.nodes().iter().flat_map(Self::inputs).for_each(|&i| uses[i] += 1);
        uses[self.result()] += 1;
        uses
    }
}

/// An interpreter of a graph: a plaintext reference, a protocol party, an error bound. An
/// interpreter computes the tensor of each node (its wire) from the wires of the node's inputs, and
/// handles every operation.
pub trait Interpreter {
    /// Nodes of the graph level of this interpreter.
    type Node;
    /// The interpreter's representation of a tensor.
    type Wire;
    /// The error of a node.
    type Error;

    /// Returns the wire of `node` from the wires of its inputs, in order. Called once for each
    /// node, in topological order.
    ///
    /// # Errors
    /// The errors of the interpreter.
    fn node(&mut self, id: NodeId, node: &Self::Node, inputs: &[&Self::Wire]) -> Result<Self::Wire, Self::Error>;
}

/// Walks the graph and returns the result's wire. A wire is dropped after its last reader.
///
/// # Errors
/// The first error of the interpreter.
pub fn walk<G, I>(graph: &G, interpreter: &mut I) -> Result<I::Wire, I::Error>
where
    G: SortedGraph,
    I: Interpreter<Node = G::Node>,
{
    let mut uses_left = graph.use_counts();
    let mut wires: Vec<Option<I::Wire>> = Vec::with_capacity(uses_left.len());
    for (id, node) in graph.nodes().iter().enumerate() {
        let wire = {
            let inputs = G::inputs(node)
                .iter()
                .map(|&i| wires[i].as_ref().expect("inputs come earlier, and live until their last reader"));
            interpreter.node(id, node, &inputs.collect::<Vec<_>>())?
        };
        wires.push(Some(wire));
        for &i in G::inputs(node) {
            uses_left[i] -= 1;
            if uses_left[i] == 0 {
                wires[i] = None;
            }
        }
        if uses_left[id] == 0 {
            wires[id] = None;
        }
    }
    Ok(wires.swap_remove(graph.result()).expect("the result counts as a reader of its own node"))
}

/// Returns the used nodes, each behind those that it reads, by index if possible. `readers` are those of
/// each node, `unread` the number of inputs of each. Nodes of a cycle and behind it are missing.
pub(crate) fn topological_order(used: &[bool], readers: &[Vec<NodeId>], mut unread: Vec<usize>) -> Vec<NodeId> {
    let mut ready: BinaryHeap<_> = (0..used.len()).filter(|&i| used[i] && unread[i] == 0).map(Reverse).collect();
    let mut order = Vec::new();
    while let Some(Reverse(id)) = ready.pop() {
        order.push(id);
        for &reader in readers[id].iter().filter(|&&reader| used[reader]) {
            unread[reader] -= 1;
            if unread[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose nodes are lists of their inputs; the wire of a node is the number of paths
    /// from the input.
    struct Paths(Vec<Vec<NodeId>>);

    impl SortedGraph for Paths {
        type Node = Vec<NodeId>;
        fn nodes(&self) -> &[Vec<NodeId>] {
            &self.0
        }
        fn inputs(node: &Vec<NodeId>) -> &[NodeId] {
            node
        }
        fn result(&self) -> NodeId {
            self.0.len() - 2
        }
    }

    struct Count(Vec<NodeId>);

    impl Interpreter for Count {
        type Node = Vec<NodeId>;
        type Wire = u64;
        type Error = NodeId;
        fn node(&mut self, id: NodeId, node: &Vec<NodeId>, inputs: &[&u64]) -> Result<u64, NodeId> {
            self.0.push(id);
            match inputs {
                [] if id > 0 => Err(id),
                [] => Ok(1),
                _ => Ok(node.iter().zip(inputs).map(|(_, w)| **w).sum()),
            }
        }
    }

    #[test]
    fn every_node_is_walked_once_in_order_and_the_result_is_kept() {
        // The result is read by a node behind it, and one node reads the same tensor twice.
        let graph = Paths(vec![vec![], vec![0, 0], vec![0, 1], vec![2, 1]]);
        let mut count = Count(vec![]);
        assert_eq!(walk(&graph, &mut count), Ok(3));
        assert_eq!(count.0, [0, 1, 2, 3]);
        assert_eq!(graph.use_counts(), [3, 2, 2, 0]);
    }

    #[test]
    fn the_first_error_ends_the_walk() {
        let graph = Paths(vec![vec![], vec![0], vec![], vec![1, 2]]);
        let mut count = Count(vec![]);
        assert_eq!(walk(&graph, &mut count), Err(2));
        assert_eq!(count.0, [0, 1, 2]);
    }
}
