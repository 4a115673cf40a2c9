//! Errors of the linear layers.

use tacit_arith::ring::ShapeError;
use tacit_he::HeError;
use tacit_net::NetError;

/// What can go wrong in planning or running linear layers.
#[derive(Debug, thiserror::Error)]
pub enum LinearError {
    /// A consumer is no convolution.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Parameters, keys or foreign bytes.
    #[error(transparent)]
    He(#[from] HeError),
    /// The connection.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Consumers of one tensor disagree on its shape, or there is none.
    #[error("the layers of one plan must read one tensor; layer {consumer} does not fit")]
    Group {
        /// Index of the first that does not fit.
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
    /// A slice of a wrong length.
    #[error("{what}: {got} elements, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length of the plan.
        expected: usize,
    },
    /// Weights larger than the norm the plan's noise bound was computed for.
    #[error("output channel {channel}: weights exceed the plan's norm of 2^{norm_log2}")]
    WeightNorm {
        /// The first such channel.
        channel: usize,
        /// The plan's bound.
        norm_log2: u32,
    },
    /// The client has sent no keys to take ciphertexts of this plan apart.
    #[error("ciphertexts are to be taken apart in {needed} steps, and there are keys for {have}")]
    Steps {
        /// Steps of the plan.
        needed: u32,
        /// Steps that the setup was for.
        have: u32,
    },
    /// No such layer in the plan, or weights of another layer.
    #[error("the plan has {have} layers, number {consumer} was used")]
    Consumer {
        /// Index used.
        consumer: usize,
        /// Layers in the plan.
        have: usize,
    },
}

impl From<LinearError> for crate::BackendError {
    fn from(error: LinearError) -> Self {
        match error {
            LinearError::Net(error) => Self::Net(error),
            other => Self::Protocol(Box::new(other)),
        }
    }
}
