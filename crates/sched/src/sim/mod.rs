//! The simulator: the scheduler in virtual time, with made-up or recorded requests.
//!
//! A [`Scenario`] and a seed give a [`Run`]; [`Summary`] and [`Bounds`] turn it into figures, [`experiment`] into the
//! tables of the issue, [`page`] into a page to look at. Same seed, same numbers, on every machine.

mod bounds;
mod engine;
pub mod experiment;
pub mod grids;
mod metrics;
mod output;
pub mod page;
mod price;
mod profile;
mod rng;
mod svg;
pub mod table2;
mod workload;

pub use bounds::{Ahead, Bounds};
pub use engine::{JobRecord, QueueSample, Run, Scenario};
pub use metrics::{Interval, Metrics, Summary, percentile};
pub use output::{InputLine, RunFile};
pub use profile::{FileModel, FilePhase, ProfileFile};
pub use rng::Rng;
pub use workload::{Arrival, Arrivals, Batches, Mix, Workload, parse_trace};
