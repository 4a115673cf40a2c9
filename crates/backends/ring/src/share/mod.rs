//! Code shared by back ends that compute on additive shares while **the client knows its share of every
//! tensor before it knows its input**: the steps of a graph, and both parties' walks over them.
//!
//! A back end defines its linear layers, batches of gates and widenings ([`StepTypes`]), makes them when the
//! graph is compiled ([`Compile`]), and implements their phases ([`ClientPhase`], [`ServerPhase`]). `local`
//! holds the operations that need no other party, `reduce` the comparison schedules of pools, `truncate` the
//! truncations that must be exact.

mod batch;
mod client;
mod linear;
mod local;
mod reduce;
mod server;
mod size;
mod steps;
mod truncate;

pub use batch::{Batch, Times};
pub use client::{ClientPhase, ClientWalk, GatePosition, check_input, chosen, receive_result, stream};
pub use linear::linear_online;
pub use reduce::Level;
pub use server::{ServerPhase, ServerWalk};
pub use size::{Added, check_sizes};
pub use steps::{Compile, Step, StepTypes, conv_spec, steps};
pub use tacit_mpc::dealt::{ClientShares, ServerShares};
pub use truncate::exact as exact_truncations;

/// A callback that gets a party's share of each node's tensor (`[B, elements]` for a batch of B
/// inputs, in the node's ring).
pub type NodeObserver<'a> = dyn FnMut(tacit_graph::NodeId, &[u64]) + 'a;
