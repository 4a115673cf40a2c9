//! The float level of a model: ONNX import, rewrites that are independent of protocols, calibration
//! statistics, the owner's model file, and the float reference for every lowering. This crate has
//! no rings, fixed point or protocols. Back ends lower a [`Model`] and share [`walk`](walk()), the
//! geometry of tensors and the loops of [`kernel`].
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
pub use function::{Function, Symmetry, erfc};
pub use import::{ImportOptions, Imported, import, import_network};
pub use interface::{ChannelAffine, FinalActivation, InputSpec, Interface, OutputMode, OutputTensor, Units};
pub use model::{Calibration, FEWEST_SAMPLES, Model};
pub use tacit_floats::Interval;
pub use walk::{Interpreter, NodeId, SortedGraph, walk};
pub use watch::{Step, Watch};

/// Largest number of nodes of a graph.
pub const MAX_NODES: usize = 100_000;
/// Largest number of elements of a stored array: weights of an ONNX file, samples.
pub const MAX_STORED_ELEMENTS: usize = 1 << 28;
/// Largest number of elements of a node's tensor.
pub const MAX_ELEMENTS: usize = 1 << 24;
/// Largest side of a kernel or pooling window, and largest padding.
pub const MAX_WINDOW_SIDE: usize = 1 << 9;
/// Largest number of elements of all tensors of a graph together, which bounds what a plan
/// allocates.
pub const MAX_TOTAL_ELEMENTS: usize = 1 << 28;

/// An error in a model or in a file of one.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The watcher of the work ended it.
    #[error("interrupted")]
    Interrupted,
    /// The graph has no nodes, or too many.
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
        /// Name of the node.
        name: String,
        /// Operation of the node.
        op: &'static str,
        /// Description of the fault.
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
    /// The network needs more work or memory than the limits allow.
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
    /// The interface of the model is inconsistent.
    #[error("interface of the model: {what}")]
    Interface {
        /// Description of the fault.
        what: String,
    },
    /// Calibration samples or statistics do not fit the network.
    #[error("calibration: {what}")]
    Calibration {
        /// Description of the fault.
        what: String,
    },
    /// The input of an inference does not fit the model.
    #[error("input: {what}")]
    Input {
        /// Description of the fault.
        what: String,
    },
    /// A file is damaged, or not a model file.
    #[error("model file, {section} section: {what}")]
    File {
        /// Part of the file.
        section: &'static str,
        /// Description of the fault.
        what: String,
    },
    /// A model file has another version.
    #[error("model file of version {found}, this program reads version {supported}: import the ONNX file again")]
    Version {
        /// Version in the file.
        found: u32,
        /// Version that this program reads.
        supported: u32,
    },
    /// An ONNX file cannot be read, or exceeds a limit.
    #[error("ONNX file: {what}")]
    OnnxFile {
        /// Description of the fault.
        what: String,
    },
    /// A node of an ONNX file is faulty.
    #[error("ONNX node {node}: {what}")]
    OnnxNode {
        /// Name and operator.
        node: String,
        /// Description of the fault.
        what: String,
    },
    /// A node of an ONNX file is not supported.
    #[error("ONNX node {node} is not supported: {help}")]
    Unsupported {
        /// Name and operator.
        node: String,
        /// The reason and a remedy.
        help: String,
    },
    /// A `.npy` file cannot be read.
    #[error(".npy file: {what}")]
    Npy {
        /// Description of the fault.
        what: String,
    },
    /// A `.npz` file cannot be read.
    #[error(".npz file: {what}")]
    Npz {
        /// Description of the fault.
        what: String,
    },
    /// The system provided no randomness for the identity of an import.
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
