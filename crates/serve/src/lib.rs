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
//! * **Control** answers HTTP on the same port: health, status, metrics, a dashboard. It asks the driver, and
//!   decides nothing.
//! * **Access** says who may use what, and **state** remembers between two runs what must not be forgotten.
//! * The **driver** alone owns what connections share, and carries out what the scheduler (`tacit-sched`)
//!   decides: which phase of which input starts when, on how many threads.
//!
//! [`DealerServer`] is another program: it makes material for servers and clients, and works with neither.
//! [`Front`] is another: it tells the clients of several servers which of them answers.
//!
//! [`Server`] binds a [`Catalog`]; [`ServerHandle`] stops it. What one client does wrong ends its own
//! connection only.
#![forbid(unsafe_code)]

mod access;
mod authentication;
mod catalog;
mod client_keys;
mod closer;
mod config;
mod control;
mod counted;
mod dealer;
mod driver;
mod edge;
mod error;
mod estimates;
mod event;
mod front;
mod gate;
mod identity;
mod job;
mod kinds;
mod memory;
mod metrics;
mod monitor;
mod pooled;
mod published;
mod queue;
mod quota;
mod record;
mod reload;
mod server;
mod shared;
mod signals;
mod snapshot;
mod source;
mod spools;
mod state;
mod stock;
mod traces;
mod uploads;
mod warm;
mod worker;

pub use catalog::{Catalog, Changes};
pub use config::ServerConfig;
pub use control::{MAX_BODY_BYTES, NoticeBody, read_notice, read_policy};
pub use dealer::{DealerConfig, DealerHandle, DealerServer};
pub use error::ServeError;
pub use front::{Front, FrontConfig};
pub use server::{Hangups, Server, ServerHandle};
pub use source::{Reloaded, Source, Unusable};
pub use traces::Collector;
