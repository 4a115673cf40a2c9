//! The properties of a link that determine times.

use serde::Serialize;
use tacit_backends::{Costs, DealingCost, PhaseCost};
use tacit_net::Phase;

/// Rates of the payload, and the time that a message and its answer take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// The link's name, for people.
    pub name: String,
    /// Rate from client to server.
    #[serde(rename = "up_bits")]
    pub up_bits_per_s: f64,
    /// Rate from server to client.
    #[serde(rename = "down_bits")]
    pub down_bits_per_s: f64,
    /// Round trip of the idle link, seconds.
    pub rtt_s: f64,
    /// Bytes that pass at once after a pause, each way: the size of a token bucket. 0: the rate
    /// limits every byte.
    pub bucket: f64,
    /// Processor time at either end, in a tunnel below the connection, on the calibrated machine.
    #[serde(rename = "tunnel_s")]
    pub tunnel_cpu_s_per_byte: f64,
}

/// Round trips between client and dealer for one material: TCP, TLS, both greetings, and the
/// request for the client's half.
const DEALER_TRIPS: u64 = 4;

/// The time that a phase needs on a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnLink {
    /// Seconds that the client waits for bytes.
    pub transfer_s: f64,
    /// Seconds of round trips, including the waiting of connections whose windows still grow.
    pub round_trips_s: f64,
    /// Least seconds that the bytes take, however much they overlap other work.
    pub least_s: f64,
}

/// Bytes that a sender has under way before the first acknowledgement: ten segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * 1448.0;

/// A WireGuard tunnel in user space: the share of a link's rate that its headers leave, and the
/// processor seconds of a byte at either end. From docs/lab.md, "Measured transports", compared
/// with TCP alone.
const WIREGUARD: (f64, f64) = (112.5 / 117.6, 1.3e-9);

impl Link {
    /// Returns the link with its slower way at `rate` bit/s and the other in the same ratio to it.
    #[must_use]
    pub fn with_rate(&self, rate: f64) -> Self {
        let times = rate / self.up_bits_per_s.min(self.down_bits_per_s);
        Self {
            up_bits_per_s: times * self.up_bits_per_s,
            down_bits_per_s: times * self.down_bits_per_s,
            ..self.clone()
        }
    }

    /// Returns the link with another round trip, seconds.
    #[must_use]
    pub fn with_rtt(&self, rtt_s: f64) -> Self {
        Self { rtt_s, ..self.clone() }
    }

    /// Seconds that these bytes keep the link busy, one way after the other: parties answer each
    /// other.
    #[must_use]
    pub fn transfer_s(&self, up_bytes: u64, down_bytes: u64) -> f64 {
        8.0 * up_bytes as f64 / self.up_bits_per_s + 8.0 * down_bytes as f64 / self.down_bits_per_s
    }

    /// Computes the time of a phase on this link, on one connection since the setup.
    #[must_use]
    pub fn phase_time(&self, costs: &Costs, phase: Phase) -> OnLink {
        let cost = costs.phase(phase);
        // The dealer's bytes cross the client's link as well, in addition to those of the parties.
        let dealt = costs.dealt_bytes(phase);
        let from_dealer = phase == Phase::Offline && costs.dealing != DealingCost::default();
        let trips = cost.exchanges + if from_dealer { DEALER_TRIPS } else { 0 };
        // Bytes of earlier phases have widened the connection's windows.
        let earlier_costs =
            Phase::ALL.into_iter().take_while(|earlier| *earlier != phase).map(|earlier| costs.phase(earlier));
        let (up_window, down_window) = earlier_costs.fold((FIRST_WINDOW, FIRST_WINDOW), |(up, down), cost| {
            (up + cost.up_bytes as f64, down + cost.down_bytes as f64)
        });
        let slow_start_s = self.phase_slow_start_s(cost, up_window, down_window)
            + self.slow_start_idle_s(self.down_bits_per_s, FIRST_WINDOW, dealt);
        OnLink {
            transfer_s: self.waited_s(cost) + self.transfer_s(0, dealt),
            round_trips_s: self.rtt_s * trips as f64 + slow_start_s,
            least_s: self.least_s(cost, dealt),
        }
    }

