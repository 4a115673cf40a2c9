//! Serving private inference: the server, the client library, measurements.
//!
//! * [`Server`] serves [`Catalog`] models to authenticated clients, a thread each; one client's failure is its own.
//! * [`Lobby`] connects; [`Client`] prepares material and infers; [`infer_many`] overlaps the offline phase of the next input
//!   with the online phase of this one.
//! * [`Engine`] is what a back end gives to be served.
#![forbid(unsafe_code)]

pub mod bench;
mod catalog;
mod cheetah;
mod client;
mod engine;
mod error;
pub mod input;
mod measure;
mod pipeline;
mod pool;
mod server;
mod session;
mod wire;

pub use catalog::Catalog;
pub use client::{Answer, Client, ClientConfig, Lobby, Prepared};
pub use engine::Engine;
pub use error::ServeError;
pub use measure::{Figures, PhaseReport, process_cpu_s};
pub use pipeline::infer_many;
pub use server::{Server, ServerConfig, ServerHandle};
pub use wire::ModelInfo;
