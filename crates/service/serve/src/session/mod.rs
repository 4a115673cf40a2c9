//! A connection's jobs, and what it holds meanwhile.
pub(crate) mod client_keys;
pub(crate) mod pooled;
pub(crate) mod spools;
pub(crate) mod uploads;
pub(crate) mod worker;
