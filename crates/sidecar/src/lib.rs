//! The sidecar: a process beside an application that speaks the Open Inference Protocol (KServe v2) to it on
//! this machine, and tacit's private protocol to the server. An application that knows the one gets the other
//! without a change.
//!
//! * [`fleet`]: models, each with a [`lane`] of workers, which are blocking clients; requests and answers.
//! * [`server`]: listeners. [`access`]: who may ask. Both protocols meet at [`fleet::infer`].
//!
//! What an application sends is checked before anything is sent on: shapes, datatypes, values that are no
//! numbers, sizes. None of it, and no answer, gets into the log.
#![forbid(unsafe_code)]

pub mod access;
mod ahead;
pub mod codec;
mod connector;
pub mod energy;
mod error;
pub mod fleet;
pub mod grpc;
pub mod json;
pub mod lane;
pub mod metadata;
mod page;
mod rest;
pub mod rows;
pub mod server;
pub mod stats;
pub mod tensor;
mod worker;

pub use error::ApiError;
