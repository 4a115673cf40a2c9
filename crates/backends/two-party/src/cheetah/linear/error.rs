//! Errors of the linear layers.

use tacit_arith::ring::ShapeError;
use tacit_he::HeError;
use tacit_net::NetError;

/// An error in planning or running linear layers.
#[derive(Debug, thiserror::Error)]
pub enum LinearError {
    /// A consumer is not a valid convolution.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Invalid parameters, keys, or bytes from the peer.
    #[error(transparent)]
    He(#[from] HeError),
    /// The connection failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Consumers of one tensor disagree on its shape, or there are no consumers.
    #[error("the layers of one plan must read one tensor; layer {consumer} does not fit")]
    Group {
        /// Index of the first consumer that does not fit.
        consumer: usize,
    },
    /// The kernel's footprint does not fit one polynomial.
    #[error("layer {consumer}: a tile of {rows} x {columns} exceeds a polynomial of {degree} coefficients")]
    Tile {
        /// Index of the consumer.
        consumer: usize,
        /// Rows of the smallest tile.
        rows: usize,
        /// Columns of the smallest tile.
        columns: usize,
        /// The ring degree.
        degree: usize,
    },
    /// A slice has the wrong length.
    #[error("{what}: {got} elements, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// The actual length.
        got: usize,
        /// The length that the plan requires.
        expected: usize,
    },
    /// Weights exceed the norm that the plan's noise bound was computed for.
    #[error("output channel {channel}: weights exceed the plan's norm of 2^{norm_log2}")]
    WeightNorm {
        /// The first channel that exceeds the norm.
        channel: usize,
        /// The plan's bound.
        norm_log2: u32,
    },
    /// The client's keys do not suffice to split the ciphertexts of this plan.
    #[error("ciphertexts are to be taken apart in {needed} steps, and there are keys for {have}")]
    Steps {
        /// Splitting steps of the plan.
        needed: u32,
        /// Splitting steps that the client's keys are for.
        have: u32,
    },
    /// The plan has no such layer, or the weights belong to another layer.
    #[error("the plan has {have} layers, number {consumer} was used")]
    Consumer {
        /// Index used.
        consumer: usize,
        /// Layers in the plan.
        have: usize,
    },
}

impl From<LinearError> for tacit_backend_api::BackendError {
    fn from(error: LinearError) -> Self {
        match error {
            LinearError::Net(error) => Self::Net(error),
            error => Self::Protocol(Box::new(error)),
        }
    }
}
