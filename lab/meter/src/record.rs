//! The record format, version 1: JSON Lines, one [`Line`] each, written as it is measured.
//!
//! The first line is the [`Header`]; samples, marks and notes follow in the order of time; the last
//! line of a complete record is the [`Summary`]. A truncated record (full disk, crash) is readable
//! up to its last whole line. Readers ignore unknown fields, so that later versions can add some;
//! `version` rises when the meaning of a field changes.
use crate::source::SourceInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use tacit_measure::mark::Edge;
pub use tacit_measure::sample::{CoreSample, InterfaceSample, PartySample};

/// `format` of every header.
pub const FORMAT: &str = "tacit-record";
/// `version` of every header written here.
pub const VERSION: u32 = 1;

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// First line.
    Header(Header),
    /// One sample.
    Sample(Sample),
    /// A phase began or ended.
    Mark(Mark),
    /// A remark about the record: a source that failed, a clock offset.
    Note(Note),
    /// Last line.
    Summary(Summary),
}

/// The measured host and the settings of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name of the measured host.
    pub host: String,
    /// Wall-clock time of `t = 0`, nanoseconds since 1970 (UTC).
    pub started_unix_ns: u64,
    /// Requested sampling interval, in seconds.
    pub interval_s: f64,
    /// Power sources, the first being the primary one. Empty where the host has none.
    pub sources: Vec<SourceInfo>,
    /// Facts about the machine: CPU, governor, kernel, versions.
    pub machine: BTreeMap<String, String>,
    /// Labels that distinguish this record from others of the same experiment:
    /// `{"rate": "20mbit", "repetition": "3"}`.
    pub labels: BTreeMap<String, String>,
}

/// The state at time `t`. All counters are cumulative since `t = 0`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the record's start, monotonic.
    pub t: f64,
    /// By source name, one entry for each rail in the header's order. A source that was not read at
    /// this time is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power: BTreeMap<String, Vec<RailSample>>,
    /// By party (`client`, `server`): its process tree.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parties: BTreeMap<String, PartySample>,
    /// Per core, in the kernel's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreSample>,
    /// Memory in use on the host, bytes (total minus available).
    #[serde(default)]
    pub memory_bytes: u64,
    /// By network interface; `PARTY:NAME` for a party in its own network namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceSample>,
}

/// One rail of one source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RailSample {
    /// Mean power since the previous sample (of a counter), or the reading itself (of a power
    /// sensor), watts. Absent without a value, and for a counter's first reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub w: Option<f64>,
    /// Energy since `t = 0`, joules (power sources: integrated by the trapezoidal rule).
    pub j: f64,
}

/// A phase's begin or end, reported by the measured program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds since the record's start, on this record's clock.
    pub t: f64,
    /// The party that reported it: `client`, `server`.
    pub party: String,
    /// `setup`, `offline`, `online`, or a name that the program chose.
    pub phase: String,
    /// Begin or end.
    pub edge: Edge,
    /// The program's own counts of bytes and messages, and other figures: `{"sent_bytes": 1.0e6}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// A remark inside a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Seconds since the record's start.
    pub t: f64,
    /// The remark.
    pub text: String,
}

/// Figures over the whole record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Length of the record, seconds.
    pub duration_s: f64,
    /// Energy of the host over the record by source; empty where the host has no source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub energy: BTreeMap<String, EnergyFigure>,
    /// Energy by party, if available (one host per party: measured; both on one: attributed; no
    /// sensor: modelled).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub party_energy: BTreeMap<String, EnergyFigure>,
    /// Last state of each party's process tree, with its peak resident set in `rss_bytes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parties: BTreeMap<String, PartySample>,
    /// Named results of the workload: `{"latency_s": 1.2, "goodput_bps": 1.9e7, "sent_bytes": 1e6}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, f64>,
}

/// An amount of energy and its uncertainty. Net is gross minus idle power times duration ([PM24]
/// section 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyFigure {
    /// Whether it was measured, attributed or modelled.
    pub provenance: crate::source::Provenance,
    /// Total energy, joules.
    pub gross_j: f64,
    /// Idle energy over the same time, joules; absent without an idle baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_j: Option<f64>,
    /// Gross minus idle, joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_j: Option<f64>,
    /// Standard uncertainty of `net_j`, joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_sd_j: Option<f64>,
    /// Mean gross power, watts.
    pub mean_w: f64,
    /// Whether `net_j` is smaller than twice its uncertainty, and so has no meaning.
    #[serde(default)]
    pub below_noise: bool,
}
