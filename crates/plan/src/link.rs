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
    /// Processor seconds that a byte costs either end below the connection, on the machine that was
    /// calibrated: of a tunnel.
    pub tunnel_s: f64,
}

/// What a WireGuard tunnel in user space leaves of a link's rate (its headers), and what a byte costs either
/// end: docs/lab.md, "Measured transports", beside TCP alone.
const WIREGUARD: (f64, f64) = (112.5 / 117.6, 1.3e-9);

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

    /// Seconds that so many bytes keep the link busy, one way after the other: parties answer each other.
    #[must_use]
    pub fn transfer_s(&self, up_bytes: u64, down_bytes: u64) -> f64 {
        8.0 * up_bytes as f64 / self.up_bits + 8.0 * down_bytes as f64 / self.down_bits
    }

    /// The same link in a WireGuard tunnel in user space.
    #[must_use]
    pub fn in_tunnel(&self) -> Self {
        let (left, tunnel_s) = WIREGUARD;
        Self { up_bits: left * self.up_bits, down_bits: left * self.down_bits, tunnel_s, ..self.clone() }
    }

    /// The same link of which no more than `rate` bit/s may be used each way.
    #[must_use]
    pub fn capped(&self, rate: f64) -> Self {
        Self { up_bits: self.up_bits.min(rate), down_bits: self.down_bits.min(rate), ..self.clone() }
    }
}
