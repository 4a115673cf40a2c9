//! An experiment file as written: keys, defaults, nothing checked yet.
use crate::LabError;
use crate::link::LinkSpecText;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Largest experiment file, bytes.
pub const MAX_FILE: usize = 1 << 20;

/// An experiment file (TOML). [`Experiment`](super::Experiment) once checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSpec {
    /// Its name: letters, digits, `.`, `-`, `_`, `+`, at most 64.
    pub name: String,
    /// What it is for, one sentence.
    #[serde(default)]
    pub description: String,
    /// Measured runs of each cell, 1 to 10000. Default 10, as [PM24].
    #[serde(default = "defaults::repetitions")]
    pub repetitions: u32,
    /// Runs of each cell before the measured ones, done and discarded, 0 to 100.
    #[serde(default)]
    pub warm_up: u32,
    /// Pause before each run, seconds, 0 to 3600.
    #[serde(default = "defaults::cool_down_s")]
    pub cool_down_s: f64,
    /// Whether the cells are run in a new random order in each repetition, so that drift hits all alike.
    #[serde(default = "defaults::yes")]
    pub randomise: bool,
    /// Decides the order; drawn and recorded where absent.
    pub seed: Option<u64>,
    /// Sampling interval, seconds, 0.001 to 60. Default 1, as [PM24].
    #[serde(default = "defaults::interval_s")]
    pub interval_s: f64,
    /// Length of the idle baseline, before and after the runs, seconds; 0 takes none.
    #[serde(default = "defaults::idle_s")]
    pub idle_s: f64,
    /// Power sources: names as in `tacit lab sensors`, `auto` for all that are found.
    #[serde(default = "defaults::sources")]
    pub sources: Vec<String>,
    /// Device profile whose coefficients give modelled joules where no sensor is found: `PROFILE` or
    /// `PROFILE/MODE`, a built-in one or a file that ends in .toml. Absent: then there are no joules.
    pub device: Option<String>,
    /// Longest time that a run's programs may take, seconds; then both are killed and the run has failed.
    #[serde(default = "defaults::timeout_s")]
    pub timeout_s: f64,
    /// Fewer repetitions of cells whose runs are long; of the entries that a cell's run exceeds the last
    /// counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fewer: Vec<Fewer>,
    /// What `{seconds}` stands for, seconds.
    #[serde(default = "defaults::seconds")]
    pub seconds: f64,
    /// How long the link is measured before each run, seconds, 0 to 60; 0 leaves it out. Default 3.
    #[serde(default = "defaults::measure_s")]
    pub measure_s: f64,
    /// Transports: plain, tls, wireguard, tls+wireguard.
    #[serde(default = "defaults::transports")]
    pub transports: Vec<String>,
    /// Paces: `none` or a rate that the programs are told to keep to.
    #[serde(default = "defaults::paces")]
    pub paces: Vec<String>,
    /// Links: presets, `none` (both programs on this host, over loopback), or tables.
    pub links: Vec<LinkText>,
    /// Further placeholders and what they stand for; may use `{campaign}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// What runs.
    pub workloads: Vec<WorkloadSpec>,
}

/// How often long runs are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fewer {
    /// Runs that are expected to take longer than this, seconds.
    pub above_s: f64,
    /// Measured runs of such a cell; 0: none, it is left to a prediction.
    pub repetitions: u32,
}

/// What runs in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name, as the experiment's.
    pub name: String,
    /// The client's command line; the run ends when it does.
    pub client: String,
    /// The server's command line; absent where there is none.
    pub server: Option<String>,
    /// The command line of a dealer, which is started before the server, on its side; it prints `listening`
    /// when it is ready.
    pub dealer: Option<String>,
    /// What the server prints on its standard output once it is ready; where absent, it is when it listens at
    /// `{port}`.
    pub ready: Option<String>,
    /// Environment variables of both programs, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// For the estimate of the campaign's length: seconds that a run takes on an endless link. Default
    /// `seconds` where a command uses it, else 1.
    pub takes_s: Option<f64>,
    /// For the estimate: bytes that a run moves over the link.
    #[serde(default)]
    pub moves_bytes: u64,
    /// For the estimate: round trips that a run waits for.
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
    /// By hand, since an untagged enum would not say what is wrong inside the table.
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
    /// Reads an experiment's TOML text; `what` names it in errors.
    ///
    /// # Errors
    /// [`LabError::Spec`] with the line, for what is no TOML, an unknown or missing key, a value of a wrong
    /// type.
    pub fn from_toml(what: &str, text: &str) -> Result<Self, LabError> {
        let wrong = |detail: String| LabError::Spec { what: what.into(), detail };
        if text.len() > MAX_FILE {
            return Err(wrong(format!("{} bytes; an experiment file has at most {MAX_FILE}", text.len())));
        }
        toml::from_str(text).map_err(|e| wrong(e.to_string().trim_end().to_owned()))
    }

    /// As TOML text, all defaults filled in.
    ///
    /// # Errors
    /// [`LabError::Spec`] for a number that TOML cannot hold (above 2^63).
    pub fn to_toml(&self) -> Result<String, LabError> {
        toml::to_string(self).map_err(|e| LabError::Spec { what: self.name.clone(), detail: e.to_string() })
    }

    /// The keys in which two experiments differ, with both values; empty where they are the same.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let table = |spec: &Self| toml::Table::try_from(spec).unwrap_or_default();
        let (a, b) = (table(self), table(other));
        let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        let show = |table: &toml::Table, key: &str| table.get(key).map_or("absent".into(), ToString::to_string);
        keys.into_iter()
            .filter(|k| a.get(*k) != b.get(*k))
            .map(|k| format!("`{k}` is {} there and {} here", show(&a, k), show(&b, k)))
            .collect()
    }

    /// A small version, to see whether everything works: two repetitions, short baselines, no pauses.
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
