//! The state that a server reports at one moment. Times are seconds since its start; no field
//! concerns inputs, results or weights.
use serde::Serialize;
use tacit_ids::ClientId;
use tacit_sched::{Counts, Resources};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: &'static str,
    pub uptime_s: f64,
    /// Whether the server takes no more requests.
    pub stopping: bool,
    #[serde(flatten)]
    pub scheduling: Scheduling,
    /// Running jobs, then the last that ended, newest first.
    pub jobs: Vec<JobRow>,
    /// Connected clients, and others that are still remembered.
    pub clients: Vec<ClientRow>,
    pub models: Vec<ModelRow>,
    /// Material that a dealer made ahead of time, for no client yet.
    pub pools: Vec<PoolRow>,
    /// Actual against expected durations of phases of models on offer.
    pub profile: Vec<ProfileRow>,
    #[serde(flatten)]
    pub rates: AnswerRates,
    #[serde(flatten)]
    pub peers: PeerCounts,
    pub certificates: Vec<CertificateRow>,
}

/// What the scheduler decides by.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scheduling {
    pub policy: String,
    /// What all jobs together may have.
    pub capacity: Amounts,
    /// What running jobs hold of the capacity.
    pub used: Amounts,
    pub queues: Queues,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PeerCounts {
    /// Clients' connections.
    pub connections: usize,
    pub control_connections: usize,
    /// Connections that are not authenticated.
    pub greetings: usize,
    /// Number of handshake slots.
    pub greeting_places: usize,
    /// Connections and requests refused since the start.
    pub refusals: u64,
}

/// How inputs are answered: all of them, those of a client or those of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AnswerRates {
    /// D: mean seconds from an input's arrival to its answer, since the start.
    pub mean_delay_s: f64,
    /// W: mean seconds from an input's arrival to the start of its online phase.
    pub mean_waiting_s: f64,
    /// Inputs answered a second, over the last minute.
    pub throughput_per_s: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateRow {
    /// `server`: the server's own; `ca`: that of the CA that signs clients.
    pub name: &'static str,
    /// Its expiry, in seconds since 1970.
    pub expires_s: u64,
    /// What to do about it; `None` if it stays valid for some time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Amounts of shared resources; 0 means no limit, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    pub cores: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk.
    pub disk: u64,
    /// Materials that a dealer makes at the same time.
    pub dealings: u64,
}

impl From<Resources> for Amounts {
    fn from(Resources { cores, memory, disk, dealings }: Resources) -> Self {
        let [memory, disk] = [memory, disk].map(|bytes| if bytes == u64::MAX { 0 } else { bytes });
        Self { cores: cores.into(), memory, disk, dealings: dealings.into() }
    }
}

/// Inputs by state: the four queues, and the two kinds of running jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Waiting for T_pre.
    pub pre: usize,
    /// Requested, and waiting for the T_pre of their notice.
    pub waiting: usize,
    /// Material is ready, the request is on its way.
    pub transit: usize,
    /// Material and request are ready: waiting for T_on.
    pub ready: usize,
    /// Running T_pre.
    pub running_pre: usize,
    /// Running T_on.
    pub running_on: usize,
}

impl From<Counts> for Queues {
    fn from(counts: Counts) -> Self {
        let [pre, waiting, transit, ready, running_pre, running_on] =
            [counts.pre, counts.waiting, counts.transit, counts.ready, counts.running_pre, counts.running_on]
                .map(|count| count as usize);
        Self { pre, waiting, transit, ready, running_pre, running_on }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct JobRow {
    /// Number since the start.
    pub id: u64,
    /// `setup`, `offline` or `online`.
    pub phase: &'static str,
    pub model: String,
    pub backend: String,
    #[serde(serialize_with = "as_text")]
    pub client: ClientId,
    /// The client's name in its certificate or in the access rules; empty if it has none.
    pub client_name: String,
    /// The client's name for the input, as in the client's log; `None` for stock and setups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    pub threads: usize,
    /// The most bytes that its threads held, once it has ended; 0 if unknown.
    pub memory: u64,
    #[serde(flatten)]
    pub times: JobTimes,
    /// How it ended: `done`, `refused` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct JobTimes {
    /// When its input was announced or asked for, whichever was first; for setups, `queued_s`.
    pub known_s: f64,
    /// When its client asked for it.
    pub queued_s: f64,
    pub started_s: f64,
    /// Expected duration at the start; `None` for setups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientRow {
    /// Fingerprint of its certificate.
    #[serde(serialize_with = "as_text")]
    pub client: ClientId,
    /// The client's name in its certificate or in the access rules; empty if it has none.
    pub client_name: String,
    pub connections: usize,
    /// Jobs asked for.
    pub requests: u64,
    pub done: u64,
    pub failed: u64,
    pub refused: u64,
    pub queued: usize,
    /// Inputs answered.
    pub inputs: u64,
    #[serde(flatten)]
    pub rates: AnswerRates,
}

impl ClientRow {
    /// A client that has done nothing yet.
    pub(crate) fn new(client: ClientId) -> Self {
        Self {
            client,
            client_name: String::new(),
            connections: 0,
            requests: 0,
            done: 0,
            failed: 0,
            refused: 0,
            queued: 0,
            inputs: 0,
            rates: AnswerRates::default(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelRow {
    pub name: String,
    pub backends: Vec<String>,
    /// Inputs answered.
    pub done: u64,
    #[serde(flatten)]
    pub rates: AnswerRates,
}

/// A pool: material of a model that a dealer made ahead of time, for no client yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolRow {
    pub model: String,
    pub backend: &'static str,
    /// Inputs that each material is for.
    pub inputs: u32,
    /// Number of ready materials.
    pub ready: usize,
    /// Number of materials being dealt.
    pub dealing: usize,
    /// Bytes on disk of the ready materials.
    pub bytes: u64,
}

/// How well the scheduler estimated a model's phase, over its last jobs (64 at most).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileRow {
    pub model: String,
    pub backend: &'static str,
    /// `offline` or `online`.
    pub phase: &'static str,
    /// Class of the client's device and link.
    pub device: String,
    pub jobs: usize,
    /// Mean expected duration, in seconds.
    pub expected_s: f64,
    /// Mean measured duration, in seconds.
    pub measured_s: f64,
    /// Median of |measured - expected| / measured.
    pub error_median: f64,
    /// 95th percentile of the same.
    pub error_p95: f64,
}

fn as_text<S: serde::Serializer>(client: &ClientId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(client)
}
