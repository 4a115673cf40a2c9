//! The driver's record of jobs, clients and models since the start, for snapshots, metrics and
//! traces. Its size is bounded, however many requests arrive.
use crate::Catalog;
use crate::accept::identity::client_label;
use crate::jobs::estimates::phase_name;
use crate::jobs::queue::{OfferName, Planned};
use crate::jobs::quota::Bucket;
use crate::ops::ended::EndedPhase;
use crate::ops::metrics::{Metrics, PhaseLabels};
use crate::ops::snapshot::{AnswerRates, ClientRow, JobRow, JobTimes, ModelRow, PeerCounts, Snapshot};
use crate::ops::state::{Keeper, Row};
use crate::ops::traces::Traces;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tacit_admission::ConnectionId;
use tacit_client::measure::Figures;
use tacit_client::wire::{InputId, Request};
use tacit_ids::ClientId;
use tacit_net::Phase;
use tacit_sched::{JobPhase, Span};
use tacit_store::Binding;

const MAX_ENDED_JOBS: usize = 500;
const MAX_RUNNING_JOBS: usize = 500;
/// Most clients that are remembered; connected clients are never forgotten.
const MAX_CLIENTS: usize = 1024;
/// Refusals of one client that are recorded per minute: refusals are cheap to cause.
const REFUSALS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(60).expect("it is not zero");
/// Seconds over which throughput is averaged.
const WINDOW_S: u64 = 60;

/// A phase that a job has run.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) phase: Phase,
    pub(crate) figures: Figures,
    /// The most bytes that its threads held, where this was counted.
    pub(crate) memory: Option<u64>,
}

/// A job between its request and its end.
struct RecordedJob {
    id: u64,
    phase: Phase,
    labels: PhaseLabels,
    client: ClientId,
    client_name: Arc<str>,
    input: Option<InputId>,
    queued: Instant,
    /// When the job started, and its threads.
    started: Option<(Instant, usize)>,
    /// What the queue knew at the start; `None` if the job has not started or needs no turn.
    planned: Option<Planned>,
    fault: Option<&'static str>,
}

impl RecordedJob {
    fn ended(&self, measured: Option<&Measured>, outcome: &'static str, now: Instant) -> EndedPhase {
        EndedPhase {
            job: self.id,
            client: self.client,
            client_name: Arc::clone(&self.client_name),
            input: self.input,
            labels: self.labels.clone(),
            outcome,
            fault: self.fault,
            lasted: now.saturating_duration_since(self.queued),
            ran: self.started.map(|(start, threads)| (now.saturating_duration_since(start), threads)),
            traffic: measured.map(|m| [m.figures.sent_bytes, m.figures.received_bytes]),
            memory: measured.and_then(|m| m.memory),
        }
    }
}

#[derive(Default)]
struct Client {
    name: Arc<str>,
    connections: usize,
    queued: usize,
    requests: u64,
    done: u64,
    failed: u64,
    refused: u64,
    /// Number of the last job when the client was last active.
    last: u64,
    /// How many refusals of the client may be recorded now.
    refusal_budget: Option<Bucket>,
    answers: Answers,
}

#[derive(Default)]
struct Model {
    backends: Vec<String>,
    answers: Answers,
}

#[derive(Default)]
struct Answers {
    done: u64,
    delay_s: f64,
    waiting_s: f64,
    recent: Recent,
}

impl Answers {
    fn count(&mut self, second: u64, delay_s: f64, waiting_s: f64) {
        self.done += 1;
        self.delay_s += delay_s;
        self.waiting_s += waiting_s;
        self.recent.count(second);
    }

    /// The means are 0 without an answer.
    fn rates(&self, second: u64) -> AnswerRates {
        let [mean_delay_s, mean_waiting_s] =
            [self.delay_s, self.waiting_s].map(|sum| if self.done == 0 { 0.0 } else { sum / self.done as f64 });
        AnswerRates { mean_delay_s, mean_waiting_s, throughput_per_s: self.recent.per_second(second) }
    }
}

