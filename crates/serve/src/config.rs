//! How a server behaves.
use crate::monitor::Limits;
use crate::traces::Collector;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;
use tacit_backends::ConnectionResources;
use tacit_meter::usage::{ProcessLimits, Roots};
use tacit_net::{Rate, ServerTls};
use tacit_sched::policy::PolicySpec;
use tacit_sched::{PoolConfig, Resources, Span};
use tacit_store::{EXPIRE, SealKey};

/// Materials that are dealt ahead of time and lie ready, of all models: each is an open file.
pub(crate) const MAX_POOLED: usize = 32;
/// Pools cover what is asked for in this time, or during one dealing if that takes longer.
const POOL_HORIZON: Span = Span::from_millis(30_000);

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
    /// File that says who may use what; without one, every client may use everything.
    pub access: Option<PathBuf>,
    /// Days that the record of ended phases is kept, in the folder of stored material.
    pub audit_days: u32,
    /// Bytes that the file with that record may have: beyond that its oldest rows go.
    pub audit_bytes: u64,
    /// Who is told of each phase that ends; nobody without one.
    pub traces: Option<Collector>,
    /// Key that stored material is sealed with; in the clear without one.
    pub seal: Option<SealKey>,
    /// Threads of each job's arithmetic, 1 to [`MAX_THREADS`](tacit_client::MAX_THREADS).
    pub threads: usize,
    /// The dealer that makes this server's material, where models need one.
    pub resources: ConnectionResources,
    /// Which jobs start when.
    pub policy: PolicySpec,
    /// Cores that jobs may take together.
    pub cores: usize,
    /// Whether a thread counts as a core while its job waits for its link, and cores count as free that other
    /// processes use: the limit is followed to the letter, not by the machine's load.
    pub strict_cores: bool,
    /// Materials that a dealer may be making at a time, beside what the cores do.
    pub dealings: usize,
    /// Bytes on disk of material that a dealer deals ahead of time, for no client in particular, where there
    /// is a store; 0: none is.
    pub pool: u64,
    /// How long such material is kept.
    pub pool_ttl: Duration,
    /// Bytes of memory that jobs may take together, by estimate; never more than this process may have.
    pub job_memory: u64,
    /// Bytes that this process may have resident: with more, no job starts.
    pub resident: u64,
    /// Inputs of one client that may be under way, announced ones included.
    pub queued_per_client: usize,
    /// Inputs of one client that may run as one, where the back end does that.
    pub max_batch: usize,
    /// How long a notice holds without the request that it announces.
    pub notice_ttl: Duration,
    /// Clients connected at the same time.
    pub max_connections: usize,
    /// How many of these one client may have, by its certificate's key; `None`: three quarters.
    pub connections_per_client: Option<NonZero<usize>>,
    /// Connections of the control interface (HTTP) at the same time, and as many of operators; with 0 there
    /// is no such interface.
    pub max_control: usize,
    /// How many of these one client may have.
    pub control_per_client: usize,
    /// How long one of these may be without a request or an answer that moves.
    pub control_idle: Duration,
    /// How long a client may say nothing once it has connected; then three times as long from each byte to
    /// the next until it has introduced itself, twelve times in all.
    pub greeting_timeout: Duration,
    /// How long a client may make no progress inside a job, and how long a request may take that has begun.
    pub stall_timeout: Duration,
    /// How long a client may be silent between requests.
    pub idle_timeout: Duration,
    /// How often a client that waits for its turn is told that the server lives.
    pub sign_of_life: Duration,
    /// Inputs that material of one client in memory may be for; with none there, a batch may be larger.
    pub memory_per_client: usize,
    /// How long a client that has its share of memory waits for a place, until it is refused.
    pub memory_wait: Duration,
    /// How long an input keeps its place in the queue while its client is on the way from its offline to its
    /// online phase. A core may be idle for so long, if it is the input's turn.
    pub on_the_way: Duration,
    /// Materials that one client may have on disk.
    pub stored_per_client: usize,
    /// Bytes that one client may have kept of what it sends once, such as switching keys; only with a store.
    pub uploads_per_client: u64,
    /// How long stored material is kept whose client does not come back with the other half, or whose model
    /// is gone, and keys that their client does not come for.
    pub expire: Duration,
    /// Whether the clock is taken for right where it stands far from when the store was last used.
    pub accept_clock: bool,
}

