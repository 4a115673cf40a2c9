//! Cryptographic back ends over one model graph.
//!
//! A back end compiles the public graph into a plan, and runs it in three phases: `setup` once per client, `offline` once per input
//! without knowing it, `online` with it. [`cheetah`] is the two-party back end of lattice-based linear layers and oblivious transfer.
#![forbid(unsafe_code)]

pub mod cheetah;
pub mod ring;

use ring::{RingError, RingGraph, Weights};
use tacit_mpc::Session;

/// What a party holds when it enters a phase.
#[derive(Clone, Copy)]
pub enum Held<'a> {
    /// The server: the model's weights.
    Weights(&'a Weights),
    /// The client, online: its input as integers of the input node, row major, `[C, H, W]` or `[F]`.
    Input(&'a [i64]),
    /// The client, offline: nothing yet.
    Nothing,
}

/// What a party has when the online phase is over: the client the values of the output node, the server nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Signed integers of the output node.
    Values(Vec<i64>),
    /// Nothing: this party is the server.
    Nothing,
}

/// How a back end's results relate to the fixed-point reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Numerics {
    /// Equal bit for bit.
    Exact,
    /// Each truncation may be `below` units lower and `above` units higher than the floor of what it is given; each linear output may be off by
    /// `linear` units at its own (untruncated) scale; ReLU may give 0 for results below `2^relu_drop` units.
    UlpPerTruncation {
        /// Largest deficit of a truncation, in units of the last place.
        below: u32,
        /// Largest excess of a truncation, in units of the last place.
        above: u32,
        /// Largest error of a linear output before truncation.
        linear: u32,
        /// Bits that the sign test of ReLU drops.
        relu_drop: u32,
    },
}

/// Bytes, exchanges and memory that one phase costs, both parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct PhaseCost {
    /// Payload bytes from the client to the server.
    pub up_bytes: u64,
    /// Payload bytes from the server to the client.
    pub down_bytes: u64,
    /// Random OTs with the client as receiver.
    pub client_rots: u64,
    /// Random OTs with the server as receiver.
    pub server_rots: u64,
    /// Message exchanges one after the other.
    pub exchanges: u64,
}

/// Costs of one input by phase, without setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct PhaseCosts {
    /// Input-independent phase.
    pub offline: PhaseCost,
    /// Phase with the input.
    pub online: PhaseCost,
    /// Sign tests.
    pub comparisons: u64,
    /// Size of the client's stored material, in bytes.
    pub client_material_bytes: u64,
    /// Size of the server's stored material, in bytes.
    pub server_material_bytes: u64,
}

/// Why a back end failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The model cannot be compiled for this back end.
    #[error("node {node} `{name}` ({op}): {what}")]
    Unsupported {
        /// Index of the node.
        node: usize,
        /// Its name.
        name: String,
        /// Its operation.
        op: &'static str,
        /// What is not supported, and what would help.
        what: String,
    },
    /// A caller gave something that does not fit the plan or the role.
    #[error("{0}")]
    Misuse(&'static str),
    /// The input does not fit the model.
    #[error("the input has {found} values, the model takes {needed}")]
    InputLength {
        /// Values given.
        found: usize,
        /// Values needed.
        needed: usize,
    },
    /// A protocol or channel error.
    #[error(transparent)]
    Protocol(#[from] tacit_mpc::MpcError),
    /// A fixed-point model does not hold together, or cannot be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A lattice error in a linear layer.
    #[error(transparent)]
    Linear(#[from] cheetah::linear::LinearError),
}

impl From<tacit_net::NetError> for BackendError {
    fn from(error: tacit_net::NetError) -> Self {
        Self::Protocol(error.into())
    }
}

/// A cryptographic back end. Both parties compile the same public graph to the same plan.
pub trait Backend {
    /// The compiled model.
    type Plan;
    /// Keys of one client, made once and used for many inputs.
    type Keys;
    /// One party's half of the preprocessing for one input. Used by value: once.
    type Material;

    /// Compiles the public graph.
    ///
    /// # Errors
    /// `Unsupported` names the first node that cannot be compiled.
    fn compile(&self, graph: &RingGraph) -> Result<Self::Plan, BackendError>;

    /// Makes and exchanges the keys of one client.
    ///
    /// # Errors
    /// Channel and protocol errors.
    fn setup(&self, plan: &Self::Plan, session: &mut Session<'_>) -> Result<Self::Keys, BackendError>;

    /// Preprocesses one input without knowing it. The server holds its weights, the client nothing.
    ///
    /// # Errors
    /// Channel and protocol errors.
    fn offline(
        &self,
        plan: &Self::Plan,
        keys: &mut Self::Keys,
        held: Held<'_>,
        session: &mut Session<'_>,
    ) -> Result<Self::Material, BackendError>;

    /// Evaluates the model on one input. The server holds its weights, the client its input.
    ///
    /// # Errors
    /// Channel and protocol errors; the material is spent in any case.
    fn online(
        &self,
        plan: &Self::Plan,
        material: Self::Material,
        held: Held<'_>,
        session: &mut Session<'_>,
    ) -> Result<Output, BackendError>;

    /// What one input costs.
    fn cost(&self, plan: &Self::Plan) -> PhaseCosts;

    /// How results of a plan relate to the reference.
    fn numerics(&self, plan: &Self::Plan) -> Numerics;
}
