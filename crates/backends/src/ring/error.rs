//! What can be wrong with a fixed-point model.

use tacit_graph::{GraphError, MAX_NODES, MAX_TOTAL_ELEMENTS, NodeId};

/// What can be wrong with a fixed-point model, with the bytes of one, or with the lowering to it.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Ring width or scale out of range.
    #[error("a ring of {width} bits with {frac_bits} fraction bits is not supported")]
    FixedPoint {
        /// Stated ring width.
        width: u32,
        /// Stated fraction bits.
        frac_bits: u32,
    },
    /// No nodes, or too many.
    #[error("a graph of {count} nodes is not supported (1 to {MAX_NODES})")]
    NodeCount {
        /// Number of nodes found.
        count: usize,
    },
    /// A node does not fit.
    #[error("node {id} `{name}` ({op}): {what}")]
    Node {
        /// Index of the node.
        id: NodeId,
        /// Its name.
        name: String,
        /// Its operation.
        op: &'static str,
        /// What is wrong.
        what: String,
    },
    /// All tensors together are too large.
    #[error("the tensors of this graph have more than {MAX_TOTAL_ELEMENTS} elements in all")]
    TooLarge,
    /// The output is not a node.
    #[error("the output is node {output}, but there are {count} nodes")]
    Output {
        /// Stated output.
        output: NodeId,
        /// Number of nodes.
        count: usize,
    },
    /// The stated interface is not that of the nodes.
    #[error("the stated {what} is not that of the graph")]
    Interface {
        /// Which part.
        what: &'static str,
    },
    /// Weights for other nodes than the linear ones.
    #[error("{found} weight tensors for {needed} linear layers")]
    WeightCount {
        /// Weight tensors found.
        found: usize,
        /// Linear layers in the graph.
        needed: usize,
    },
    /// The input of an inference does not fit the model.
    #[error("input: {what}")]
    Input {
        /// What is wrong.
        what: String,
    },
    /// The bytes of a lowered model are damaged or not one.
    #[error("lowered model, {part} part: {what}")]
    Encoding {
        /// `public` or `private`.
        part: &'static str,
        /// What is wrong.
        what: String,
    },
    /// An option of the lowering out of range.
    #[error("option `{name}`: {what}")]
    Option {
        /// Its name.
        name: &'static str,
        /// The range.
        what: &'static str,
    },
    /// The values of the network fit no supported ring under the scales at hand.
    #[error("fixed point: {what}")]
    NoRing {
        /// Why.
        what: String,
    },
    /// The float network has a form that this level does not compute.
    #[error("node `{name}`: {what}")]
    Unsupported {
        /// The node.
        name: String,
        /// Which form, and what would help.
        what: &'static str,
    },
    /// The float model does not hold together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
