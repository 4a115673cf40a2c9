//! The sidecar: a process beside an application. It serves the Open Inference Protocol (KServe v2)
//! to the application on this machine, and uses tacit's private protocol with the server. An
//! application that uses the former gets the latter without a change.
//!
//! * [`fleet`]: models, each with a [`lane`] of workers, which are blocking clients; requests and
//!   answers.
//! * [`server`]: listeners. [`access`]: authorization. Both protocols meet at [`fleet::infer`].
//!
//! The sidecar checks an application's data before it sends any on: shapes, datatypes, values that
//! are not numbers, sizes. The log contains no inputs and no answers.
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
