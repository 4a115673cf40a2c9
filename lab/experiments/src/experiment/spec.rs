//! An experiment file as written: keys and defaults, unchecked.
use crate::LabError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tacit_net::link::LinkSpecText;

/// Largest experiment file, bytes.
pub const MAX_FILE: usize = 1 << 20;

/// An experiment file (TOML). Its checked form is [`Experiment`](super::Experiment).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSpec {
    /// Its name: letters, digits, `.`, `-`, `_`, `+`, at most 64.
    pub name: String,
    /// Purpose, one sentence.
    #[serde(default)]
    pub description: String,
    /// Measured runs of each cell, 1 to 10000. Default 10, as [PM24].
    #[serde(default = "defaults::repetitions")]
    pub repetitions: u32,
    /// Discarded runs of each cell before the measured ones, 0 to 100.
    #[serde(default)]
    pub warm_up: u32,
    /// Pause before each run, seconds, 0 to 3600.
    #[serde(default = "defaults::cool_down_s")]
    pub cool_down_s: f64,
    /// Whether each repetition has a new random order of cells, so that drift affects all alike.
    #[serde(default = "defaults::yes")]
    pub randomise: bool,
    /// Seed of the order; drawn and recorded if absent.
    pub seed: Option<u64>,
    /// Sampling interval, seconds, 0.001 to 60. Default 1, as [PM24].
    #[serde(default = "defaults::interval_s")]
    pub interval_s: f64,
    /// Length of the idle baseline, before and after the runs, seconds; 0 for none.
    #[serde(default = "defaults::idle_s")]
    pub idle_s: f64,
    /// Power sources: names as in `tacit lab sensors`, or `auto` for all found ones.
    #[serde(default = "defaults::sources")]
    pub sources: Vec<String>,
    /// Device profile for modelled joules without a sensor: `PROFILE` or `PROFILE/MODE`, a built-in
    /// one or a file that ends in .toml.
    pub device: Option<String>,
    /// Longest time of a run's programs, seconds; then both are killed, and the run has failed.
    #[serde(default = "defaults::timeout_s")]
    pub timeout_s: f64,
    /// Fewer repetitions of cells with long runs; the last entry that a cell's run exceeds applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fewer: Vec<Fewer>,
    /// Value of `{seconds}`, seconds.
    #[serde(default = "defaults::seconds")]
    pub seconds: f64,
    /// Length of the link's measurement before each run, seconds, 0 to 60; 0 for none. Default 3.
    #[serde(default = "defaults::measure_s")]
    pub measure_s: f64,
    /// Transports: plain, tls, wireguard, tls+wireguard.
    #[serde(default = "defaults::transports")]
    pub transports: Vec<String>,
    /// Paces: `none` or a rate limit for the programs.
    #[serde(default = "defaults::paces")]
    pub paces: Vec<String>,
    /// Links: presets, `none` (both programs on this host, over loopback), or tables.
    pub links: Vec<LinkText>,
    /// Further placeholders and their values; may use `{campaign}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// The programs to run.
    pub workloads: Vec<WorkloadSpec>,
}

/// Number of runs for long runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fewer {
    /// Expected duration above which the entry applies, seconds.
    pub above_s: f64,
    /// Measured runs of such a cell; 0 leaves the cell to a prediction.
    pub repetitions: u32,
}

/// The programs of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name, as the experiment's.
    pub name: String,
    /// The client's command line; its end is the end of the run.
    pub client: String,
    /// The server's command line, if any.
    pub server: Option<String>,
    /// The command line of a dealer, which starts before the server, on the server's side, and
    /// prints `listening` when ready.
    pub dealer: Option<String>,
    /// Text that the server prints on its standard output when ready; without it, the server is
    /// ready when it listens at `{port}`.
    pub ready: Option<String>,
    /// Environment variables of both programs, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Estimated seconds of a run on an unlimited link. Default `seconds` if a command uses it, else 1.
    pub takes_s: Option<f64>,
    /// Estimated bytes that a run moves over the link.
    #[serde(default)]
    pub moves_bytes: u64,
    /// Estimated round trips that a run waits for.
    #[serde(default)]
    pub round_trips: f64,
}

/// A link in an experiment file: a preset's name, or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LinkText {
    /// A preset, or `none`.
    Name(String),
    /// A table.
    Table(LinkSpecText),
}

impl<'de> Deserialize<'de> for LinkText {
    /// By hand, since an untagged enum would not report errors inside the table.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = LinkText;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a link: the name of a preset, or a table like { rate = \"20mbit\", rtt = \"40ms\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LinkText, E> {
                Ok(LinkText::Name(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LinkText, A::Error> {
                LinkSpecText::deserialize(MapAccessDeserializer::new(map)).map(LinkText::Table)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl ExperimentSpec {
    /// Parses an experiment's TOML text; `subject` names it in errors.
    ///
    /// # Errors
    /// [`LabError::Spec`] with the line, for invalid TOML, an unknown or missing key, or a value of
    /// a wrong type.
    pub fn from_toml(subject: &str, text: &str) -> Result<Self, LabError> {
        if text.len() > MAX_FILE {
            let detail = format!("{} bytes; an experiment file has at most {MAX_FILE}", text.len());
            return Err(LabError::spec(subject, detail));
        }
        toml::from_str(text).map_err(|e| LabError::spec(subject, e.to_string().trim_end()))
    }

    /// The TOML text with all defaults filled in.
    ///
    /// # Errors
    /// [`LabError::Spec`] for a number that TOML cannot hold (above 2^63).
    pub fn to_toml(&self) -> Result<String, LabError> {
        toml::to_string(self).map_err(|e| LabError::Spec { what: self.name.clone(), detail: e.to_string() })
    }

    /// The keys in which two experiments differ, with both values; empty if equal.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (a, b) = (table(self), table(other));
        let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        keys.into_iter()
            .filter(|k| a.get(*k) != b.get(*k))
            .map(|k| format!("`{k}` is {} there and {} here", format_value(&a, k), format_value(&b, k)))
            .collect()
    }

    /// Shortens the experiment for a quick check: two repetitions, short baselines, no pauses.
    pub fn make_quick(&mut self) {
        self.repetitions = self.repetitions.min(2);
        self.warm_up = 0;
        self.cool_down_s = 0.0;
        self.idle_s = self.idle_s.min(2.0);
        self.seconds = self.seconds.min(2.0);
        self.interval_s = self.interval_s.min(0.1);
        self.measure_s = self.measure_s.min(1.0);
    }
}

fn table(spec: &ExperimentSpec) -> toml::Table {
    toml::Table::try_from(spec).unwrap_or_default()
}

fn format_value(table: &toml::Table, key: &str) -> String {
    table.get(key).map_or("absent".into(), ToString::to_string)
}

mod defaults {
    pub(super) fn repetitions() -> u32 {
        10
    }
    pub(super) fn cool_down_s() -> f64 {
        1.0
    }
    pub(super) fn yes() -> bool {
        true
    }
    pub(super) fn interval_s() -> f64 {
        1.0
    }
    pub(super) fn idle_s() -> f64 {
        10.0
    }
    pub(super) fn sources() -> Vec<String> {
        vec!["auto".into()]
    }
    pub(super) fn timeout_s() -> f64 {
        600.0
    }
    pub(super) fn seconds() -> f64 {
        10.0
    }
    pub(super) fn measure_s() -> f64 {
        3.0
    }
    pub(super) fn transports() -> Vec<String> {
        vec!["plain".into()]
    }
    pub(super) fn paces() -> Vec<String> {
        vec!["none".into()]
    }
}
