//! How a server behaves.
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tacit_net::{Rate, ServerTls};
use tacit_store::{EXPIRE, SealKey};

/// How a server behaves.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity, and the CA whose clients are served.
    pub tls: ServerTls,
    /// Most bit/s that each connection's answers leave at; `None` as fast as the link takes them.
    pub pace: Option<Rate>,
    /// Folder of stored material; without one, clients cannot prepare ahead of a connection.
    pub store: Option<PathBuf>,
    /// Key that stored material is sealed with; in the clear without one.
    pub seal: Option<SealKey>,
    /// Threads of each job's arithmetic, 1 to [`MAX_THREADS`](tacit_client::MAX_THREADS).
    pub threads: usize,
    /// Clients connected at the same time.
    pub max_connections: usize,
    /// Connections of the control interface (HTTP) at the same time; with 0 there is no such interface.
    pub max_control: usize,
    /// How many of these one client may have.
    pub control_per_client: usize,
    /// How long one of these may be without a request or an answer that moves.
    pub control_idle: Duration,
    /// How long a client may take to introduce itself.
    pub greeting_timeout: Duration,
    /// How long a client may make no progress inside a job, and how long a request may take that has begun.
    pub stall_timeout: Duration,
    /// How long a client may be silent between requests.
    pub idle_timeout: Duration,
    /// Materials that one client may have in memory.
    pub memory_per_client: usize,
    /// How long a client that has its share of memory waits for a place, until it is refused.
    pub memory_wait: Duration,
    /// Materials that one client may have on disk.
    pub stored_per_client: usize,
    /// How long stored material is kept whose client does not come back with the other half, or whose model
    /// is gone.
    pub expire: Duration,
}

impl ServerConfig {
    /// Defaults for an address: no store, one thread a job, 64 connections, 64 of control (8 of one client,
    /// idle for 1 min), 10 s to introduce, 2 min stall, 10 min idle, 4 materials in memory (4 min for a
    /// place) and 256 on disk for each client, 30 days until material expires.
    #[must_use]
    pub fn new(listen: SocketAddr, tls: ServerTls) -> Self {
        Self {
            listen,
            tls,
            pace: None,
            store: None,
            seal: None,
            threads: 1,
            max_connections: 64,
            max_control: 64,
            control_per_client: 8,
            control_idle: Duration::from_secs(60),
            greeting_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            memory_per_client: 4,
            memory_wait: Duration::from_secs(240),
            stored_per_client: 256,
            expire: EXPIRE,
        }
    }
}
