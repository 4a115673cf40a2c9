//! Code shared by back ends that compute on additive shares while **the client knows its share of
//! every tensor before it knows its input**: the steps of a graph, and the walks of both parties
//! over them.
//!
//! A back end defines its linear layers, batches of gates and widenings ([`Kind`]), makes them when
//! the graph is compiled ([`Compile`]), and implements their phases ([`ClientPhase`],
//! [`ServerPhase`]). `local` holds the operations that need no other party, `reduce` the comparison
//! schedules of pools, `truncate` the truncations that must be exact.

mod client;
mod linear;
mod local;
mod reduce;
mod server;
mod size;
mod steps;
mod truncate;

pub(crate) use client::{At, ClientPhase, ClientWalk, GateShares, check_input, chosen, revealed, stream};
pub(crate) use linear::linear_online;
pub(crate) use reduce::Level;
pub(crate) use server::{ServerPhase, ServerShares, ServerWalk};
pub(crate) use size::{Added, check_sizes};
pub(crate) use steps::{Batch, Compile, Kind, Step, Times, conv_spec, steps};
pub(crate) use truncate::exact as exact_truncations;

/// A callback that gets a party's share of each node's tensor (`[B, elements]` for a batch of B
/// inputs, in the node's ring).
pub type NodeObserver<'a> = dyn FnMut(tacit_graph::NodeId, &[u64]) + 'a;
