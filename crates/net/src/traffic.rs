//! Traffic counters.
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The phase that traffic is booked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Keys and base OTs, once per client (and what precedes it: handshake, catalog).
    Setup,
    /// Input-independent work for one input.
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

/// What one party sent and received. Bytes include the channel's frame headers, not those of TLS, TCP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Turns: how often this party, having sent something, went on to wait for the peer.
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
    /// What was added since an earlier reading `o` of the same counter.
    fn sub(self, o: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(o.sent),
            received: self.received.saturating_sub(o.received),
            rounds: self.rounds.saturating_sub(o.rounds),
            messages: self.messages.saturating_sub(o.messages),
        }
    }
}
