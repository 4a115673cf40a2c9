//! Reasons of refusals that several files use, for log and metrics.
use tacit_admission::RefusalReason;

/// Requests beyond what a client may ask in a day.
pub(crate) const OVER_QUOTA: RefusalReason = "requests over a daily quota";
/// Requests beyond what a client may ask in a minute.
pub(crate) const OVER_RATE: RefusalReason = "requests over a rate";
/// Phases whose client deviated from the protocol.
pub(crate) const DEVIATED: RefusalReason = "phases that deviated from the protocol";
/// Connections of known clients that ended without `Bye`.
pub(crate) const BROKEN: RefusalReason = "of known clients that broke off or said something else";
/// Peers that did not authenticate in time.
pub(crate) const LATE: RefusalReason = "that did not say in time who they are";
/// Peers that are not TLS clients of this CA.
pub(crate) const NO_HANDSHAKE: RefusalReason = "whose TLS handshake failed";
/// Peers that broke off before they were authenticated.
pub(crate) const STRANGE: RefusalReason = "that broke off or said something else";
/// Authenticated peers without a free connection slot.
pub(crate) const NO_ROOM: RefusalReason = "of known peers that found no place";
