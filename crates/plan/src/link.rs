//! A link, as far as times follow from it.

use serde::Serialize;

/// Rates of the payload and the time that a message and its answer take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// For people.
    pub name: String,
    /// From client to server, bit/s.
    pub up_bits: f64,
    /// From server to client, bit/s.
    pub down_bits: f64,
    /// Round trip of the idle link, seconds.
    pub rtt_s: f64,
}

impl Link {
    /// The same link, its slower way at `rate` bit/s and the other as much faster or slower.
    #[must_use]
    pub fn at_rate(&self, rate: f64) -> Self {
        let times = rate / self.up_bits.min(self.down_bits);
        Self { up_bits: times * self.up_bits, down_bits: times * self.down_bits, ..self.clone() }
    }

    /// The same link with another round trip.
    #[must_use]
    pub fn at_rtt(&self, rtt_s: f64) -> Self {
        Self { rtt_s, ..self.clone() }
    }

    /// Seconds that so many payload bytes keep the link busy: the longer way, and half of the shorter one,
    /// since parties partly send at once (0.3 to 0.7 of it was seen on emulated links).
    #[must_use]
    pub fn transfer_s(&self, up_bytes: u64, down_bytes: u64) -> f64 {
        let (up, down) = (8.0 * up_bytes as f64 / self.up_bits, 8.0 * down_bytes as f64 / self.down_bits);
        up.max(down) + 0.5 * up.min(down)
    }
}
