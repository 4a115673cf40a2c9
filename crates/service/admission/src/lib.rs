//! Admission of connections: one component for all programs that listen.
//!
//! ```text
//!   accept --> handshake slot --> connection pool of its kind --> closed
//!                  |   |              |
//!                  |   evicted        evicted, where it is idle and its peer holds most
//!                  out of time: later with each byte that comes, up to a limit
//! ```
//!
//! * `HandshakeSlots`: connections whose peer is not authenticated. When all are taken, the
//!   oldest of the address that holds most is evicted. A slow handshake has longer while half of
//!   the slots are free ([`HandshakeDeadline`]).
//! * `ConnectionPool`: connections of authenticated peers, limited in total and per peer. Peers
//!   of another kind (servers, operators) have their own pool.
//! * `RefusalSummary`: log lines for refusals and broken connections, at most one a minute.
//! * [`Admission`] holds them under one lock. [`ThreadedListener`] accepts for programs with a
//!   thread for each connection; programs with an async runtime wait for
//!   [`ConnectionSlot::wait_for_eviction`] beside their work.
//!
//! The first three get the time as an argument and use neither clock nor socket.
#![forbid(unsafe_code)]

mod admission;
mod counts;
mod deadline;
mod eviction;
mod files;
mod handshakes;
mod pools;
mod refusals;
mod threaded;

pub use admission::{Admission, Busy, ConnectionSlot, Counts, Limits, Refusal};
pub use deadline::HandshakeDeadline;
pub use eviction::Evicted;
pub use files::{handshake_slots, raise_open_files};
pub use pools::{Full, Peer, PoolLimits};
pub use refusals::RefusalReason;
pub use threaded::{Accepting, Incoming, ThreadedListener};

/// Id of a connection within a process; ids grow.
pub type ConnectionId = u64;