/// How many inputs were answered in each of the last seconds.
#[derive(Default)]
struct Recent(VecDeque<(u64, u64)>);

impl Recent {
    fn count(&mut self, second: u64) {
        match self.0.back_mut() {
            Some((last, n)) if *last == second => *n += 1,
            _ => self.0.push_back((second, 1)),
        }
        while self.0.front().is_some_and(|(first, _)| first + WINDOW_S <= second) {
            self.0.pop_front();
        }
    }

    fn per_second(&self, second: u64) -> f64 {
        let n: u64 = self.0.iter().filter(|(time, _)| time + WINDOW_S > second).map(|(_, n)| n).sum();
        n as f64 / WINDOW_S.min(second + 1) as f64
    }
}

pub(crate) struct Record {
    start: Instant,
    /// Model and back end by the digests of public part and plan.
    names: HashMap<([u8; 32], [u8; 32]), (String, String)>,
    jobs: u64,
    live: BTreeMap<ConnectionId, RecordedJob>,
    ended_jobs: VecDeque<JobRow>,
    clients: BTreeMap<ClientId, Client>,
    models: BTreeMap<String, Model>,
    answers: Answers,
    refusals: u64,
    metrics: Arc<Metrics>,
    keeper: Keeper,
    traces: Traces,
}

impl Record {
    /// An empty record. `keeper` takes rows that outlive this run, `traces` gets ended phases.
    pub(crate) fn new(catalog: &Catalog, metrics: Arc<Metrics>, keeper: Keeper, traces: Traces) -> Self {
        let mut new = Self {
            start: Instant::now(),
            names: HashMap::new(),
            jobs: 0,
            live: BTreeMap::new(),
            ended_jobs: VecDeque::new(),
            clients: BTreeMap::new(),
            models: BTreeMap::new(),
            answers: Answers::default(),
            refusals: 0,
            metrics,
            keeper,
            traces,
        };
        new.offer(catalog);
        new
    }

    /// Sets which models are on offer. Answers of withdrawn models stay in the sums.
    pub(crate) fn offer(&mut self, catalog: &Catalog) {
        self.names.clear();
        self.models.values_mut().for_each(|model| model.backends.clear());
        for offered in catalog.offered_models() {
            let (name, backend) = (&offered.name, offered.backend.to_owned());
            self.names.extend(offered.identities().map(|identity| (identity, (name.clone(), backend.clone()))));
            self.models.entry(name.clone()).or_default().backends.push(backend);
        }
    }

    /// Seconds since the start.
    fn secs(&self, time: Instant) -> f64 {
        time.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Returns a client's row. With too many clients, the least recently active idle one is
    /// forgotten.
    fn client(&mut self, client: ClientId) -> &mut Client {
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            let idle = self.clients.iter().filter(|(_, c)| c.connections == 0);
            let oldest = idle.min_by_key(|(_, c)| c.last).map(|(&client, _)| client);
            oldest.and_then(|oldest| self.clients.remove(&oldest));
        }
        let last = self.jobs;
        let row = self.clients.entry(client).or_default();
        row.last = last;
        row
    }

    /// Counts a connection. `name` is from the client's own certificate; `None` if a helper
    /// connects.
    pub(crate) fn record_connection(&mut self, client: ClientId, name: Option<Arc<str>>) {
        let row = self.client(client);
        row.connections += 1;
        row.name = name.unwrap_or_else(|| Arc::clone(&row.name));
    }

    /// A client's name and fingerprint: `alice (5f0c..)`.
    pub(crate) fn label_of(&self, client: ClientId) -> String {
        client_label(self.clients.get(&client).map_or("", |client| &*client.name), client)
    }

