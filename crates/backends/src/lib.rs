//! Back ends of private inference behind one seam.
//!
//! [`seam`] says what a back end is to everybody else, [`Registry`] holds them all. [`ring`] lowers float
//! models to fixed point, for the back ends that compute on shares. [`lowered`] keeps lowerings in files.
//!
//! | back end | how it computes |
//! | --- | --- |
//! | [`cheetah`] | two parties: lattices for linear layers, oblivious transfer for the rest |
//! | [`sci_he`] | two parties: slots of BFV for linear layers, exact truncation |
//! | [`dealt`] | material from a third party ([`dealer`]) |
//! | [`fss`] | material from a third party, with tags that find a party that deviates |
//! | [`ckks`] | one ciphertext each way, on approximate numbers |
//! | [`clear`] | not private: the server sees the input; a lower bound to compare with |
#![forbid(unsafe_code)]

// The toy back end of the tests is written as one of another crate.
#[cfg(feature = "test-util")]
extern crate self as tacit_backends;

pub mod check;
pub mod cheetah;
pub mod ckks;
mod classes;
pub mod clear;
mod cost;
pub mod dealer;
pub mod dealt;
pub mod fss;
pub mod lowered;
mod numerics;
mod registry;
mod resolution;
pub mod ring;
pub mod sci_he;
pub mod seam;
#[cfg(feature = "test-util")]
#[path = "../tests/toy/mod.rs"]
pub mod toy;

pub use cost::{Costs, DealingCost, PartyCost, PhaseCost, Work};
pub use numerics::Numerics;
pub use registry::{DEFAULT, Registry};
pub use resolution::Faint;
pub use seam::{
    Backend, ClientModel, ClientSide, ConnectionResources, DryRun, LoweringReport, Material, MaterialPart, Options,
    Plan, Preparation, ServerModel, ServerSide, Setup, Strain, Trust,
};

/// Why a back end failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Data that a model cannot be judged by.
    #[error("{what}")]
    Data {
        /// What is wrong with it.
        what: String,
    },
    /// No back end has this name.
    #[error("there is no back end `{id}`; there are: {known}")]
    Unknown {
        /// What was asked for, shortened.
        id: String,
        /// Names of those there are.
        known: String,
    },
    /// The model cannot be lowered for this back end.
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
    /// An option is unknown or out of range.
    #[error("option `{key}` of the back end {backend}: {what}")]
    Option {
        /// The back end.
        backend: &'static str,
        /// The option.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// The public part of a model is not one.
    #[error("public part of a model: {what}")]
    Public {
        /// What is wrong.
        what: String,
    },
    /// A model was lowered by another version of its back end.
    #[error(
        "public part of a model: of version {theirs} of {backend}, and this program has version {ours}: update the older program, and \
         lower the model again"
    )]
    Version {
        /// The back end.
        backend: &'static str,
        /// The version that the part states.
        theirs: u32,
        /// This program's.
        ours: u32,
    },
    /// The private part of a model is not one, or does not fit the public part.
    #[error("private part of a model: {what}")]
    Private {
        /// What is wrong.
        what: String,
    },
    /// Stored material does not fit the plan.
    #[error("material: {what}")]
    Material {
        /// What is wrong.
        what: String,
    },
    /// Material cannot be written as it comes.
    #[error("writing material: {what}")]
    Spool {
        /// Why not.
        what: String,
    },
    /// What a party keeps over connections cannot be kept or read.
    #[error("keeping keys: {what}")]
    Keeping {
        /// Why not, and what to do.
        what: String,
    },
    /// The client takes no such answer. The protocol has ended as with any other and the connection is as
    /// good as before: the server learns nothing of it.
    #[error("the answer was refused: {what}")]
    Answer {
        /// Why, and what helps.
        what: String,
    },
    /// A caller did things in the wrong order.
    #[error("{0}")]
    Misuse(&'static str),
    /// A model or an input is wrong.
    #[error(transparent)]
    Graph(#[from] tacit_graph::GraphError),
    /// The connection failed, or the peer broke its rules.
    #[error(transparent)]
    Net(#[from] tacit_net::NetError),
    /// The protocol failed, or the peer broke it.
    #[error(transparent)]
    Protocol(Box<dyn std::error::Error + Send + Sync>),
    /// The operating system gives no random bytes.
    #[error("no randomness from the operating system: {0}")]
    Random(String),
    /// A lowered model's file is not one, or is damaged.
    #[error("lowered model: {what}")]
    Lowering {
        /// What is wrong, and what to do.
        what: String,
    },
    /// A file cannot be read.
    #[error("reading {path}: {source}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The dealer is missing, cannot be reached or refuses.
    #[error("dealer: {what}")]
    Dealer {
        /// What is wrong, and what to do.
        what: String,
    },
    /// Who runs the phase has ended it.
    #[error("stopped between two layers")]
    Stopped,
    /// A fixed-point model, or the lowering to it.
    #[error(transparent)]
    Ring(#[from] ring::RingError),
}

impl BackendError {
    /// An option that the ring level refuses is one of the back end that lowers to it.
    pub(crate) fn of_backend(self, backend: &'static str) -> Self {
        match self {
            Self::Ring(ring::RingError::Option { name, what }) => {
                Self::Option { backend, key: name.into(), what: what.into() }
            }
            other => other,
        }
    }

    /// What the peer did that nobody does who follows the protocol, if that is what it was.
    #[must_use]
    pub fn deviation(&self) -> Option<&'static str> {
        match self {
            Self::Protocol(error) => match error.downcast_ref() {
                Some(tacit_mpc::MpcError::Misbehaviour { what, .. }) => Some(what),
                _ => None,
            },
            Self::Net(error) => error.breach(),
            _ => None,
        }
    }
}

impl From<tacit_mpc::MpcError> for BackendError {
    fn from(error: tacit_mpc::MpcError) -> Self {
        match error {
            tacit_mpc::MpcError::Net(error) => Self::Net(error),
            tacit_mpc::MpcError::Material { what } => Self::Material { what },
            other => Self::Protocol(Box::new(other)),
        }
    }
}
