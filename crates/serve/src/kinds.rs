//! Kinds of refusals that several files name, for log and metrics.
use tacit_admission::Kind;

/// Requests beyond what a client may ask in a day.
pub(crate) const OVER_QUOTA: Kind = "requests over a daily quota";
/// Requests beyond what a client may ask in a minute.
pub(crate) const OVER_RATE: Kind = "requests over a rate";
/// Phases in which a client has sent what nobody sends who follows the protocol.
pub(crate) const DEVIATED: Kind = "phases that deviated from the protocol";
/// Connections of known clients that did not end by saying goodbye.
pub(crate) const BROKEN: Kind = "of known clients that broke off or said something else";
/// Peers that did not prove in time who they are.
pub(crate) const LATE: Kind = "that did not say in time who they are";
/// Peers that are no TLS clients of this CA.
pub(crate) const NO_HANDSHAKE: Kind = "whose TLS handshake failed";
/// Peers that broke off before they were known.
pub(crate) const STRANGE: Kind = "that broke off or said something else";
/// Peers that are known, and one too many.
pub(crate) const NO_ROOM: Kind = "of known peers that found no place";
