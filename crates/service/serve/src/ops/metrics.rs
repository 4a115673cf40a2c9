//! Figures for monitoring systems (OpenMetrics). Label values come from the catalog and fixed lists
//! only, so that clients cannot increase their number.
use crate::ops::snapshot::{Amounts, Queues, Snapshot};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tacit_client::measure::Figures;
use tacit_store::Counts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PhaseLabels {
    /// `setup`, `offline` or `online`.
    pub(crate) phase: &'static str,
    pub(crate) model: String,
    pub(crate) backend: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    backend: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolDrawLabels {
    model: String,
    backend: String,
    name: &'static str,
}

const FOUND: &str = "found";
const EMPTY: &str = "empty";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: &'static str,
}

type Real = Gauge<f64, AtomicU64>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Counters and histograms are updated by events, gauges when the text is asked for.
pub(crate) struct Metrics {
    registry: Registry,
    delay: Histograms<ModelLabels>,
    waiting: Histograms<ModelLabels>,
    phase_time: Histograms<PhaseLabels>,
    profile_error: Histograms<PhaseLabels>,
    dispatch: Histogram,
    counters: Counters,
    gauges: Gauges,
}

#[derive(Default)]
struct Counters {
    served: Family<ModelLabels, Counter>,
    failed: Family<PhaseLabels, Counter>,
    refused: Family<NameLabel, Counter>,
    sent: Family<PhaseLabels, Counter>,
    received: Family<PhaseLabels, Counter>,
    pool_draws: Family<PoolDrawLabels, Counter>,
}

#[derive(Default)]
struct Gauges {
    connections: Family<NameLabel, Gauge>,
    greeting_places: Gauge,
    jobs: Family<NameLabel, Gauge>,
    cores: Family<NameLabel, Gauge>,
    dealings: Family<NameLabel, Gauge>,
    memory: Family<NameLabel, Gauge>,
    disk: Family<NameLabel, Gauge>,
    materials: Family<NameLabel, Gauge>,
    pooled: Family<ModelLabels, Gauge>,
    stored: Gauge,
    uptime: Real,
    expiry: Family<NameLabel, Gauge>,
}

/// Buckets from a millisecond to nine minutes.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

