//! The ring level of a model: fixed point in rings of integers modulo powers of two. Additive sharing, dealt
//! tables and function secret sharing compute in these rings.
//!
//! [`lower`] makes a ring-level model from the owner's float [`Model`](tacit_graph::Model). A [`RingGraph`]
//! is public: typed nodes with a shape, a ring and a scale each, checked when built, immutable. [`Weights`]
//! are private. [`mod@reference`] computes the result that every protocol of this level must give, bit for
//! bit or within its declared bound.
#![forbid(unsafe_code)]

pub mod bound;
mod encode;
mod error;
pub mod fixed;
#[cfg(any(test, feature = "test-util"))]
pub mod fixtures;
mod graph;
pub mod lowering;
pub mod op;
mod options;
pub mod public;
pub mod reference;
pub mod share;
pub mod slack;
pub mod table;

pub use encode::{public_bytes, read_public, read_weights, weights_to_bytes};
pub use error::{RingError, of_backend};
pub use fixed::FixedPoint;
pub use graph::{LayerWeights, Node, RingGraph, RingSpec, Weights};
pub use lowering::report::RingReport;
pub use lowering::{Agreement, Price, RingModel, RingOptions, Target, agreement, lower, lower_for, support};
pub use op::{Conv2d, Linear, Op, WeightFacts};
pub use table::{Lines, Table};

/// Facts as JSON, for [`seam_plan`].
pub use serde_json::Value as Json;
/// The interface of back ends, for [`seam_plan`].
pub use tacit_backend_api as api;
