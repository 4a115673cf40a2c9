//! A link, as far as times follow from it.

use serde::Serialize;
use tacit_backends::{Costs, DealingCost, PhaseCost};
use tacit_net::Phase;

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
    /// Bytes that pass at once after a pause, each way: a token bucket's. 0: every byte takes its time.
    pub bucket: f64,
    /// Processor seconds that a byte costs either end below the connection, on the machine that was
    /// calibrated: of a tunnel.
    pub tunnel_s: f64,
}

/// Round trips between client and dealer for a material: TCP, TLS, both greetings, and the half that is asked
/// for.
const DEALER_TRIPS: u64 = 4;

/// What a phase takes of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnLink {
    /// Seconds that the client waits for bytes.
    pub transfer_s: f64,
    /// Seconds of round trips, those of connections that fill the link only by and by included.
    pub round_trips_s: f64,
    /// Seconds that bytes take at least, whatever else happens.
    pub least_s: f64,
}

/// Bytes that a sender has under way before the first word that they arrived: ten segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * 1448.0;

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

    /// What a phase takes of this link, on one connection since the setup.
    #[must_use]
    pub fn takes(&self, costs: &Costs, phase: Phase) -> OnLink {
        let cost = costs.of(phase);
        // A dealer's part comes over the client's link as well, beside what the parties send.
        let dealt = costs.dealt_bytes(phase);
        let from_dealer = phase == Phase::Offline && costs.dealing != DealingCost::default();
        let trips = cost.exchanges + if from_dealer { DEALER_TRIPS } else { 0 };
        // What has arrived has widened the connection's windows.
        let before = Phase::ALL.into_iter().take_while(|earlier| *earlier != phase).map(|earlier| costs.of(earlier));
        let windows = before
            .fold([FIRST_WINDOW; 2], |[up, down], cost| [up + cost.up_bytes as f64, down + cost.down_bytes as f64]);
        let climbs_s = self.climbs_s(cost, windows) + self.climb_s(self.down_bits, FIRST_WINDOW, dealt);
        OnLink {
            transfer_s: self.waited_s(cost) + self.transfer_s(0, dealt),
            round_trips_s: self.rtt_s * trips as f64 + climbs_s,
            least_s: self.least_s(cost, dealt),
        }
    }

    /// Seconds that a phase's client waits for bytes.
    #[must_use]
    pub fn waited_s(&self, cost: &PhaseCost) -> f64 {
        // Of ways that are not as fast as each other, as much of both.
        let share = cost.waited_bytes as f64 / cost.bytes().max(1) as f64;
        let takes = share * self.transfer_s(cost.up_bytes, cost.down_bytes);
        // A bucket fills while nothing is sent: each way is spared what passes at once, each time.
        let spared = 8.0 * self.bucket * (1.0 / self.up_bits + 1.0 / self.down_bits);
        (takes - (cost.exchanges + 1) as f64 * spared).max(0.0)
    }

    /// Seconds that a phase takes at least whose client is also sent so many bytes from elsewhere: no bucket
    /// carries more than its rate in all.
    #[must_use]
    fn least_s(&self, cost: &PhaseCost, elsewhere: u64) -> f64 {
        let of = |bytes: u64, bits: f64| 8.0 * (bytes as f64 - self.bucket).max(0.0) / bits;
        let up = of(cost.up_bytes.saturating_sub(cost.queued_bytes), self.up_bits);
        up.max(of(cost.down_bytes + elsewhere, self.down_bits))
    }

    /// Seconds that the link is idle while so many bytes are sent at once from a window of so many: a sender
    /// that has filled its window waits for word that it arrived, and has twice as many under way then (slow
    /// start, RFC 5681), until they fill the link.
    #[must_use]
    pub fn climb_s(&self, bits: f64, mut window: f64, bytes: u64) -> f64 {
        let (mut left, mut idle_s) = (bytes as f64 - window, 0.0);
        while left > 0.0 {
            let waits = self.rtt_s - 8.0 * window / bits;
            if waits <= 0.0 {
                break;
            }
            idle_s += waits;
            window *= 2.0;
            left -= window;
        }
        idle_s
    }

    /// Seconds that a phase's client waits until windows of so many bytes, up and down, carry the most that
    /// is sent at once: of ways that are used at the same time, for the longer one.
    #[must_use]
    pub fn climbs_s(&self, cost: &PhaseCost, [up, down]: [f64; 2]) -> f64 {
        // Nobody waits for what is queued.
        let waited_up = cost.up_burst.saturating_sub(cost.queued_bytes);
        let climbs = [self.climb_s(self.up_bits, up, waited_up), self.climb_s(self.down_bits, down, cost.down_burst)];
        let ways = [cost.up_bytes.saturating_sub(cost.queued_bytes), cost.down_bytes];
        let [shorter, longer] = [ways[0].min(ways[1]), ways[0].max(ways[1])];
        // 0: at the same time; 1: one after the other.
        let apart = cost.waited_bytes.saturating_sub(longer) as f64 / shorter.max(1) as f64;
        climbs[0].max(climbs[1]) + apart.min(1.0) * climbs[0].min(climbs[1])
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
