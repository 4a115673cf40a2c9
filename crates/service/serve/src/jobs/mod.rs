//! The queue of phases: which runs when, within limits.
pub(crate) mod driver;
pub(crate) mod estimates;
pub(crate) mod event;
pub(crate) mod gate;
pub(crate) mod job;
pub(crate) mod memory;
pub(crate) mod queue;
pub(crate) mod quota;
pub(crate) mod stock;
pub(crate) mod warm;
