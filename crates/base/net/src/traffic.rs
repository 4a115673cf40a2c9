//! Traffic counters.
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The phase for which traffic is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Keys and base OTs, once per client (and what precedes it: handshake, catalog).
    Setup,
    /// The offline phase: work for one input that does not depend on it.
    Offline,
    /// Work that needs the input.
    Online,
}

impl Phase {
    /// All phases in the order they happen.
    pub const ALL: [Self; 3] = [Self::Setup, Self::Offline, Self::Online];

    /// `setup`, `offline` or `online`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Offline => "offline",
            Self::Online => "online",
        }
    }
}

/// Traffic of one party. Bytes include the channel's frame headers, but no headers of TLS, TCP and
/// IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Turns: how often this party started to wait for the peer after sending.
    pub rounds: u64,
    /// Messages sent.
    pub messages: u64,
}

impl Add for Traffic {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self {
            sent: self.sent + o.sent,
            received: self.received + o.received,
            rounds: self.rounds + o.rounds,
            messages: self.messages + o.messages,
        }
    }
}

impl Sub for Traffic {
    type Output = Self;
    /// The difference to an earlier reading `o` of the same counter.
    fn sub(self, o: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(o.sent),
            received: self.received.saturating_sub(o.received),
            rounds: self.rounds.saturating_sub(o.rounds),
            messages: self.messages.saturating_sub(o.messages),
        }
    }
}