    pub(crate) fn record_disconnection(&mut self, client: ClientId) {
        let row = self.client(client);
        row.connections = row.connections.saturating_sub(1);
    }

    /// Records a client's request if it is for a job.
    pub(crate) fn record_request(
        &mut self,
        number: ConnectionId,
        client: ClientId,
        request: &Request,
        binding: Option<Binding>,
    ) {
        let phase = match request {
            Request::Setup => Phase::Setup,
            Request::Prepare { .. } | Request::Refill { .. } => Phase::Offline,
            Request::Infer { .. } => Phase::Online,
            _ => return,
        };
        self.jobs += 1;
        let row = self.client(client);
        row.requests += 1;
        // A request that names no model on offer is refused later.
        let Some(names) = binding.and_then(|b| self.names.get(&(b.model, b.plan))) else {
            return self.client(client).refused += 1;
        };
        let labels = PhaseLabels { phase: phase.name(), model: names.0.clone(), backend: names.1.clone() };
        let live = RecordedJob {
            id: self.jobs,
            phase,
            labels,
            client,
            client_name: Arc::clone(&self.client(client).name),
            input: request.input(),
            queued: Instant::now(),
            started: None,
            planned: None,
            fault: None,
        };
        self.live.insert(number, live);
        self.client(client).queued += 1;
    }

    pub(crate) fn record_start(&mut self, number: ConnectionId, threads: usize, planned: Option<Planned>) {
        let Some(live) = self.live.get_mut(&number) else { return };
        live.started = Some((Instant::now(), threads));
        live.planned = planned;
        let client = live.client;
        let row = self.client(client);
        row.queued = row.queued.saturating_sub(1);
    }

    /// Records a job's end: with its measurements, or refused.
    pub(crate) fn record_end(&mut self, number: ConnectionId, measured: Option<&Measured>) {
        let Some(live) = self.live.remove(&number) else { return };
        // A job either runs the phase that was asked for, or is refused.
        let measured = measured.filter(|m| m.phase == live.phase);
        if let Some(measured) = measured {
            self.metrics.record_phase(&live.labels, &measured.figures);
        }
        self.end(live, measured, if measured.is_some() { "done" } else { "refused" });
    }

    /// `delay_s` is the time from the input's arrival to its answer, `waiting_s` to its online
    /// phase.
    pub(crate) fn record_answer(&mut self, client: ClientId, offer: &OfferName, delay_s: f64, waiting_s: f64) {
        self.metrics.record_answer(&offer.model, offer.backend, delay_s, waiting_s);
        let second = self.start.elapsed().as_secs();
        self.answers.count(second, delay_s, waiting_s);
        self.client(client).answers.count(second, delay_s, waiting_s);
        if let Some(model) = self.models.get_mut(&*offer.model) {
            model.answers.count(second, delay_s, waiting_s);
        }
    }

    pub(crate) fn record_duration(&self, offer: &OfferName, phase: JobPhase, expected: Span, took: Span) {
        let labels =
            PhaseLabels { phase: phase_name(phase), model: offer.model.to_string(), backend: offer.backend.to_owned() };
        self.metrics.observe_profile_error(&labels, expected.secs(), took.secs());
    }

    pub(crate) fn record_draw(&self, offer: &OfferName, found: bool) {
        self.metrics.record_draw(&offer.model, offer.backend, found);
    }

    pub(crate) fn record_deviation(&mut self, number: ConnectionId, fault: &'static str) {
        if let Some(live) = self.live.get_mut(&number) {
            live.fault = Some(fault);
        }
    }

    /// Records the end of a connection, and of its job if there was one.
    pub(crate) fn record_failure(&mut self, number: ConnectionId) {
        if let Some(live) = self.live.remove(&number) {
            self.metrics.count_failure(&live.labels);
            self.end(live, None, "failed");
        }
    }