    /// Seconds that a phase's client waits for bytes.
    #[must_use]
    pub fn waited_s(&self, cost: &PhaseCost) -> f64 {
        // The waited bytes are taken to divide between both ways as all bytes do.
        let share = cost.waited_bytes as f64 / cost.bytes().max(1) as f64;
        let transfer_s = share * self.transfer_s(cost.up_bytes, cost.down_bytes);
        // A bucket refills while the sender pauses: each way saves a bucket's bytes at each
        // exchange.
        let spared = 8.0 * self.bucket * (1.0 / self.up_bits_per_s + 1.0 / self.down_bits_per_s);
        (transfer_s - (cost.exchanges + 1) as f64 * spared).max(0.0)
    }

    /// Least seconds of a phase whose client also receives `elsewhere` bytes from another sender:
    /// they share the bucket.
    #[must_use]
    fn least_s(&self, cost: &PhaseCost, elsewhere: u64) -> f64 {
        let up = self.least_way_s(cost.up_bytes.saturating_sub(cost.queued_bytes), self.up_bits_per_s);
        up.max(self.least_way_s(cost.down_bytes + elsewhere, self.down_bits_per_s))
    }

    /// Returns the least seconds of bytes one way: those beyond a bucket pass at the rate.
    fn least_way_s(&self, bytes: u64, bits: f64) -> f64 {
        8.0 * (bytes as f64 - self.bucket).max(0.0) / bits
    }

    /// Seconds that the link is idle while `bytes` are sent at once, starting with a window of
    /// `window` bytes. A sender with a full window waits for acknowledgements and then has twice as
    /// many bytes under way (slow start, RFC 5681), until they fill the link.
    #[must_use]
    pub fn slow_start_idle_s(&self, bits: f64, mut window: f64, bytes: u64) -> f64 {
        let (mut left_bytes, mut idle_s) = (bytes as f64 - window, 0.0);
        while left_bytes > 0.0 {
            let waits = self.rtt_s - 8.0 * window / bits;
            if waits <= 0.0 {
                break;
            }
            idle_s += waits;
            window *= 2.0;
            left_bytes -= window;
        }
        idle_s
    }

    /// Seconds that a phase's client waits until the windows up and down carry the largest burst.
    /// If both ways are used at the same time, the longer wait counts.
    #[must_use]
    pub fn phase_slow_start_s(&self, cost: &PhaseCost, up_window: f64, down_window: f64) -> f64 {
        // The client does not wait for queued bytes.
        let waited_up = cost.up_burst.saturating_sub(cost.queued_bytes);
        let idle_s = [
            self.slow_start_idle_s(self.up_bits_per_s, up_window, waited_up),
            self.slow_start_idle_s(self.down_bits_per_s, down_window, cost.down_burst),
        ];
        let way_bytes = [cost.up_bytes.saturating_sub(cost.queued_bytes), cost.down_bytes];
        let [shorter, longer] = [way_bytes[0].min(way_bytes[1]), way_bytes[0].max(way_bytes[1])];
        // 0: both ways at the same time; 1: one after the other.
        let sequential_share = cost.waited_bytes.saturating_sub(longer) as f64 / shorter.max(1) as f64;
        idle_s[0].max(idle_s[1]) + sequential_share.min(1.0) * idle_s[0].min(idle_s[1])
    }

    /// Returns the link in a WireGuard tunnel in user space.
    #[must_use]
    pub fn with_tunnel(&self) -> Self {
        let (rate_share, tunnel_cpu_s_per_byte) = WIREGUARD;
        Self {
            up_bits_per_s: rate_share * self.up_bits_per_s,
            down_bits_per_s: rate_share * self.down_bits_per_s,
            tunnel_cpu_s_per_byte,
            ..self.clone()
        }
    }

    /// Returns the link limited to `rate` bit/s each way.
    #[must_use]
    pub fn with_max_rate(&self, rate: f64) -> Self {
        Self {
            up_bits_per_s: self.up_bits_per_s.min(rate),
            down_bits_per_s: self.down_bits_per_s.min(rate),
            ..self.clone()
        }
    }
}
