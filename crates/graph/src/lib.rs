//! The typed model graph that every back end interprets: fixed-point tensors, operations, ONNX import, calibration and the
//! plaintext reference.
#![forbid(unsafe_code)]

pub mod file;
pub mod fixed;
pub mod float;
mod kernel;
pub mod model;
pub mod npy;
pub mod onnx;
pub mod op;
pub mod quant;
pub mod reference;
pub mod rewrite;
pub mod rng;
pub mod walk;
pub mod zoo;

pub use fixed::FixedPoint;
pub use model::{InputSpec, LayerWeights, ModelGraph, ModelSpec, Node, NodeId, OutputMode, Weights};
pub use op::Op;
pub use walk::{Interpreter, walk};

/// Most nodes that a graph may have.
pub const MAX_NODES: usize = 100_000;
/// Most elements that a stored array may have: weights of an ONNX file, samples.
pub const MAX_STORED_ELEMENTS: usize = 1 << 28;
/// Most elements that the tensor of a node may have.
pub const MAX_ELEMENTS: usize = 1 << 24;
/// Largest side of a kernel or pooling window, and largest padding.
pub const MAX_WINDOW_SIDE: usize = 1 << 9;
/// Most elements that all tensors of a graph may have together: what a plan allocates grows with it.
pub const MAX_TOTAL_ELEMENTS: usize = 1 << 28;

/// What can be wrong with a model.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
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
    /// The output mode and the last operation disagree.
    #[error("output mode top-1 and a final ArgMax belong together")]
    OutputMode,
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
    /// A model file, or the public section of one, is damaged or not one.
    #[error("model file, {section} section: {what}")]
    File {
        /// Part of the file.
        section: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A model file of another version.
    #[error("model file of version {found}, this program reads version {supported}: import the ONNX file again")]
    Version {
        /// Version in the file.
        found: u32,
        /// Version understood.
        supported: u32,
    },
    /// An ONNX file that cannot be read, or exceeds a limit.
    #[error("ONNX file: {what}")]
    OnnxFile {
        /// What is wrong.
        what: String,
    },
    /// A node of an ONNX file is wrong.
    #[error("ONNX node {node}: {what}")]
    OnnxNode {
        /// Name and operator.
        node: String,
        /// What is wrong.
        what: String,
    },
    /// A node of an ONNX file is not supported.
    #[error("ONNX node {node} is not supported: {help}")]
    Unsupported {
        /// Name and operator.
        node: String,
        /// Why, and what would help.
        help: String,
    },
    /// A `.npy` file cannot be read.
    #[error(".npy file: {what}")]
    Npy {
        /// What is wrong.
        what: String,
    },
    /// No fixed-point model could be made.
    #[error("quantisation: {what}")]
    Quantise {
        /// Why.
        what: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_networks_of_the_zoo_fit_the_limits() {
        // VGG-16: its first fully connected layer, its largest tensor.
        const { assert!(25_088 * 4_096 <= MAX_STORED_ELEMENTS && 64 * 224 * 224 <= MAX_ELEMENTS) };
    }
}