    /// Counts and logs the end of a job. Of many refusals of a client, only some are logged.
    fn end(&mut self, live: RecordedJob, measured: Option<&Measured>, outcome: &'static str) {
        let row = self.client(live.client);
        *match outcome {
            "done" => &mut row.done,
            "refused" => &mut row.refused,
            _ => &mut row.failed,
        } += 1;
        let now = Instant::now();
        let mut bucket = row.refusal_budget.unwrap_or_else(|| Bucket::full(now, REFUSALS_PER_MINUTE));
        let is_kept = outcome != "refused" || bucket.take(now, REFUSALS_PER_MINUTE, 1).is_ok();
        row.refusal_budget = Some(bucket);
        if live.started.is_none() {
            row.queued = row.queued.saturating_sub(1);
        }
        if is_kept {
            let ended = live.ended(measured, outcome, now);
            ended.log();
            self.traces.tell(&ended);
            self.keep(Row::Ended(ended));
        }
        if let Some(mut job) = self.row(&live) {
            job.memory = measured.and_then(|m| m.memory).unwrap_or(0);
            (job.times.ended_s, job.outcome) = (Some(self.secs(Instant::now())), Some(outcome));
            self.ended_jobs.truncate(MAX_ENDED_JOBS - 1);
            self.ended_jobs.push_front(job);
        }
    }

    pub(crate) fn keep(&self, row: Row) {
        self.keeper.keep(row);
    }

    /// Waits, for a limited time, until traces are sent and rows are on disk.
    pub(crate) fn close(&mut self) {
        self.traces.close();
        self.keeper.close();
    }

    /// The job's row; `None` if it has not started.
    fn row(&self, live: &RecordedJob) -> Option<JobRow> {
        let (started, threads) = live.started?;
        Some(JobRow {
            id: live.id,
            phase: live.labels.phase,
            model: live.labels.model.clone(),
            backend: live.labels.backend.clone(),
            client: live.client,
            client_name: live.client_name.to_string(),
            input: live.input.map(|name| name.to_string()),
            threads,
            memory: 0,
            times: JobTimes {
                known_s: self.secs(live.planned.map_or(live.queued, |planned| planned.known_since)),
                queued_s: self.secs(live.queued),
                started_s: self.secs(started),
                expected_s: live.planned.map(|planned| planned.expected.secs()),
                ended_s: None,
            },
            outcome: None,
        })
    }

    pub(crate) fn record_refusal(&mut self, kind: &'static str) {
        self.refusals += 1;
        self.metrics.count_refusal(kind);
    }

    /// Returns a snapshot of the record; other fields keep their defaults.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let running = self.live.values().filter_map(|live| self.row(live));
        let jobs: Vec<JobRow> = running.take(MAX_RUNNING_JOBS).chain(self.ended_jobs.iter().cloned()).collect();
        let now = Instant::now();
        let second = self.secs(now) as u64;
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: self.secs(now),
            jobs,
            clients: self.client_rows(second),
            models: self.model_rows(second),
            rates: self.answers.rates(second),
            peers: PeerCounts { refusals: self.refusals, ..PeerCounts::default() },
            ..Snapshot::default()
        }
    }

    fn model_rows(&self, second: u64) -> Vec<ModelRow> {
        let on_offer = self.models.iter().filter(|(_, model)| !model.backends.is_empty());
        let rows = on_offer.map(|(name, Model { backends, answers })| ModelRow {
            name: name.clone(),
            backends: backends.clone(),
            done: answers.done,
            rates: answers.rates(second),
        });
        rows.collect()
    }

    fn client_rows(&self, second: u64) -> Vec<ClientRow> {
        let rows = self.clients.iter().map(|(&client, row)| ClientRow {
            client,
            client_name: row.name.to_string(),
            connections: row.connections,
            requests: row.requests,
            done: row.done,
            failed: row.failed,
            refused: row.refused,
            queued: row.queued,
            inputs: row.answers.done,
            rates: row.answers.rates(second),
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests;
