//! Errors of fixed-point models.

use tacit_backend_api::BackendError;
use tacit_graph::{GraphError, MAX_NODES, MAX_TOTAL_ELEMENTS, NodeId};

/// An error in a fixed-point model, in its encoding, or in the lowering to it.
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
    /// The graph has no nodes, or too many.
    #[error("a graph of {count} nodes is not supported (1 to {MAX_NODES})")]
    NodeCount {
        /// Nodes found.
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
    /// All tensors together are too large.
    #[error("the tensors of this graph have more than {MAX_TOTAL_ELEMENTS} elements in all")]
    TooLarge,
    /// The output is not a node.
    #[error("the output is node {output}, but there are {count} nodes")]
    Output {
        /// Stated output.
        output: NodeId,
        /// Nodes.
        count: usize,
    },
    /// The stated interface differs from that of the nodes.
    #[error("the stated {what} is not that of the graph")]
    Interface {
        /// The part that differs.
        what: &'static str,
    },
    /// The weights do not belong to the linear nodes.
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
        /// Description of the fault.
        what: String,
    },
    /// The bytes are damaged, or not a lowered model.
    #[error("lowered model, {part} part: {what}")]
    Encoding {
        /// `public` or `private`.
        part: &'static str,
        /// Description of the fault.
        what: String,
    },
    /// An option of the lowering is out of range.
    #[error("option `{name}`: {what}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// The range.
        what: &'static str,
    },
    /// The values of the network fit no supported ring under the current scales.
    #[error("fixed point: {what}")]
    NoRing {
        /// Why.
        what: String,
    },
    /// The float network has a form that this level does not support.
    #[error("node `{name}`: {what}")]
    Unsupported {
        /// The node.
        name: String,
        /// The form, and a remedy.
        what: &'static str,
    },
    /// The float model is inconsistent.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl RingError {
    /// The error of the ring level behind an error of a back end, if it is one.
    #[must_use]
    pub fn find_in(error: &BackendError) -> Option<&Self> {
        match error {
            BackendError::Ring(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl From<RingError> for BackendError {
    fn from(error: RingError) -> Self {
        Self::Ring(Box::new(error))
    }
}

/// Attributes an option error of the ring level to a back end.
#[must_use]
pub fn of_backend(error: BackendError, backend: &'static str) -> BackendError {
    match RingError::find_in(&error) {
        Some(RingError::Option { name, what }) => {
            BackendError::Option { backend, key: (*name).into(), what: (*what).into() }
        }
        _ => error,
    }
}