/// Buckets from one hundredth to twenty.
fn ratios() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 12))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut new = Self {
            registry: Registry::with_prefix("tacit"),
            delay: Histograms::new_with_constructor(times),
            waiting: Histograms::new_with_constructor(times),
            phase_time: Histograms::new_with_constructor(times),
            profile_error: Histograms::new_with_constructor(ratios),
            // From ten microseconds to a second.
            dispatch: Histogram::new(exponential_buckets(0.000_01, 2.0, 18)),
            counters: Counters::default(),
            gauges: Gauges::default(),
        };
        new.register_all();
        new
    }

    fn register_all(&mut self) {
        let Self { registry, counters, gauges, .. } = self;
        registry.register("server", "Version of the program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("served_inputs", "Inputs answered", counters.served.clone());
        registry.register("failed_jobs", "Jobs that failed", counters.failed.clone());
        registry.register("refusals", "Connections and requests refused, by kind", counters.refused.clone());
        registry.register("connections", "Connections now, by kind", gauges.connections.clone());
        registry.register("greeting_places", "Limit on unauthenticated connections", gauges.greeting_places.clone());
        registry.register("jobs", "Inputs now, by state", gauges.jobs.clone());
        registry.register("materials", "Materials in the ledger, by state", gauges.materials.clone());
        registry.register("pooled_materials", "Ready materials that are for no client yet", gauges.pooled.clone());
        registry.register(
            "pool_draws",
            "Offline phases that could use pooled material, by result",
            counters.pool_draws.clone(),
        );
        registry.register("cores", "Threads used and available", gauges.cores.clone());
        registry.register(
            "dealings",
            "Materials that a dealer makes at this time, and their limit",
            gauges.dealings.clone(),
        );
        let (delay, waiting) = (self.delay.clone(), self.waiting.clone());
        let s = Unit::Seconds;
        registry.register_with_unit("delay", "From an input's arrival to its answer (D)", s.clone(), delay);
        registry.register_with_unit("waiting", "From an input's arrival to its online phase (W)", s.clone(), waiting);
        registry.register_with_unit("phase", "Wall time of phases", s.clone(), self.phase_time.clone());
        let (error, ratio) =
            ("Absolute error of the expected time of a phase, relative to its time", "ratio".to_owned());
        registry.register_with_unit("profile_error", error, Unit::Other(ratio), self.profile_error.clone());
        let dispatch = "From the decision that a phase starts to its first byte to the client";
        registry.register_with_unit("dispatch", dispatch, s.clone(), self.dispatch.clone());
        let expiry = "Last second of the certificates in use, since 1970";
        registry.register_with_unit("certificate_expiry_timestamp", expiry, s.clone(), gauges.expiry.clone());
        registry.register_with_unit("uptime", "Time since the start", s, gauges.uptime.clone());
        let (sent, received, b) = (counters.sent.clone(), counters.received.clone(), Unit::Bytes);
        registry.register_with_unit("link_sent", "Bytes sent to clients, without TLS overhead", b.clone(), sent);
        registry.register_with_unit(
            "link_received",
            "Bytes received from clients, without TLS overhead",
            b.clone(),
            received,
        );
        registry.register_with_unit(
            "memory",
            "Memory used by jobs and available to them",
            b.clone(),
            gauges.memory.clone(),
        );
        let disk = "Disk used and available for inputs in progress";
        registry.register_with_unit("disk", disk, b.clone(), gauges.disk.clone());
        registry.register_with_unit("stored", "Disk used by ready material", b, gauges.stored.clone());
    }

    pub(crate) fn record_phase(&self, labels: &PhaseLabels, figures: &Figures) {
        self.phase_time.get_or_create(labels).observe(figures.wall_s);
        self.counters.sent.get_or_create(labels).inc_by(figures.sent_bytes);
        self.counters.received.get_or_create(labels).inc_by(figures.received_bytes);
    }

    /// From the decision to start a phase to the message to its client.
    pub(crate) fn record_dispatch(&self, delay: Duration) {
        self.dispatch.observe(delay.as_secs_f64());
    }

    /// `took_s` is more than 0.
    pub(crate) fn observe_profile_error(&self, labels: &PhaseLabels, expected_s: f64, took_s: f64) {
        self.profile_error.get_or_create(labels).observe((took_s - expected_s).abs() / took_s);
    }

    pub(crate) fn record_answer(&self, model: &str, backend: &str, delay_s: f64, waiting_s: f64) {
        let labels = ModelLabels { model: model.to_owned(), backend: backend.to_owned() };
        self.counters.served.get_or_create(&labels).inc();
        self.delay.get_or_create(&labels).observe(delay_s);
        self.waiting.get_or_create(&labels).observe(waiting_s);
    }

    pub(crate) fn record_draw(&self, model: &str, backend: &str, found: bool) {
        let name = if found { FOUND } else { EMPTY };
        let labels = PoolDrawLabels { model: model.to_owned(), backend: backend.to_owned(), name };
        self.counters.pool_draws.get_or_create(&labels).inc();
    }

    pub(crate) fn count_failure(&self, labels: &PhaseLabels) {
        self.counters.failed.get_or_create(labels).inc();
    }

    pub(crate) fn count_refusal(&self, kind: &'static str) {
        self.counters.refused.get_or_create(&NameLabel { name: kind }).inc();
    }

    /// Returns all figures as text; gauges show the snapshot and the ledger's counts.
    pub(crate) fn text(&self, snapshot: &Snapshot, ledger: &Counts) -> String {
        let (gauges, Counts { ready, ready_bytes, unsettled, burnt }) = (&self.gauges, *ledger);
        let materials = [("ready", ready), ("unsettled", unsettled), ("burnt", burnt)];
        materials.into_iter().for_each(|(name, n)| set(&gauges.materials, name, n));
        gauges.stored.set(to_gauge(ready_bytes));
        gauges.pooled.clear();
        for row in &snapshot.pools {
            let labels = ModelLabels { model: row.model.clone(), backend: row.backend.to_owned() };
            gauges.pooled.get_or_create(&labels).inc_by(row.ready as i64);
            for name in [FOUND, EMPTY] {
                let (model, backend) = (row.model.clone(), row.backend.to_owned());
                // Creates the counter, so that it appears even at 0.
                self.counters.pool_draws.get_or_create(&PoolDrawLabels { model, backend, name }).inc_by(0);
            }
        }
        let Snapshot { peers, scheduling, .. } = snapshot;
        let connections =
            [("client", peers.connections), ("control", peers.control_connections), ("unknown", peers.greetings)];
        connections.into_iter().for_each(|(name, n)| set(&gauges.connections, name, n as u64));
        gauges.greeting_places.set(peers.greeting_places as i64);
        let Queues { pre, waiting, transit, ready, running_pre, running_on } = scheduling.queues;
        let jobs = [
            ("pre", pre),
            ("waiting", waiting),
            ("transit", transit),
            ("ready", ready),
            ("running_pre", running_pre),
            ("running_on", running_on),
        ];
        jobs.into_iter().for_each(|(name, n)| set(&gauges.jobs, name, n as u64));
        for (name, Amounts { cores, memory, disk, dealings }) in
            [("used", scheduling.used), ("capacity", scheduling.capacity)]
        {
            set(&gauges.cores, name, cores);
            set(&gauges.dealings, name, dealings);
            set(&gauges.memory, name, memory);
            set(&gauges.disk, name, disk);
        }
        snapshot.certificates.iter().for_each(|row| set(&gauges.expiry, row.name, row.expires_s));
        gauges.uptime.set(snapshot.uptime_s);
        let mut output = String::new();
        text::encode(&mut output, &self.registry).expect("a String takes everything");
        output
    }
}

fn set(family: &Family<NameLabel, Gauge>, name: &'static str, value: u64) {
    family.get_or_create(&NameLabel { name }).set(to_gauge(value));
}

fn to_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
