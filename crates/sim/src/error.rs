//! What can be wrong with what a simulation is made of.

use tacit_sched::SchedError;
use thiserror::Error;

/// Errors of profiles, workloads and traces, and settings that the scheduler refuses.
#[derive(Debug, Error)]
pub enum SimError {
    /// The scheduler refuses the configuration or the policy's name.
    #[error(transparent)]
    Scheduler(#[from] SchedError),
    /// No such built-in workload.
    #[error("unknown workload {0:?}: expected swiftsnni-mixed or swiftsnni-light")]
    UnknownWorkload(String),
    /// A model named by a workload or trace is not in the profile.
    #[error("model {0:?} is not in the profile")]
    UnknownModel(String),
    /// A cluster without nodes, or the death of one that it does not have.
    #[error("there are {nodes} nodes: a cluster has one at least, and only those can die")]
    NoSuchNode {
        /// How many.
        nodes: usize,
    },
    /// A file does not say what it should.
    #[error("{what}, line {line}: {why}")]
    BadFile {
        /// Which kind of file.
        what: &'static str,
        /// Line, from 1; 0 where there are none.
        line: usize,
        /// What is wrong.
        why: String,
    },
}
