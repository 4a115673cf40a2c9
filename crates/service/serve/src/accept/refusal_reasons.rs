//! Reasons of refusals that several files use, for log and metrics.
use tacit_admission::RefusalReason;

pub(crate) const OVER_QUOTA: RefusalReason = "requests over a daily quota";
pub(crate) const OVER_RATE: RefusalReason = "requests over a rate";
pub(crate) const DEVIATED: RefusalReason = "phases that deviated from the protocol";
/// Connections of known clients that ended without `Bye`.
pub(crate) const BROKEN: RefusalReason = "of known clients that broke off or said something else";
pub(crate) const LATE: RefusalReason = "that did not say in time who they are";
pub(crate) const NO_HANDSHAKE: RefusalReason = "whose TLS handshake failed";
pub(crate) const STRANGE: RefusalReason = "that broke off or said something else";
pub(crate) const NO_ROOM: RefusalReason = "of known peers that found no place";
