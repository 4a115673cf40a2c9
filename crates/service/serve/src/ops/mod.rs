//! What operators see and steer: figures, traces, signals, state that outlives a run.
pub(crate) mod ended;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub(crate) mod published;
pub(crate) mod record;
pub(crate) mod reload;
pub(crate) mod signals;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod traces;
