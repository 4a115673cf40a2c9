use crate::ops::monitor::Limits;
use crate::ops::traces::Collector;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;
use tacit_backends::ConnectionResources;
use tacit_measure::usage::{ProcessLimits, Roots};
use tacit_net::{Rate, ServerTls};
use tacit_sched::policy::PolicySpec;
use tacit_sched::{PoolConfig, Resources, Span};
use tacit_store::{DEFAULT_EXPIRY, SealKey};

/// Most ready pooled materials, of all models together: each is an open file.
pub(crate) const MAX_POOLED: usize = 32;
/// Pools cover the demand of this time, or of one dealing if that takes longer.
const POOL_HORIZON: Span = Span::from_millis(30_000);

/// Configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity of the server, and the CA whose clients are served.
    pub tls: ServerTls,
    /// Most bit/s of each connection's answers; `None` for no limit.
    pub pace: Option<Rate>,
    /// Folder of stored material, if any.
    pub store: Option<PathBuf>,
    /// File with access rules; without it, every client may use every model.
    pub access: Option<PathBuf>,
    /// Days that records of ended phases are kept, in the folder of stored material.
    pub audit_days: u32,
    /// Bytes of the file with these records; beyond that, the oldest are deleted.
    pub audit_bytes: u64,
    /// Collector that gets a trace of each phase that ends; `None` for no traces.
    pub traces: Option<Collector>,
    /// Key that seals stored material; without it, material is stored unencrypted.
    pub seal: Option<SealKey>,
    /// Threads of each job's arithmetic, 1 to [`MAX_THREADS`](tacit_client::MAX_THREADS).
    pub threads: usize,
    /// The dealer that makes this server's material, where models need one.
    pub resources: ConnectionResources,
    /// Policy that decides which jobs start when.
    pub policy: PolicySpec,
    /// Cores that jobs may take together.
    pub cores: usize,
    /// Whether threads that wait for their link count as busy, and the machine's load does not
    /// count.
    pub strict_cores: bool,
    /// Materials that a dealer may make at the same time, beside the jobs.
    pub dealings: usize,
    /// Most bytes on disk of material that a dealer makes for no client yet; needs a store.
    pub pool: u64,
    /// How long pooled material is kept.
    pub pool_ttl: Duration,
    /// Bytes of memory that jobs may take together, by estimate.
    pub job_memory: u64,
    /// Resident bytes of this process above which no job starts.
    pub resident: u64,
    /// Most inputs of one client under way, including announced ones.
    pub queued_per_client: usize,
    /// Most inputs of one client in a batch, if the back end runs batches.
    pub max_batch: usize,
    /// How long a notice holds without its request.
    pub notice_ttl: Duration,
    /// Most clients connected at the same time.
    pub max_connections: usize,
    /// Connections of one client, by its certificate's key; `None`: three quarters of all.
    pub connections_per_client: Option<NonZero<usize>>,
    /// Most control connections (HTTP) of clients, and as many of operators; 0 disables the
    /// interface.
    pub max_control: usize,
    /// Control connections that one client may have.
    pub control_per_client: usize,
    /// How long a control connection may be idle.
    pub control_idle: Duration,
    /// How long a client may send nothing after it connects. Further bytes of its greeting may take
    /// three times as long each, and twelve times as long in all.
    pub greeting_timeout: Duration,
    /// How long a client may make no progress in a job or a begun request.
    pub stall_timeout: Duration,
    /// How long a client may be silent between requests.
    pub idle_timeout: Duration,
    /// How often a client that waits for its turn gets a sign of life.
    pub sign_of_life: Duration,
    /// Inputs that one client's material in memory may be for, unless it is one batch.
    pub memory_per_client: usize,
    /// How long a client with its full share of memory waits before it is refused.
    pub memory_wait: Duration,
    /// How long an input keeps its place in the queue between its offline and its online phase. A
    /// core may be idle for that time.
    pub handover_timeout: Duration,
    /// Most materials of one client on disk.
    pub stored_per_client: usize,
    /// Most bytes of one client's stored uploads, such as switching keys; needs a store.
    pub uploads_per_client: u64,
    /// How long material whose other half or model is gone is kept, and how long unused keys are.
    pub expire: Duration,
    /// Whether to accept a clock that is far from the last use of the store.
    pub accept_clock: bool,
}

impl ServerConfig {
    /// The defaults for an address: no store, no access rules, no limit of memory, one thread a job on
    /// all cores, the policy `adaptive`.
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
            handover_timeout: Duration::from_millis(20),
            stored_per_client: 256,
            uploads_per_client: 4 << 30,
            expire: DEFAULT_EXPIRY,
            accept_clock: false,
        }
    }

    /// By default, all other clients together keep a quarter.
    pub(crate) fn max_connections_per_client(&self) -> usize {
        let default = self.max_connections - self.max_connections / 4;
        self.connections_per_client.map_or(default, NonZero::get)
    }

    pub(crate) fn has_pools(&self) -> bool {
        self.pool > 0 && self.dealings > 0 && self.store.is_some() && self.resources.dealer.is_some()
    }

    pub(crate) fn limits(&self) -> Limits {
        let widest = self.threads as u32;
        Limits { cores: (self.cores as u32).max(widest), widest, memory: self.job_memory, resident: self.resident }
    }

    pub(crate) fn scheduling(&self) -> tacit_sched::Config {
        let threads = self.threads as u32;
        let (cores, dealings) = (self.limits().cores, self.dealings as u32);
        tacit_sched::Config {
            max_queued: self.queued_per_client as u32,
            notice_ttl: Span::from_millis(self.notice_ttl.as_millis() as u64),
            // The client decides whether to try again.
            pre_attempts: 1,
            pool: self.has_pools().then(|| PoolConfig {
                horizon: POOL_HORIZON,
                most: MAX_POOLED as u32,
                disk: self.pool,
                ..PoolConfig::default()
            }),
            pre_threads: vec![threads],
            on_threads: vec![threads],
            // The ledger limits each client's material on disk.
            ..tacit_sched::Config::new(Resources { cores, memory: self.job_memory, disk: u64::MAX, dealings })
        }
    }
}
