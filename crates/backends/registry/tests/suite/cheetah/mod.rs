//! The `cheetah` back end as two parties.

mod conformance;
mod damaged;
mod net;
