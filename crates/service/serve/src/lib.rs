//! A server for private inference.
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
//! * The **edge** accepts, authenticates and greets connections, and waits for requests. An idle
//!   client holds no thread, however it connected and however slowly its request arrives.
//! * A **worker** owns a connection for one job: one request, at most one phase of one input. It
//!   blocks, on as many threads as it was granted.
//! * **Control** answers HTTP on the same port: health, status, metrics, a dashboard. It asks the
//!   driver and decides nothing.
//! * **Access** holds the rules on what clients may use. **State** stores what must outlive a run.
//! * The **driver** alone owns what connections share. It carries out the scheduler's
//!   (`tacit-sched`) decisions: which phase of which input starts when, on how many threads.
//!
//! [`DealerServer`] is a separate program: it makes material for servers and clients, and works
//! with neither. [`Front`] is another one: it places the clients of several servers at one of them.
//!
//! [`Server`] binds a [`Catalog`]; [`ServerHandle`] stops it. A client's error ends its own
//! connection only.
#![forbid(unsafe_code)]

mod accept;
mod config;
mod control;
mod dealer;
mod error;
mod front;
mod jobs;
mod models;
mod ops;
mod server;
mod session;
mod shared;

pub use config::ServerConfig;
pub use control::{MAX_BODY_BYTES, NoticeBody, read_notice, read_policy};
pub use dealer::{DealerConfig, DealerHandle, DealerServer};
pub use error::ServeError;
pub use front::{Front, FrontConfig};
pub use models::catalog::{Catalog, Changes};
pub use models::source::{Reloaded, Source, Unusable};
pub use ops::traces::Collector;
pub use server::{Hangups, Server, ServerHandle};
