//! The ring level of a model: fixed point in rings of integers modulo powers of two. Additive
//! sharing, dealt tables and function secret sharing compute in these rings.
//!
//! [`lower`] makes a ring-level model from the owner's float [`Model`](tacit_graph::Model). A
//! [`RingGraph`] is public: it holds typed nodes with a shape, a ring and a scale each, is checked
//! when built, and is immutable. [`Weights`] are private. [`mod@reference`] computes the result that
//! every protocol of this level must give, bit for bit or within its declared bound.

pub mod bound;
mod encode;
mod error;
pub mod fixed;
mod graph;
pub mod lowering;
pub mod op;
mod options;
pub(crate) mod public;
pub mod reference;
pub(crate) mod share;
pub(crate) mod slack;
pub mod table;

pub use encode::{public_bytes, read_public, read_weights, weights_to_bytes};
pub use error::RingError;
pub use fixed::FixedPoint;
pub use graph::{LayerWeights, Node, RingGraph, RingSpec, Weights};
pub use lowering::report::RingReport;
pub use lowering::{Agreement, Price, RingModel, RingOptions, Target, agreement, lower, lower_for};
pub use op::{Conv2d, Linear, Op, WeightFacts};
pub use table::{Lines, Table};
