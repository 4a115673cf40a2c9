//! Errors of a simulation's inputs.

use tacit_sched::SchedError;
use thiserror::Error;

/// Errors of profiles, workloads and traces, and settings that the scheduler refuses.
#[derive(Debug, Error)]
pub enum SimError {
    /// The scheduler refuses the configuration or the policy's name.
    #[error(transparent)]
    Scheduler(#[from] SchedError),
    /// The built-in workload is unknown.
    #[error("unknown workload {0:?}: expected swiftsnni-mixed or swiftsnni-light")]
    UnknownWorkload(String),
    /// A model named by a workload or trace is not in the profile.
    #[error("model {0:?} is not in the profile")]
    UnknownModel(String),
    /// A cluster without nodes, or the death of a node that does not exist.
    #[error("there are {nodes} nodes: a cluster has one at least, and only those can die")]
    NoSuchNode {
        /// Number of nodes.
        nodes: usize,
    },
    /// A file is malformed.
    #[error("{what}, line {line}: {why}")]
    BadFile {
        /// The kind of file.
        what: &'static str,
        /// Line, from 1; 0 where there are none.
        line: usize,
        /// The fault.
        why: String,
    },
}