impl ServerConfig {
    /// Defaults for an address: no store, no rules of access, one thread a job on all cores, 4 dealings,
    /// pools of 1 GiB in all for an hour, no limit of memory, the policy `adaptive`; 64 connections (48 of
    /// one client), 64 of control (8 of one client, idle for 1 min) and as many of operators; 10 s for
    /// the first byte, 2 min stall, 10 min idle; for each client 1024 inputs under way, 8 of them run as
    /// one at most, notices that hold for 10 min, 4 materials in memory (4 min for a place) and 256 on disk,
    /// 4 GiB of keys; 30 days until material expires, 90 and 256 MiB of records.
    #[must_use]
    pub fn new(listen: SocketAddr, tls: ServerTls) -> Self {
        Self {
            listen,
            tls,
            pace: None,
            store: None,
            access: None,
            audit_days: 90,
            audit_bytes: 256 << 20,
            traces: None,
            seal: None,
            threads: 1,
            resources: ConnectionResources::default(),
            policy: PolicySpec::Adaptive(Default::default()),
            cores: ProcessLimits::read(&Roots::default()).threads(),
            strict_cores: false,
            dealings: 4,
            pool: 1 << 30,
            pool_ttl: Duration::from_secs(3600),
            job_memory: u64::MAX,
            resident: u64::MAX,
            queued_per_client: 1024,
            max_batch: 8,
            notice_ttl: Duration::from_secs(600),
            max_connections: 64,
            connections_per_client: None,
            max_control: 64,
            control_per_client: 8,
            control_idle: Duration::from_secs(60),
            greeting_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            sign_of_life: Duration::from_secs(20),
            memory_per_client: 4,
            memory_wait: Duration::from_secs(240),
            on_the_way: Duration::from_millis(20),
            stored_per_client: 256,
            uploads_per_client: 4 << 30,
            expire: EXPIRE,
            accept_clock: false,
        }
    }

    /// Connections that one client may have: some are left for others.
    pub(crate) fn of_one_client(&self) -> usize {
        let most = self.max_connections - self.max_connections / 4;
        self.connections_per_client.map_or(most, NonZero::get)
    }

    /// Whether material is dealt ahead of time.
    pub(crate) fn has_pools(&self) -> bool {
        self.pool > 0 && self.dealings > 0 && self.store.is_some() && self.resources.dealer.is_some()
    }

    /// Within what the machine's load is followed.
    pub(crate) fn limits(&self) -> Limits {
        let widest = self.threads as u32;
        Limits { cores: (self.cores as u32).max(widest), widest, memory: self.job_memory, resident: self.resident }
    }

    /// What the scheduler is told.
    pub(crate) fn scheduling(&self) -> tacit_sched::Config {
        let threads = self.threads as u32;
        let (cores, dealings) = (self.limits().cores, self.dealings as u32);
        tacit_sched::Config {
            max_queued: self.queued_per_client as u32,
            notice_ttl: Span::from_millis(self.notice_ttl.as_millis() as u64),
            // Whether to try again is the client's to say.
            pre_attempts: 1,
            pool: self.has_pools().then(|| PoolConfig {
                horizon: POOL_HORIZON,
                most: MAX_POOLED as u32,
                disk: self.pool,
                ..PoolConfig::default()
            }),
            pre_threads: vec![threads],
            on_threads: vec![threads],
            // What is on disk is limited by client, in the ledger.
            ..tacit_sched::Config::new(Resources { cores, memory: self.job_memory, disk: u64::MAX, dealings })
        }
    }
}
