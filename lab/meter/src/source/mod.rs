//! Power sources behind one trait, with detection and a self-test.
//!
//! [`detect`] searches for all of them, [`open`] opens one by name.
pub mod calibrate;
mod counter;
pub mod csv;
mod detect;
mod detected;
mod exercise;
pub mod http;
mod hwmon;
mod ina3221;
pub mod mlperf;
mod model;
mod nvml;
pub mod pmic;
mod poll;
mod rails;
mod rapl;
pub mod replay;
mod selftest;
mod sysfs;
pub mod tegrastats;
pub mod trace;
mod tree;

pub use detect::{Roots, detect, open};
pub use detected::{Detected, Outcome};
pub use exercise::{Exercise, Load, ThisMachine};
pub use model::Model;
pub use selftest::{Level, SelfTest, SelfTestReport, self_test};
pub use tree::{Disk, MemoryTree, Tree};

use crate::MeterError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Origin of a figure in joules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// A sensor measured exactly the energy of the figure's subject.
    Measured,
    /// A sensor measured more than that (a host with both parties on it); the figure is a share by
    /// processor time.
    Attributed,
    /// No sensor: computed from processor seconds, bytes and time with coefficients, or replayed
    /// from an earlier trace.
    Modelled,
}

impl Rail {
    /// A rail that counts.
    #[must_use]
    pub fn counted(name: impl Into<String>) -> Self {
        Self { name: name.into(), counted: true }
    }
}

impl SourceInfo {
    /// A source that measures.
    #[must_use]
    pub fn measured(name: impl Into<String>, rails: Vec<Rail>, min_interval_ms: u32) -> Self {
        Self { name: name.into(), provenance: Provenance::Measured, rails, min_interval_ms }
    }
}

impl Provenance {
    /// The name in records: `measured`, `attributed`, `modelled`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Attributed => "attributed",
            Self::Modelled => "modelled",
        }
    }
}

/// One rail (supply line, zone, board) of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rail {
    /// The rail's own name: `package-0`, `VDD_IN`.
    pub name: String,
    /// Whether the rail counts towards the host's total, of which it is no part that counts
    /// already.
    pub counted: bool,
}

/// Description of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Unique on the host, for selection and in records: `rapl`, `hwmon:ina3221x`, `external:/run/meter.csv`.
    pub name: String,
    /// Origin of its joules.
    pub provenance: Provenance,
    /// Its rails, in the order of [`Source::read`]'s values.
    pub rails: Vec<Rail>,
    /// Shortest useful sampling interval in milliseconds: the sensor's own update period.
    pub min_interval_ms: u32,
}

/// One rail's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Power now, in watts.
    Watts(f64),
    /// Energy since the source was opened, in joules; never decreases (counter wraps are already undone).
    Joules(f64),
    /// The rail gave no value (vanished, unreadable).
    Missing,
}

/// Resource use of the host since the sampler started; the model computes joules from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Time since the sampler started.
    pub elapsed: Duration,
    /// Processor seconds, all cores, all modes except idle.
    pub cpu_s: f64,
    /// Bytes over the counted network interfaces, both ways.
    pub bytes: u64,
}

/// A source of power or energy readings.
pub trait Source: Send {
    /// Description of the source.
    fn info(&self) -> &SourceInfo;

    /// Reads all rails; returns one value per rail of [`SourceInfo::rails`], in that order.
    ///
    /// # Errors
    /// [`MeterError`] if no rail can be read. The sampler notes the error and continues: a later
    /// read may succeed.
    fn read(&mut self, usage: &Usage) -> Result<Vec<Value>, MeterError>;
}
