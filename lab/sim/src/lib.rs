//! The scheduler in virtual time: `tacit_sched::Scheduler` with a heap of events instead of a
//! machine.
//!
//! A [`Scenario`] (machine, models, policy, [`Workload`]) and a seed give a [`Run`]. [`Summary`]
//! has its figures, [`RunFile`] the whole run as JSON. [`Cell`] has the figures over many seeds;
//! [`grids`], [`sweeps`] and [`table2`] compare cells. The same seed gives the same numbers on every
//! machine. A [`Recording`] is a run of a real server, and a [`Comparison`] compares it with its
//! simulation.
#![forbid(unsafe_code)]

pub mod grids;
pub mod sweeps;
pub mod table2;

mod cell;
mod cluster;
mod compared;
mod engine;
mod error;
mod metrics;
mod output;
mod profile;
mod recorded;
mod scenario;
mod workload;

pub use cell::Cell;
pub use cluster::{ClusterSpec, ClusterSummary, Death, Placement};
pub use compared::{Comparison, TOLERANCE, ratio};
pub use engine::{JobRecord, QueueSample, Run};
pub use error::SimError;
pub use metrics::{Interval, Metrics, Summary};
pub use output::RunFile;
pub use profile::ProfileFile;
pub use recorded::{RecordedInput, RecordedJob, Recording};
pub use scenario::{RequestTimes, Scenario, Stock};
pub use workload::{Arrival, Arrivals, Batches, Mix, Workload, parse_trace};
