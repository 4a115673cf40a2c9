//! Experiments: the programs, places and numbers of runs, and the runner ([PM24] section 4: link
//! measured before each run, repetitions, idle subtracted).
//!
//! An [`ExperimentSpec`] is the TOML text, an [`Experiment`] its checked form.
mod bench;
mod builtin;
mod checked;
mod command;
mod meter;
pub mod plan;
mod port;
mod program;
mod reuse;
mod runner;
mod scratch;
mod spec;

pub use builtin::{BUILT_IN, BuiltIn};
pub use checked::{Experiment, Link, Workload};
pub use command::CommandLine;
pub use runner::{Event, Outcome, Settings, run};
pub use scratch::Scratch;
pub use spec::{ExperimentSpec, Fewer, LinkText, WorkloadSpec};
