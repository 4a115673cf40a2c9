//! What a server tells of itself at one moment. Times are seconds since its start; nothing here is of inputs,
//! results or weights.
use serde::Serialize;
use tacit_ids::ClientId;
use tacit_sched::{Counts, Resources};

/// A server at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: &'static str,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// It takes no more requests.
    pub stopping: bool,
    /// Name of the policy.
    pub policy: String,
    /// What jobs may have in all.
    pub capacity: Amounts,
    /// What running jobs hold of it.
    pub used: Amounts,
    /// How many wait, and for what.
    pub queues: Queues,
    /// Running jobs, then the last that ended, newest first.
    pub jobs: Vec<JobRow>,
    /// Connected clients, and those that were not forgotten yet.
    pub clients: Vec<ClientRow>,
    /// Models on offer.
    pub models: Vec<ModelRow>,
    /// Material that was dealt ahead of time, for nobody yet.
    pub pools: Vec<PoolRow>,
    /// What phases of models on offer took against what they were expected to take.
    pub profile: Vec<ProfileRow>,
    /// D: mean seconds from an input's arrival to its answer, since the start.
    pub mean_delay_s: f64,
    /// W: mean seconds from an input's arrival to the start of its online phase.
    pub mean_waiting_s: f64,
    /// Inputs answered a second, over the last minute.
    pub throughput_per_s: f64,
    /// Clients' connections.
    pub connections: usize,
    /// Connections of this interface.
    pub control_connections: usize,
    /// Connections that have not said who they are.
    pub greetings: usize,
    /// How many of these there may be.
    pub greeting_places: usize,
    /// Connections and requests that were refused since the start.
    pub refusals: u64,
    /// The certificates that TLS goes by.
    pub certificates: Vec<CertificateRow>,
}

/// A certificate that the server uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateRow {
    /// `server`: its own; `ca`: that of who signs clients.
    pub name: &'static str,
    /// Its last second, in seconds since 1970.
    pub expires_s: u64,
    /// What is to be done about it; none if it is good for some time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Amounts of what jobs share; 0 is no limit, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Threads.
    pub cores: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk.
    pub disk: u64,
    /// Materials that a dealer makes at a time.
    pub dealings: u64,
}

impl From<Resources> for Amounts {
    fn from(Resources { cores, memory, disk, dealings }: Resources) -> Self {
        let [memory, disk] = [memory, disk].map(|bytes| if bytes == u64::MAX { 0 } else { bytes });
        Self { cores: cores.into(), memory, disk, dealings: dealings.into() }
    }
}

/// Inputs by state. The four queues, and the two kinds of running jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Wait for T_pre.
    pub pre: usize,
    /// Their request waits for the T_pre of its notice.
    pub waiting: usize,
    /// Material is there, the request is on its way.
    pub transit: usize,
    /// Material and request are there: wait for T_on.
    pub ready: usize,
    /// T_pre runs.
    pub running_pre: usize,
    /// T_on runs.
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

/// A job.
#[derive(Clone, Debug, Serialize)]
pub struct JobRow {
    /// Number since the start.
    pub id: u64,
    /// `setup`, `offline` or `online`.
    pub phase: &'static str,
    /// Model.
    pub model: String,
    /// Back end.
    pub backend: String,
    /// Whose.
    #[serde(serialize_with = "as_text")]
    pub client: ClientId,
    /// What people call it: the name in its certificate, or in the rules of access; empty if it has none.
    pub client_name: String,
    /// What its client calls the input, as its log does; none for stock and setups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Threads.
    pub threads: usize,
    /// The most bytes that its threads held, once it has ended; 0 is unknown.
    pub memory: u64,
    /// When its input was announced or asked for, whichever was first; of setups as `queued_s`.
    pub known_s: f64,
    /// When its client came for it.
    pub queued_s: f64,
    /// When it started.
    pub started_s: f64,
    /// How long it was expected to run when it started; none for setups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<f64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// How it ended: `done`, `refused` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

/// What one client does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientRow {
    /// Fingerprint of its certificate.
    #[serde(serialize_with = "as_text")]
    pub client: ClientId,
    /// What people call it: the name in its certificate, or in the rules of access; empty if it has none.
    pub client_name: String,
    /// Connections now.
    pub connections: usize,
    /// Jobs asked for.
    pub requests: u64,
    /// Jobs that were done.
    pub done: u64,
    /// Jobs that broke off.
    pub failed: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Jobs that wait.
    pub queued: usize,
    /// Inputs answered.
    pub inputs: u64,
    /// D of its inputs.
    pub mean_delay_s: f64,
    /// W of its inputs.
    pub mean_waiting_s: f64,
    /// Inputs of it answered a second, over the last minute.
    pub throughput_per_s: f64,
}

impl ClientRow {
    /// A client that has done nothing yet.
    pub(crate) fn of(client: ClientId) -> Self {
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
            mean_delay_s: 0.0,
            mean_waiting_s: 0.0,
            throughput_per_s: 0.0,
        }
    }
}

/// What one model does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelRow {
    /// Its name.
    pub name: String,
    /// Back ends that it is offered with.
    pub backends: Vec<String>,
    /// Inputs answered.
    pub done: u64,
    /// D of its inputs.
    pub mean_delay_s: f64,
    /// W of its inputs.
    pub mean_waiting_s: f64,
    /// Inputs of it answered a second, over the last minute.
    pub throughput_per_s: f64,
}

/// Material of a model that a dealer has dealt ahead of time, for nobody yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolRow {
    /// Model.
    pub model: String,
    /// Back end.
    pub backend: &'static str,
    /// Inputs that each is for.
    pub inputs: u32,
    /// How many lie ready.
    pub ready: usize,
    /// How many are being dealt.
    pub dealing: usize,
    /// What those that lie ready take on disk.
    pub bytes: u64,
}

/// How well the scheduler knew the times of a model's phase, over its last jobs (64 at most).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileRow {
    /// Model.
    pub model: String,
    /// Back end.
    pub backend: &'static str,
    /// `offline` or `online`.
    pub phase: &'static str,
    /// Class of the client's device and link.
    pub device: String,
    /// How many jobs.
    pub jobs: usize,
    /// Mean of what they were expected to take, in seconds.
    pub expected_s: f64,
    /// Mean of what they took, in seconds.
    pub measured_s: f64,
    /// Median of |measured - expected| / measured.
    pub error_median: f64,
    /// 95th percentile of the same.
    pub error_p95: f64,
}

fn as_text<S: serde::Serializer>(client: &ClientId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(client)
}
