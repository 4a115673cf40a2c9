//! The float level of a model: ONNX import, rewrites that no protocol needs to know, calibration statistics,
//! the owner's model file, and the float reference that every lowering is compared with. Nothing here knows
//! rings, fixed point or protocols; back ends lower a [`Model`] to what they compute with, and share
//! [`walk`](walk()), the geometry of tensors and the loops of [`kernel`].
#![forbid(unsafe_code)]

pub mod file;
pub mod float;
mod function;
pub mod geometry;
pub mod import;
mod interface;
pub mod kernel;
mod matrix;
mod model;
pub mod npy;
pub mod npz;
pub mod onnx;
pub mod rewrite;
pub mod rng;
pub mod walk;
mod watch;
pub mod zoo;

pub use float::FloatGraph;
pub use function::Function;
pub use import::{ImportOptions, Imported, import, import_network};
pub use interface::{ChannelAffine, FinalActivation, InputSpec, Interface, OutputMode, OutputTensor, Units};
pub use model::{Calibration, FEWEST_SAMPLES, Model};
pub use walk::{Interpreter, NodeId, SortedGraph, walk};
pub use watch::{Step, Watch};

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
    /// Who watches the work wants it to end.
    #[error("interrupted")]
    Interrupted,
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
    /// The output is not a node.
    #[error("the output is node {output}, but there are {count} nodes")]
    Output {
        /// Stated output.
        output: NodeId,
        /// Number of nodes.
        count: usize,
    },
    /// More work or memory than anyone would spend.
    #[error(
        "{macs} multiplications and {elements} tensor elements an inference: the limits are {} and {}",
        float::MAX_MACS,
        float::MAX_ACTIVATIONS
    )]
    TooLarge {
        /// Multiplications of one inference.
        macs: u64,
        /// Elements of all tensors together.
        elements: usize,
    },
    /// What a model says about inputs and outputs does not hold together.
    #[error("interface of the model: {what}")]
    Interface {
        /// What is wrong.
        what: String,
    },
    /// Calibration samples or statistics do not fit the network.
    #[error("calibration: {what}")]
    Calibration {
        /// What is wrong.
        what: String,
    },
    /// The input of an inference does not fit the model.
    #[error("input: {what}")]
    Input {
        /// What is wrong.
        what: String,
    },
    /// A model file is damaged or not one.
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
    /// A `.npz` file cannot be read.
    #[error(".npz file: {what}")]
    Npz {
        /// What is wrong.
        what: String,
    },
    /// The system gave no randomness for the identity of an import.
    #[error("no randomness from the system: {0}")]
    Randomness(#[from] getrandom::Error),
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
