//! Policies: the order in which queued jobs start, and their threads.
//!
//! A policy is a pure function of facts and never sees the queue itself, so it cannot break the
//! scheduler's constraints. The scheduler asks for a score, walks the jobs from the lowest score
//! up, and starts the first that fits.

mod adaptive;
mod classic;
mod facts;
mod spec;
mod ss26;

pub use adaptive::Adaptive;
pub use classic::{FairShare, Fcfs, Priority, Sequential, ShortestRemaining};
pub use facts::{Choice, ClassFacts, Discipline, JobFacts, Policy, Score, ThreadOption};
pub use spec::PolicySpec;
pub use ss26::{Ss26, Ss26Order};
