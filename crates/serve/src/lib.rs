//! Serving private inference.
//!
//! ```text
//!   sockets --> edge (tokio) --- a whole request ---> worker (blocking): one job of one connection
//!                 ^   |                                   |   ^
//!                 |   | events                      made  |   | threads, material
//!                 |   v                                   v   |
//!                 |  driver: connections, jobs, limits, material in memory, counters, stop
//!                 +--- the connection, back from its job
//! ```
//!
//! * The **edge** accepts, authenticates, greets, and waits for requests. A client that asks nothing holds no
//!   thread, however it connected, and however slowly its request trickles in.
//! * A **worker** owns the connection for one job: one request, a phase of one input at most. It blocks, in
//!   as many threads as were granted.
//! * The **driver** alone owns what connections share, and carries out what the policy decides. Policy today:
//!   every job at once.
//!
//! [`Server`] binds a [`Catalog`]; [`ServerHandle`] stops it. What one client does wrong ends its own
//! connection only.
#![forbid(unsafe_code)]

mod catalog;
mod config;
mod door;
mod driver;
mod edge;
mod error;
mod estimates;
mod event;
mod memory;
mod monitor;
mod published;
mod queue;
mod refusals;
mod server;
mod shared;
mod stock;
mod worker;

pub use catalog::Catalog;
pub use config::ServerConfig;
pub use error::ServeError;
pub use server::{Server, ServerHandle};
