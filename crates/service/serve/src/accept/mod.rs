//! Connections before their first request: accepting, handshakes, who may do what.
pub(crate) mod access;
pub(crate) mod authentication;
pub(crate) mod closer;
pub(crate) mod counted;
pub(crate) mod edge;
pub(crate) mod identity;
pub(crate) mod refusal_reasons;
