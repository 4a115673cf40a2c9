//! Traffic counters.
use std::ops::{Add, Sub};

/// The phase that traffic is booked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    pub const ALL: [Phase; 3] = [Phase::Setup, Phase::Offline, Phase::Online];

    /// `setup`, `offline` or `online`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Offline => "offline",
            Phase::Online => "online",
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
    type Output = Traffic;
    fn add(self, o: Traffic) -> Traffic {
        Traffic {
            sent: self.sent + o.sent,
            received: self.received + o.received,
            rounds: self.rounds + o.rounds,
            messages: self.messages + o.messages,
        }
    }
}

impl Sub for Traffic {
    type Output = Traffic;
    /// What was added since an earlier reading `o` of the same counter.
    fn sub(self, o: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.saturating_sub(o.sent),
            received: self.received.saturating_sub(o.received),
            rounds: self.rounds.saturating_sub(o.rounds),
            messages: self.messages.saturating_sub(o.messages),
        }
    }
}
